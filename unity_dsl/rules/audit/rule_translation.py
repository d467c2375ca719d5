"""Translates a rule of a file into our language, under a reading, for all sizes at which both sides have shapes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...prove.normal_form.polynomial import Monomial, Poly, of
from ...prove.normal_form.step_limit import limited
from ...syntax.parse_rules import RuleDecl, parse_rules
from ...syntax.span import Source
from .external_ranks import external_ranks
from .file_rules import FileOperator, FileRule, TensorRef, operator_order
from .reading import Reading
from .size_equations import Contradiction, Sizes
from .typed_terms import Call, Dim, Input, Term, Typed, Typing, calls_of

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = ("rule", "where", "int")
SOLVING_STEPS = 20_000
"""Step limit for solving the equations between sizes of one rule."""
INFIX = {"add": "+", "mul": "*"}


@dataclass(frozen=True)
class Translated:
    """A rule and its text. `conditions` are those conditions of the rule that make replaced results have
    equal sizes.
    """

    rule: RuleDecl
    text: str
    conditions: tuple[str, ...]

    @property
    def claim(self) -> str:
        """The text without the rule's name."""
        return self.text.partition("(")[2]


def translate(rule: FileRule, reading: Reading) -> Translated:
    """The rule under a reading, or under a more general reading if the first one admits no sizes.

    Raises NoReading, Contradiction if no sizes fit an operator of either side, OutOfSteps if there are too many
    equations to solve, and InputError if the rule is too large to be written.
    """
    with limited(SOLVING_STEPS):
        try:
            return _translated(rule, reading)
        except Contradiction:
            general = {**reading.choices, **_general(reading)}
            if general == reading.choices:
                raise
            return _translated(rule, replace(reading, choices=general))


def _general(reading: Reading) -> Mapping[str, str]:
    wider = reading.format.wider
    return {kind: wider[kind, name] for kind, name in reading.choices.items() if (kind, name) in wider}


def _translated(rule: FileRule, reading: Reading) -> Translated:
    typing = Typing(reading.choices)
    ranks = external_ranks(rule, reading.format)
    inputs = {number: _external(number, rank, reading, typing) for number, rank in ranks.items()}
    source = _results(rule.source, f"{rule.place}.srcOp", inputs, reading, typing)
    target = _results(rule.target, f"{rule.place}.dstOp", inputs, reading, typing)
    pairs = [(_result(pair.source, source, inputs), _result(pair.target, target, inputs)) for pair in rule.outputs]
    named = _named_sizes((*inputs.values(), *(typed for pair in pairs for typed in pair)), typing.sizes)
    conditions = tuple(_further(pairs, _named_sizes(inputs.values(), typing.sizes), typing.sizes))
    # Requirements on sizes that have no name in the rule are left out: the prover derives them from the operators.
    asked = [poly for poly in typing.sizes.open if named.issuperset(poly.symbols())]
    assumed = dict.fromkeys((*map(_equation, asked), *conditions))
    text = _rule_text(rule, inputs.values(), pairs, typing.sizes, tuple(assumed))
    (parsed,) = parse_rules(Source(rule.name, text)).rules
    return Translated(parsed, text, conditions)


def _external(number: int, rank: int, reading: Reading, typing: Typing) -> Typed:
    axes = reading.format.axes(number, rank)
    return Typed(Input(f"x{-number}"), tuple(Dim(typing.sizes.fresh(axis)) for axis in axes))


def _results(
    operators: Sequence[FileOperator], place: str, inputs: Mapping[int, Typed], reading: Reading, typing: Typing
) -> Mapping[int, tuple[Typed, ...]]:
    """The results of every operator of a side."""
    found: dict[int, tuple[Typed, ...]] = {}
    for number in operator_order(operators, place):
        made = operators[number]
        operands = [_result(ref, found, inputs) for ref in made.inputs]
        found[number] = reading.format.apply(made, operands, typing)
    return found


def _result(ref: TensorRef, results: Mapping[int, tuple[Typed, ...]], inputs: Mapping[int, Typed]) -> Typed:
    return inputs[ref.operator] if ref.operator < 0 else results[ref.operator][ref.output]


def _named_sizes(values: Iterable[Typed], sizes: Sizes) -> set[object]:
    """The variables in dimensions of external tensors and in attributes."""
    found: list[Poly] = []
    for typed in values:
        if isinstance(typed.term, Input):
            found += (dim.size for dim in typed.dims)
        found += (size for call in calls_of(typed.term) for _, size in call.attributes)
    return {symbol for size in found for symbol in sizes.value(size).symbols()}


