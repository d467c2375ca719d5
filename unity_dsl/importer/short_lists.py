"""Modules with fewer layers: where many are alike, what a size changes is found out with a few of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import nn

KEPT = 4
"""The layers that a list keeps: the first one may be read otherwise, and a repeat takes two."""
LEAST = 8
"""The length of a list from which on layers are left out."""


def shorten(module: nn.Module) -> Mapping[tuple[str, ...], int]:
    """Leaves out of every long list of layers with equal weights all but the first ones, and tells how many by path."""
    left = {}
    for path, layers in list(_long_lists(module)):
        left[path] = len(layers) - KEPT
        del layers[KEPT:]
    return left


def is_deep(module: nn.Module) -> bool:
    """Whether layers of it would be left out."""
    return any(True for _ in _long_lists(module))


def _long_lists(module: nn.Module) -> Iterator[tuple[tuple[str, ...], nn.ModuleList | nn.Sequential]]:
    for path, part in module.named_modules():
        if isinstance(part, nn.ModuleList | nn.Sequential) and len(part) >= LEAST:
            first, *others = (
                (type(layer), [(name, weight.shape) for name, weight in layer.named_parameters()]) for layer in part
            )
            if first[1] and all(first == other for other in others):
                yield tuple(path.split(".")), part
