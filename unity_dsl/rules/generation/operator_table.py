"""The signature table of one operator, from its declaration: the operator at its least ranks, and common operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...index.instantiation.view_call import takes_pattern
from ...index.library import Library
from ...prove.translation.real_attributes import real_attributes
from ...syntax.ast import OperatorDecl, TensorDecl
from ...syntax.diagnostic import fail
from ...syntax.span import Source
from ..enumeration.signature_table import SignatureTable, read_table

LETTERS = ("m", "n", "k", "h", "i", "j", "l", "o", *(f"m{number}" for number in range(64)))
NUMBERS = ("c", "d", *(f"c{number}" for number in range(16)))
OPERATORS = 3
MOST_RANK = 4


def operator_table(name: str, library: Library) -> SignatureTable:
    """A theme with the operator's name: its signature and common operators on tensors of the rank of its first operand.
    If its result has a higher rank than all operands, also sums, factors, concatenations, transposition and row sums of
    that rank.

    A group of dimensions stands for one dimension, or for two if no operand has any other dimensions. Raises E509 for a
    parallel op, and for an operator with an attribute that has no default and cannot be any real number.
    """
    help = "write a table of signatures: `unityc rules generate --table FILE`"
    if name not in library.operators:
        raise fail("E509", f"no signature follows from the declaration of `{name}`", help=help)
    decl = library.operators[name]
    real = real_attributes(decl)
    for attribute in decl.attributes:
        if attribute.name not in real and attribute.default is None:
            raise fail("E509", f"nothing says what the attribute `{attribute.name}` of `{name}` is", help=help)
    own, rank = _signature(decl, [one.name for one in decl.attributes if one.name in real])
    partners = [*_partners(rank), *(_partners_of_result(raised) if (raised := _raised_rank(decl, rank)) else ())]
    signatures = [own, *(text for text in dict.fromkeys(partners) if f" {name}(" not in text)]
    listed = "".join(f"  '{text}',\n" for text in signatures)
    about = f"`{name}` with sums, products, factors and concatenations"
    text = f"[{name}]\nabout = '{about}'\noperators = {OPERATORS}\nsignatures = [\n{listed}]\n"
    return read_table(Source(f"signatures of {name}", text))


def _signature(decl: OperatorDecl, real: Sequence[str]) -> tuple[str, int]:
    """The text of the operator's signature, and the rank of its first operand."""
    letters: dict[str, tuple[str, ...]] = {}
    taken: list[str] = []
    lone = all(len(tensor.dims) == 1 and tensor.dims[0].rest for tensor in decl.inputs if tensor.dims)
    for dim in (dim for tensor in decl.inputs for dim in tensor.dims):
        if dim.name not in letters:
            count = 2 if dim.rest and lone else 1
            letters[dim.name] = LETTERS[len(taken) : len(taken) + count]
            taken += letters[dim.name]
    operands = []
    for place, tensor in enumerate(decl.inputs):
        bound = "" if tensor.integer_range is None else f"int<{letters.get(tensor.integer_range, ('v',))[0]}>"
        operands.append(f"x{place}: {bound}[{', '.join(_dims(tensor, letters))}]")
    numbers = ", ".join(f"{name}={number}" for name, number in zip(real, NUMBERS, strict=False))
    arguments = ", ".join(f"x{place}" for place in range(len(decl.inputs)))
    first = _dims(decl.inputs[0], letters) if decl.inputs else []
    if takes_pattern(decl) is not None and len(decl.inputs[0].dims) > 1:
        arguments = f"x0[{', '.join(first)}] -> [{', '.join(first[:-1])}]"
    return f"({', '.join(operands)}) {decl.name}({arguments}{f'; {numbers}' if numbers else ''})", len(first)


def _raised_rank(decl: OperatorDecl, rank: int) -> int:
    """The rank of the first result if it is higher than that of every operand; else 0, also if there are
    rest groups.
    """
    tensors = (*decl.inputs, *decl.outputs[:1])
    if any(dim.rest for tensor in tensors for dim in tensor.dims):
        return 0
    raised = len(decl.outputs[0].dimensions)
    return raised if raised > max([rank, *(len(tensor.dimensions) for tensor in decl.inputs)]) else 0


def _dims(tensor: TensorDecl, letters: dict[str, tuple[str, ...]]) -> list[str]:
    dims: list[str] = []
    for axes in tensor.dimensions:
        names = [name for axis in axes for name in letters[axis.name]]
        dims += [" * ".join(names)] if len(axes) > 1 else names
    return dims


def _partners_of_result(rank: int) -> Iterator[str]:
    """Signatures of operators on a result of higher rank: sums, factors, concatenations, transposition and row sums."""
    dims = list(LETTERS[: min(rank, MOST_RANK)])
    shape = ", ".join(dims)
    yield f"(x: [{shape}], y: [{shape}]) add(x, y)"
    yield f"(x: [{shape}]) scale(x; factor=c)"
    for place in range(len(dims)):
        first, second = (", ".join([*dims[:place], letter, *dims[place + 1 :]]) for letter in ("a", "b"))
        yield f"(x: [{first}], y: [{second}]) concat(x, y; dim={place})"
    yield f"(x: [{shape}]) x[{shape}] -> [{', '.join([*dims[:-2], dims[-1], dims[-2]])}]"
    yield f"(x: [{shape}]) reduce_sum(x[{shape}] -> [{', '.join(dims[:-1])}])"


def _partners(rank: int) -> Iterator[str]:
    """Signatures of common operators on tensors of a rank."""
    dims = list(LETTERS[: min(max(rank, 1), MOST_RANK)])
    shape = ", ".join(dims)
    yield f"(x: [{shape}], y: [{shape}]) add(x, y)"
    yield f"(x: [{shape}], y: [{shape}]) mul(x, y)"
    yield f"(x: [{shape}]) scale(x; factor=c)"
    yield f"(x: [{shape}]) relu(x)"
    for place in range(len(dims)):
        first, second = (", ".join([*dims[:place], letter, *dims[place + 1 :]]) for letter in ("a", "b"))
        yield f"(x: [{first}], y: [{second}]) concat(x, y; dim={place})"
    if len(dims) == 2:
        yield "(x: [m, k], w: [n, k]) linear(x, w)"
        yield "(x: [m, n]) x[m, n] -> [n, m]"
