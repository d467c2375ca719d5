"""Padding theorems of a model: each operator with a padded axis, proved once per process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256

from ..graph.graph import Model
from ..graph.padding_claims import PaddingClaim
from ..index.equations.term_text import equation_text
from ..index.library import Library
from ..prove.answer import Answer, NotProved


def why_not_proved(model: Model, library: Library) -> str:
    """Why a padded model is not proved equal to the model, in words; empty if all claims about it are proved."""
    for claim in dict.fromkeys(model.claims):
        if isinstance(answer := _proved(claim, library), NotProved):
            return f"padding of `{claim.instance.name}` along {', '.join(claim.axes)} is not proved: {answer.reason}"
    return ""


@lru_cache(maxsize=4096)
def _proved(claim: PaddingClaim, library: Library) -> Answer:
    # Imported here: only a padded model needs the prover.
    from ..prove.sharding.padding_theorems import prove_padding

    return prove_padding(claim, library)


def statement(claim: PaddingClaim) -> str:
    """`cross_entropy padded along c`."""
    return f"{claim.instance.name} padded along {', '.join(claim.axes)}"


def claim_key(claim: PaddingClaim) -> str:
    """The hash of everything that the proof depends on."""
    return sha256("\n".join(_lines(claim)).encode()).hexdigest()


def _lines(claim: PaddingClaim) -> Iterator[str]:
    for instance in (claim.instance, claim.padded):
        yield from (f"{operand.name}: {operand.dims}" for operand in (*instance.inputs, *instance.outputs))
        yield from map(equation_text, (*instance.equations, *instance.evaluation))
    yield from (f"{name} {axis} {number}" for name, axis, number in sorted(claim.tails))