def _further(pairs: Sequence[tuple[Typed, Typed]], given: set[object], sizes: Sizes) -> Iterator[str]:
    """Conditions on the sizes of external tensors that make the shapes of replaced results equal; none if they cannot
    be.
    """
    tried = Sizes(dict(sizes.values), list(sizes.open), dict(sizes.order))
    try:
        for left, right in pairs:
            for one, other in zip(left.dims, right.dims, strict=False):
                tried.equal(one.size, other.size)
    except Contradiction:
        return
    for name in sizes.order:
        if name in given and name in tried.values:
            yield _equation(of(name) - tried.value(of(name)))
    yield from (_equation(poly) for poly in tried.open if poly not in sizes.open and given.issuperset(poly.symbols()))


def _equation(poly: Poly) -> str:
    """`a + b == c + d` for a polynomial that must be 0."""
    left = Poly(tuple(term for term in poly.terms if term[1] > 0))
    right = Poly(tuple((monomial, -coefficient) for monomial, coefficient in poly.terms if coefficient < 0))
    return f"{size_text(left)} == {size_text(right)}"


# ---------------------------------------------------------------------------------------------- text


def size_text(size: Poly) -> str:
    """A polynomial with positive coefficients in the notation of rules."""
    return " + ".join(_product_text(monomial, str(coefficient)) for monomial, coefficient in size.terms) or "0"


def _product_text(monomial: Monomial, coefficient: str) -> str:
    factors = [str(symbol) for symbol, power in monomial for _ in range(power)]
    return " * ".join([coefficient, *factors] if coefficient != "1" or not factors else factors)


def _rule_text(
    rule: FileRule,
    inputs: Iterable[Typed],
    pairs: Sequence[tuple[Typed, Typed]],
    sizes: Sizes,
    conditions: Sequence[str],
) -> str:
    terms = [term for side in zip(*pairs, strict=True) for term in (typed.term for typed in side)]
    writer = _Writer(sizes, terms)
    sides = [", ".join(writer.text(typed.term) for typed in side) for side in zip(*pairs, strict=True)]
    declared = ", ".join(
        f"{typed.term.name}: [{', '.join(size_text(sizes.value(dim.size)) for dim in typed.dims)}]"
        for typed in inputs
        if isinstance(typed.term, Input) and typed.term.name in writer.read
    )
    name = rule.name if NAME.fullmatch(rule.name) and rule.name not in RESERVED else re.sub(r"\W", "_", rule.place)
    lines = [f"rule {name}({declared})"]
    lines += [f"  where {', '.join(conditions)}"] if conditions else []
    lines += [f"  {line}" for line in (*writer.definitions, sides[0], f"=> {sides[1]}")]
    return "\n".join(lines) + "\n"


class _Writer:
    """Texts of terms. A term that is used more than once gets a name, whose value is in `definitions`."""

    def __init__(self, sizes: Sizes, terms: Sequence[Term]) -> None:
        self.sizes = sizes
        self.read: set[str] = set()
        self.texts: dict[int, str] = {}
        self.definitions: list[str] = []
        calls = {id(call): call for term in terms for call in calls_of(term)}
        operands = [operand for call in calls.values() for operand in call.operands]
        self.read = {part.name for part in (*operands, *terms) if isinstance(part, Input)}
        uses = Counter(id(operand) for operand in operands)
        for call in calls.values():
            text = self._call_text(call)
            if uses[id(call)] > 1:
                name = f"y{len(self.definitions) + 1}"
                self.definitions.append(f"{name} = {text}")
                text = name
            self.texts[id(call)] = text

    def text(self, term: Term) -> str:
        return term.name if isinstance(term, Input) else self.texts[id(term)]

    def _call_text(self, call: Call) -> str:
        operands = [self.text(operand) for operand in call.operands]
        if call.name in INFIX:
            return f" {INFIX[call.name]} ".join(f"({text})" if self._is_infix(text) else text for text in operands)
        settings = ", ".join(f"{name}={size_text(self.sizes.value(size))}" for name, size in call.attributes)
        return f"{call.name}({', '.join(operands)}{'; ' * bool(settings)}{settings})"

    @staticmethod
    def _is_infix(text: str) -> bool:
        """Whether an operator sign occurs outside all brackets."""
        depth = 0
        for char in text:
            depth += (char in "([") - (char in ")]")
            if not depth and char in "+*":
                return True
        return False
