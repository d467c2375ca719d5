"""Chooses the matrix products that are fused with the elementwise operators around them, where that is cheaper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...machine.machine import Machine

if TYPE_CHECKING:
    from ...machine.contraction_price import KernelStepPrices

Names = tuple[str, ...]


@dataclass(frozen=True)
class ContractionPrice:
    """Seconds of some operators, forward and backward: `fused` into one forward kernel, or `apart`, with the vendor's
    product.
    """

    fused: float
    apart: float


@dataclass(frozen=True)
class ContractionChoice:
    """The choice by a machine's prices. It is remembered, so that the same operators of the model at other sizes are
    grouped in the same way.
    """

    machine: Machine
    noted: dict[Names, Names] = field(default_factory=dict)

    def prices(self, dtype: str) -> KernelStepPrices:
        """Prices of kernels whose products have factors of a type."""
        from ...machine.contraction_price import KernelStepPrices  # prices kernels, which few programs have

        return KernelStepPrices(self.machine, dtype)

    def best(self, among: Names, prices: Mapping[Names, ContractionPrice]) -> Names:
        """The results of the operators in the cheapest group; empty if no group is cheaper than the vendor's product
        apart. `among` are the results of the operators that are looked at. `prices` has the possible groups.
        """
        if among not in self.noted:
            saved = {names: price.apart - price.fused for names, price in prices.items()}
            best = max(saved, key=lambda names: saved[names], default=())
            self.noted[among] = best if saved.get(best, 0) > 0 else ()
        return self.noted[among]


def price_comment(price: ContractionPrice) -> str:
    """The predicted times of both ways, as a comment."""
    fused, apart = (f"{seconds * 1e3:.3g} ms" for seconds in (price.fused, price.apart))
    return f"predicted, forwards and backwards: {fused}; with the vendor's product apart {apart}"
