"""Selects the sharding theorems to ship: those about the shipped operators and the examples.

Claims that the prover could not prove are stored as refused, so that no compilation tries them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain

from ..graph.model_graph import build_model
from ..index.axes.axis_windows import windowed
from ..index.equations.instance import Instance
from ..index.library import Library
from ..prove.answer import Proved
from ..prove.version import solver_version
from ..resources import folder
from ..syntax.parse_model import parse_model
from ..syntax.read import read_source
from .fusing import fused
from .process_map import process_map
from .sharding_table import claims_of, instances, roles_of
from .sharding_theorems import Claim, ShardingTheorems
from .shipped_fusions import shipped_fusions
from .theorem_file import StoredTheorem, TheoremFile
from .wellformed import load_rules

PRESETS = (None, "small")
"""Presets with which every example is built."""


@dataclass(frozen=True)
class AskedClaim:
    """A claim and its possible keys: with symbolic attributes, and with numeric ones."""

    claim: Claim
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Attempt:
    """The outcome of one claim. A theorem is stored under the first key; None means refused under all keys."""

    keys: tuple[str, ...]
    theorem: StoredTheorem | None


def shipped_instances(library: Library) -> Iterator[Instance]:
    """Every shipped operator at the relevant ranks, then every node of every example, at full and at small size, as
    written and with all fusions applied.
    """
    yield from instances(library.operators.values())
    fusions = load_rules(read_source(shipped_fusions()), library)
    for path in sorted(folder("examples").glob("*.udl")):
        for preset in PRESETS:
            model = build_model(parse_model(read_source(path)), library, {}, preset)
            changed, _ = fused(model, fusions, library, lambda *_: True)
            yield from (node.instance for each in (model, changed) for node in each.graph.nodes())


def asked_claims(found: Iterable[Instance], library: Library) -> list[AskedClaim]:
    """The claims that a search may need about these instances on any mesh, deduplicated, in order."""
    seen: set[str] = set()
    asked: dict[tuple[str, ...], AskedClaim] = {}
    for instance in found:
        if (text := _text(instance, library)) in seen:
            continue
        seen.add(text)
        claims = claims_of(instance, library)
        for claim in chain.from_iterable(map(claims.of, roles_of(instance, library))):
            subjects = (claim.general, claim.at_numbers)
            keys = tuple(dict.fromkeys(claim.key(subject, library) for subject in subjects))
            asked.setdefault(keys, AskedClaim(claim, keys))
    return list(asked.values())


def _text(instance: Instance, library: Library) -> str:
    """A key of the claims that a search needs about an instance. Sizes are part of it only if there are windows."""
    sizes = sorted(instance.sizes.items()) if windowed(instance, library) else ()
    equations = [(one.target, one.value, one.kind, one.over, one.ties) for one in instance.equations]
    evaluation = [(one.target, one.value, one.kind, one.over, one.ties) for one in instance.evaluation]
    parts = (instance.name, instance.inputs, instance.outputs, instance.attributes, sizes, equations, evaluation)
    return repr(parts)


def keep(asked: Iterable[AskedClaim], theorems: ShardingTheorems, processes: int) -> TheoremFile:
    """Every claim as a theorem or as refused, taken from the stored ones or proved now by `processes` processes."""
    asked, known = list(asked), theorems.stored
    settled = [(one, [key for key in one.keys if key in known.theorems]) for one in asked]
    kept = {key: known.theorems[key] for _, keys in settled for key in keys[:1]}
    open_claims = [one for one, keys in settled if not keys]
    refused = {key for one in open_claims if known.refused.issuperset(one.keys) for key in one.keys}
    for attempt in attempts([one for one in open_claims if not refused.issuperset(one.keys)], theorems, processes):
        if attempt.theorem is None:
            refused.update(attempt.keys)
        else:
            kept.setdefault(attempt.keys[0], attempt.theorem)
    return TheoremFile(kept, frozenset(refused - kept.keys()), z3=solver_version())


def attempts(asked: Iterable[AskedClaim], theorems: ShardingTheorems, processes: int) -> Iterator[Attempt]:
    """Each claim proved now, in order, by `processes` processes."""
    with closing(process_map(partial(_attempt, theorems), list(asked), processes)) as found:
        yield from found


def _attempt(theorems: ShardingTheorems, one: AskedClaim) -> Attempt:
    answer = theorems.answer(one.claim)
    if not isinstance(answer, Proved):
        return Attempt(one.keys, None)
    met = tuple(f"{obligation.name}: {obligation.statement}" for obligation in answer.obligations)
    theorem = StoredTheorem(one.claim.operator.name, one.claim.statement, met)
    return Attempt((theorems.key(one.claim),), theorem)
