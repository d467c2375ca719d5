"""Shrinks and prints counterexamples: small sizes, inputs of few integers, a table.

All values shown come from evaluating both sides in NumPy at the sizes and inputs shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from math import isfinite, isnan

import numpy as np

from ...index.library import Library
from ...syntax.parse_rules import RuleDecl
from ..normal_form.form import Unsupported
from ..translation.real_attributes import with_reals
from ..translation.rule_forms import Ranks, Views, claim_of, views_at
from ..translation.size_assumptions import Claim
from .numeric_run import (
    SPARSE,
    Array,
    Difference,
    IllShaped,
    InputValues,
    Numbers,
    Run,
    TooLarge,
    least_size,
    small_sizes,
    witness_sizes,
)
from .sampled_run import SampledRun

SIZE_RUNS = 60
"""Limit of evaluations to find smaller sizes."""
SIZES_LOOKED_AT = 3_000
"""Limit of the size assignments checked against the conditions; beyond it each size is minimised in turn."""
INPUT_RUNS = 200
"""Limit of evaluations to find simpler inputs."""
LARGE_INPUTS = 1_000
"""Inputs of more elements in total are simplified at sampled positions, not element by element."""
SEEDS = (2, 11, 4, 1, SPARSE, SPARSE + 1)
"""Seeds of inputs at each size: integers with ties and zeros, generic numbers; of both signs."""
WHOLE_SEEDS = (2, 11, 14, 8, SPARSE, SPARSE + 1)
SIDES = ("left", "right")
SHOWN = 12
"""Elements of an input that a table shows; the others are counted."""


@dataclass
class Shrinking:
    """The search for a smaller difference of a rule at given ranks."""

    rule: RuleDecl
    claim: Claim
    library: Library
    ranks: Ranks
    views: Views

    def run_at(self, sizes: Mapping[str, int]) -> Run:
        return Run(self.rule, self.claim, self.library, self.ranks, self.views, sizes)

    def smallest(self, found: Difference) -> Difference:
        """The smallest sizes and simplest inputs found, within the limits, that still give a difference."""
        if any(given.places is not None for given in found.inputs):
            return self._smaller_sampled(found)
        smaller = self._smaller(found)
        return self._sparser(smaller) or self._simpler(smaller)

    # ------------------------------------------------------------------------------------------ sizes

    def _smaller_sampled(self, found: Difference) -> Difference:
        """For tensors too large to be evaluated as a whole: a difference at minimal sizes if any, else `found`."""
        least = small_sizes(self.claim, tuple(found.sizes), 1)
        for seed in SEEDS if least is not None and least != found.sizes else ():
            try:
                run = SampledRun(self.rule, self.claim, self.library, self.ranks, self.views, least or {})
                smaller = run.difference(seed)
            except (IllShaped, Unsupported):
                continue
            if smaller is not None and _is_like(smaller, found):
                return smaller
        return found

    def _smaller(self, found: Difference) -> Difference:
        budget = SIZE_RUNS
        least = least_sizes(self.claim, found.sizes)
        for number, sizes in enumerate(smaller_sizes(found.sizes, least)):
            if number == SIZES_LOOKED_AT:
                return self._reduced(found, least)
            if not self.claim.holds(sizes):
                continue
            if not budget:
                return self._reduced(found, least)
            budget -= 1
            smaller = self._difference(sizes, found)
            if smaller is not None:
                return smaller
        return found

    def _reduced(self, found: Difference, least: Mapping[str, int]) -> Difference:
        """Each size minimised in turn, the others fixed."""
        for name, low in least.items():
            for value in sorted({low, low + 1, found.sizes[name] // 2} & set(range(low, found.sizes[name]))):
                sizes = {**found.sizes, name: value}
                smaller = self._difference(sizes, found) if self.claim.holds(sizes) else None
                if smaller is not None:
                    found = smaller
                    break
        return found

    def _difference(self, sizes: Mapping[str, int], like: Difference) -> Difference | None:
        """A difference at these sizes, with the real numbers of `like` or, if that gives none, with others."""
        run = self.run_at(sizes)
        known = {given.name: given.numbers() for given in like.inputs if given.name in self.claim.reals}
        for reals in (known, {}) if known else ({},):
            for seed in SEEDS:
                try:
                    found = run.difference_at(dict(run.inputs(seed)) | reals)
                except (IllShaped, Unsupported):
                    return None
                if found is not None and _is_like(found, like):
                    return found
        return None

    # ------------------------------------------------------------------------------------------ inputs

    def _simpler(self, found: Difference) -> Difference:
        """Simplifies inputs: to integers, then whole inputs to 0, then elements to 0 or, where that fails, to ±1."""
        run = self.run_at(found.sizes)
        for seed in WHOLE_SEEDS:
            whole = _difference_at(run, dict(run.inputs(seed)))
            if whole is not None and _is_like(whole, found):
                found = whole
                break
        for inputs in _rounds(found):
            simpler = _difference_at(run, inputs)
            found = simpler if simpler is not None and _is_like(simpler, found) else found
        budget = INPUT_RUNS
        for place, given in enumerate(found.inputs):
            for element in range(len(given.values)):
                for value in (0, 1, -1):
                    current = found.inputs[place]
                    if abs(current.values[element]) <= abs(value) or not _allowed(current, value):
                        break
                    if not budget:
                        return found
                    budget -= 1
                    simpler = _difference_at(run, _numbers(_changed(found.inputs, place, element, value)))
                    if simpler is not None and _is_like(simpler, found):
                        found = simpler
                        break
        return found

    def _sparser(self, found: Difference) -> Difference | None:
        """A difference with few nonzero input elements, if inputs are large; None where none is found."""
        if found.shapes is not None or sum(len(given.values) for given in found.inputs) <= LARGE_INPUTS:
            return None
        run = SampledRun(self.rule, self.claim, self.library, self.ranks, self.views, found.sizes)
        for seed in SEEDS:
            try:
                other = run.difference(seed)
            except (IllShaped, Unsupported):
                return None
            if other is not None and _is_like(other, found):
                return other
        return None


def _difference_at(run: Run, inputs: Mapping[str, Numbers]) -> Difference | None:
    """A difference on these inputs. A later output may be undefined where the first ones agree."""
    try:
        return run.difference_at(inputs)
    except (IllShaped, Unsupported):
        return None


def smaller_sizes(sizes: Mapping[str, int], least: Mapping[str, int] | None = None) -> Iterator[dict[str, int]]:
    """The assignments of sizes >= `least`, or >= 1, with a smaller sum, in increasing order of the sum."""
    low = dict.fromkeys(sizes, 1) if least is None else least
    for excess in range(sum(sizes.values()) - sum(low.values())):
        for raised in combinations_with_replacement(sizes, excess):
            yield {name: low[name] + raised.count(name) for name in sizes}


def least_sizes(claim: Claim, sizes: Mapping[str, int]) -> dict[str, int]:
    """For each size the least number that conditions on it alone admit, at most its present value."""
    return {name: min(least_size(claim, name), size) for name, size in sizes.items()}


def _is_like(found: Difference, before: Difference) -> bool:
    """Whether both are differences of values or both of shapes, and finite values stay finite.

    Shrinking thus keeps the kind of difference.
    """
    if (found.shapes is None) != (before.shapes is None):
        return False
    return not (isfinite(before.left) and isfinite(before.right)) or (isfinite(found.left) and isfinite(found.right))


def _rounds(found: Difference) -> Iterator[dict[str, Numbers]]:
    """The inputs all rounded; then, for each input in turn, the inputs with this one set to 0."""
    kept = _numbers(found.inputs)
    yield {name: replace(given, array=np.round(given.array)) for name, given in kept.items()}
    for name, given in kept.items():
        yield {**kept, name: replace(given, array=np.zeros_like(given.array))}


def _changed(inputs: Sequence[InputValues], place: int, element: int, value: int) -> list[InputValues]:
    given = inputs[place]
    values = (*given.values[:element], float(value) if given.integer_range is None else value)
    changed = replace(given, values=(*values, *given.values[element + 1 :]))
    return [*inputs[:place], changed, *inputs[place + 1 :]]


def _allowed(given: InputValues, value: int) -> bool:
    return given.integer_range is None or 0 <= value < given.integer_range


def _numbers(inputs: Sequence[InputValues]) -> dict[str, Numbers]:
    return {given.name: given.numbers() for given in inputs}


# ---------------------------------------------------------------------------------------------- shown


def confirmed(difference: Difference, rule: RuleDecl, library: Library) -> Difference | None:
    """The difference re-evaluated from its own sizes and inputs; None where the sides agree there.

    Raises IllShaped where the rule is ill-shaped at these sizes, and InputError as reading the rule does.
    """
    if difference.evaluation:
        library = outside_training(library)
    rule, library = with_reals(rule, library)
    claim = claim_of(rule)
    names = tuple(difference.sizes)
    sizes = witness_sizes(claim, names, 0) or difference.sizes
    views = views_at(rule, claim, library, difference.ranks, sizes)
    question = (rule, claim, library, difference.ranks, views, difference.sizes)
    try:
        if any(given.places is not None for given in difference.inputs):
            raise TooLarge
        found = Run(*question).difference_at(_numbers(difference.inputs))
    except TooLarge:
        found = SampledRun(*question).difference_at_places(difference)
    return None if found is None else replace(found, evaluation=difference.evaluation)


def outside_training(library: Library) -> Library:
    """The library with the operators' `eval` clauses in place of their statements."""
    operators = {
        name: replace(decl, statements=decl.evaluation or decl.statements, evaluation=())
        for name, decl in library.operators.items()
    }
    return replace(library, operators=operators)


