"""Infers how the initial numbers of weights and buffers were drawn, as initialisers of the language."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose, log

from torch import Tensor

from .remembered_tensors import once_a_tensor
from .views import Value


def initialisers_of(value: Value) -> Sequence[str]:
    """The initialisers that may have drawn the numbers of a weight or buffer, best first."""
    tensor = value.constant
    if tensor is None or not tensor.is_floating_point():
        return ["zeros"]  # integers are tables, which are loaded
    return _read(tensor)


@once_a_tensor
def _read(tensor: Tensor) -> Sequence[str]:
    if tensor.dim() > 1 and not any(tensor.stride()):
        return ["normal(0.02)"]  # one element stands for all
    if bool((tensor == tensor.flatten()[0]).all()):
        first = float(tensor.flatten()[0])
        return ["zeros" if first == 0 else "ones" if first == 1 else f"constant({first:g})"]
    return drawn(tensor.detach())


_GAINS = (("1 / 3", 1 / 3), ("2", 2.0), ("1", 1.0))
"""Gains of uniform initialisers: of torch's own layers, after He et al. and after LeCun et al."""
_FANS = (("fan_out", 2.0), ("fan_in", 2.0), ("fan_in", 1.0))
"""Fans and gains of normal initialisers, after He et al. (2015) and LeCun et al. (1998)."""
_USUAL = (1.0, 0.1, 0.02, 0.01)
"""Standard deviations that modules often use."""


def drawn(tensor: Tensor) -> list[str]:
    """The distributions that fit the numbers, best first. They are uniform, with a variance that may follow from the
    shape, if the largest number is as close to the standard deviation as only uniform numbers are. Else they are
    normal.
    """
    std, count, most = float(tensor.std()) if tensor.numel() > 1 else 0.0, tensor.numel(), float(tensor.abs().max())
    error = 1 / (2 * max(count, 2)) ** 0.5  # relative, of the standard deviation of this many normal numbers
    shaped = tensor.dim() > 1 and count >= 64
    fans = {"fan_out": tensor[:, 0].numel(), "fan_in": tensor[0].numel()} if shaped else {}
    if count >= 64 and most < 1.85 * std:
        bounds = {f"fan_in_uniform({gain})": (3 * value / fans["fan_in"]) ** 0.5 for gain, value in _GAINS if fans}
        bounds |= {"xavier_uniform": (6 / sum(fans.values())) ** 0.5} if fans else {}
        found = [text for text, bound in bounds.items() if 0.9 * bound < most <= bound * (1 + 1e-5)]
        return found or [f"uniform(-{most:.2g}, {most:.2g})"]
    known = {f"{fan}_normal({gain:g})": (gain / fans[fan]) ** 0.5 for fan, gain in _FANS if fans}
    known |= {f"normal({usual:g})": usual for usual in _USUAL}
    far = {text: abs(log(std / value)) / error for text, value in known.items() if std > 0}
    if found := sorted((text for text in far if far[text] < 4), key=far.__getitem__):
        return found
    rounded = float(f"{std:.1g}")
    return [f"normal({rounded if isclose(rounded, std, rel_tol=4 * error) else std:.2g})"]
