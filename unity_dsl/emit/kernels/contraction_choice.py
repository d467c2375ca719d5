"""Which matrix products are kernels with what is elementwise around them: those for which that is the cheaper way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...machine.machine import Machine

if TYPE_CHECKING:
    from ...machine.contraction_price import StepPrices

Names = tuple[str, ...]


@dataclass(frozen=True)
class ContractionPrice:
    """Seconds of operators, forwards and backwards, by one kernel forwards, and with the vendor's product apart."""

    fused: float
    apart: float


@dataclass(frozen=True)
class ContractionChoice:
    """Chosen by prices of a machine, and noted: the same operators of the model at other sizes are grouped alike."""

    machine: Machine
    noted: dict[Names, Names] = field(default_factory=dict)

    def prices(self, dtype: str) -> StepPrices:
        """Those of kernels whose products have factors of a type."""
        from ...machine.contraction_price import StepPrices  # of kernels, which few programs have

        return StepPrices(self.machine, dtype)

    def best(self, among: Names, prices: Mapping[Names, ContractionPrice]) -> Names:
        """The values of the operators of a group, of those `among` which it may begin; none where none is cheaper."""
        if among not in self.noted:
            saved = {names: price.apart - price.fused for names, price in prices.items()}
            best = max(saved, key=lambda names: saved[names], default=())
            self.noted[among] = best if saved.get(best, 0) > 0 else ()
        return self.noted[among]


def price_comment(price: ContractionPrice) -> str:
    """What both ways are predicted to take."""
    fused, apart = (f"{seconds * 1e3:.3g} ms" for seconds in (price.fused, price.apart))
    return f"predicted, forwards and backwards: {fused}; with the vendor's product apart {apart}"