def counterexample_table(difference: Difference, rule: RuleDecl, library: Library) -> str:
    """The sizes, inputs, position and both values, one per line. Raises ValueError where the sides agree there."""
    found = confirmed(difference, rule, library)
    if found is None:
        raise ValueError(f"the sides of `{rule.name}` do not differ there")
    rows = [("sizes", ", ".join(f"{name} = {size}" for name, size in found.written.items()))]
    if found.reals:
        rows.append(("numbers", ", ".join(f"{name} = {value}" for name, value in found.reals.items())))
    if found.evaluation:
        rows.append(("mode", "outside training"))
    rows += [(_label(given), _values_text(given)) for given in found.inputs if given.name not in found.reals]
    output = "output" if len(rule.left) == 1 else f"output {found.output}"
    if found.shapes is not None:
        rows += [
            (f"{output}, {side}", f"of shape {list(shape)}") for side, shape in zip(SIDES, found.shapes, strict=True)
        ]
    else:
        at = "" if not found.position else f"[{', '.join(map(str, found.position))}]"
        values = (found.left, found.right)
        rows += [(f"{output}{at}, {side}", number_text(value)) for side, value in zip(SIDES, values, strict=True)]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in rows) + "\n"


def _label(given: InputValues) -> str:
    """The name of an input with its device axes."""
    return f"{given.name} over {', '.join(f'@{name}' for name in given.devices)}" if given.devices else given.name


def _values_text(given: InputValues) -> str:
    """All elements of a small input, the nonzero ones of a large one."""
    shape = list(given.shape)
    if given.places is None and len(given.values) <= SHOWN:
        return _nested(given.numbers().array)
    if given.places is None:
        places = list(np.ndindex(given.shape))
    else:
        places = [tuple(map(int, np.unravel_index(place, given.shape))) for place in given.places]
    other = [(place, value) for place, value in zip(places, given.values, strict=True) if value]
    parts = [f"[{', '.join(map(str, place))}] = {number_text(value)}" for place, value in other[:SHOWN]]
    if len(other) > SHOWN:
        return f"of shape {shape}: {', '.join(parts)}, {len(other) - SHOWN} more that are not 0"
    return f"of shape {shape}: {', '.join((*parts, 'else 0'))}" if parts else f"of shape {shape}: 0"


def _nested(values: Array) -> str:
    return f"[{', '.join(map(_nested, values))}]" if values.ndim else number_text(float(values))


def number_text(value: float) -> str:
    """A number in at most 8 digits, integers without a point; nan as `no value`."""
    if isnan(value):
        return "no value"
    return str(int(value)) if isfinite(value) and value == int(value) and abs(value) < 1e15 else f"{value:.8g}"
