"""Shortens long lists of equal layers: a few of them show what a size changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import nn

KEPT = 4
"""The layers that a list keeps: the first one may be read differently, and a repeat takes two."""
LEAST = 8
"""The length from which a list is shortened."""


def shorten(module: nn.Module) -> Mapping[tuple[str, ...], int]:
    """Removes all but the first layers of every long list of layers with equal weights. Returns how many, by path."""
    left = {}
    for path, layers in list(_long_lists(module)):
        left[path] = len(layers) - KEPT
        del layers[KEPT:]
    return left


def is_deep(module: nn.Module) -> bool:
    """Whether `shorten` would remove layers."""
    return any(True for _ in _long_lists(module))


def _long_lists(module: nn.Module) -> Iterator[tuple[tuple[str, ...], nn.ModuleList | nn.Sequential]]:
    for path, part in module.named_modules():
        if isinstance(part, nn.ModuleList | nn.Sequential) and len(part) >= LEAST:
            first, *others = (
                (type(layer), [(name, weight.shape) for name, weight in layer.named_parameters()]) for layer in part
            )
            if first[1] and all(first == other for other in others):
                yield tuple(path.split(".")), part
