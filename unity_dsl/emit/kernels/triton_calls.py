"""Element functions in Triton, by the torch calls that declare them.

For some of them Triton has no call in every float type. These are functions of the emitted file, if they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...syntax.ast import Name, NativeArgument, NativeCall, Number

_NAN = "propagate_nan=tl.PropagateNan.ALL"
_CALLS: Mapping[str, str] = {
    "torch.abs": "tl.abs({})",
    "torch.cos": "tl.cos({})",
    "torch.erf": "tl.erf({})",
    "torch.exp": "tl.exp({})",
    "torch.expm1": "expm1({})",
    "torch.floor": "tl.floor({})",
    "torch.log": "tl.log({})",
    "torch.log1p": "log1p({})",
    "torch.maximum": f"tl.maximum({{}}, {{}}, {_NAN})",
    "torch.minimum": f"tl.minimum({{}}, {{}}, {_NAN})",
    "torch.pow": "power({}, {})",
    "torch.relu": f"tl.maximum({{}}, 0.0, {_NAN})",
    "torch.rsqrt": "tl.rsqrt({})",
    "torch.sigmoid": "tl.sigmoid({})",
    "torch.sin": "tl.sin({})",
    "torch.sqrt": "tl.sqrt({})",
    "torch.tanh": "tanh({})",
    "F.softplus": "softplus({})",
}
"""Texts with a place for every operand."""
_SOFTPLUS = (Number(1), Number(40))

DEFINED = frozenset({"add_parts", "mix", "uniform_numbers", "product", "expm1", "log1p", "power", "softplus", "tanh"})
"""The functions of codegen/element_functions.triton.j2."""


@dataclass(frozen=True)
class TritonCall:
    """A call with places for its operands. `needs` is the function of the emitted file that it calls, if any."""

    text: str
    needs: str | None = None


def triton_call(native: NativeCall | None) -> TritonCall | None:
    """The call that replaces a torch call of an element function; None if none is known."""
    if native is None or native.function not in _CALLS or native.keywords:
        return None
    text = _CALLS[native.function]
    given: tuple[NativeArgument, ...] = native.arguments
    if native.function == "F.softplus":
        if given[1:] != _SOFTPLUS:
            return None
        given = given[:1]
    if not all(isinstance(argument, Name) for argument in given) or text.count("{}") != len(given):
        return None
    called = text.partition("(")[0]
    return TritonCall(text, called if called in DEFINED else None)
