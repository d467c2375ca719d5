"""The subject of a sharding theorem: an instance generalised over ranks, names and numbers that do not matter.

Rest axes that are adjacent wherever they occur are merged into one: `(b0, b1) -> b` is a bijection that no equation
distinguishes from the identity, so a theorem for all sizes of `b` holds for all pairs. Numbers of attributes become
symbols, so a theorem for all numbers holds for each. An operator thus has few subjects over all ranks and numbers, and
a theorem is stored under its subject's text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, pairwise

from ...index.equations.instance import Dim, Equation, Instance, Kind, Operand
from ...index.equations.term import COMPARISONS, free_axes, rewrite, walk
from ...index.equations.term_text import condition_text, equation_text
from ...index.equations.where_conditions import mentions_rank
from ...syntax.ast import Apply, Expr, Name, Number, OperatorDecl, Read, Size, Uniform
from ...syntax.rational import Rational


@dataclass(frozen=True)
class Subject:
    """An operator to prove a theorem about. `integers` stand for any integer >= 1, `real` attributes for any number.

    In the equations an integer attribute is a size with its name, a real attribute a read of the scalar `#name`.
    """

    instance: Instance
    integers: tuple[str, ...] = ()
    real: tuple[str, ...] = ()
    axes: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """Everything that a proof depends on, in `.uop` notation; equal for equal subjects on every run."""
        return "\n".join(_lines(self))


def generalise(
    instance: Instance,
    apart: Collection[str] = (),
    *,
    declared: OperatorDecl | None = None,
    numbers: bool = False,
) -> Subject:
    """The subject of an instance. Axes in `apart` are not merged; `axes` maps the instance's axes to the subject's.

    For an adjoint, `declared` is the operator that it belongs to, which shows how attributes are used. With `numbers`,
    attributes keep their numbers.
    """
    joined = instance
    while (pair := next(_pairs(joined, apart), None)) is not None:
        joined = _join(joined, *pair)
    renamed, axes = _renamed(joined)
    if numbers:
        return Subject(renamed, axes=axes)
    return replace(_symbolic(renamed, declared or instance.operator), axes=axes)


@lru_cache(maxsize=16384)
def subject_of(kind: Kind, apart: tuple[str, ...], declared: OperatorDecl | None) -> Subject:
    """`generalise`, cached for all instances of a kind; without a declaration attributes keep their numbers."""
    joining = tuple(axis for axis in apart if axis in _joining(kind))
    if joining != apart:
        return subject_of(kind, joining, declared)
    return generalise(kind.instance, apart, declared=declared, numbers=declared is None)


# ---------------------------------------------------------------------------------------------- axes side by side


@lru_cache(maxsize=4096)
def _joining(kind: Kind) -> frozenset[str]:
    """The undeclared axes adjacent to another axis somewhere. Only for these does it matter if they are in `apart`."""
    pairs = (pair for operand in _operands(kind.instance) for pair in _neighbours(operand.dims))
    return frozenset(chain.from_iterable(pairs)) - _declared(kind.instance.operator)


def _pairs(instance: Instance, apart: Collection[str]) -> Iterator[tuple[str, str]]:
    """Pairs of rest axes that are always adjacent, as separate dimensions."""
    declared = _declared(instance.operator)
    operands = _operands(instance)
    for first, second in {pair: None for operand in operands for pair in _neighbours(operand.dims)}:
        free = not {first, second} & {*apart, *declared}
        if free and all(_together(operand.dims, first, second) for operand in operands):
            if all(_read_together(equation, first, second) for equation in _equations(instance)):
                yield first, second


@lru_cache(maxsize=1024)
def _declared(operator: OperatorDecl) -> set[str]:
    """Names that conditions and integer ranges may mention."""
    tensors = (*operator.inputs, *operator.outputs)
    names = {dim.name for tensor in tensors for dim in tensor.dims if not dim.rest}
    names |= {name for condition in operator.conditions for name in free_axes(condition)}
    return names | {tensor.integer_range for tensor in tensors if tensor.integer_range is not None}


def _operands(instance: Instance) -> tuple[Operand, ...]:
    return (*instance.inputs, *instance.outputs, *(equation.target for equation in _equations(instance)))


def _equations(instance: Instance) -> tuple[Equation, ...]:
    return (*instance.equations, *instance.evaluation)


def _neighbours(dims: tuple[Dim, ...]) -> Iterator[tuple[str, str]]:
    for first, second in pairwise(dims):
        if len(first) == len(second) == 1:
            yield first[0], second[0]


def _together(dims: tuple[Dim, ...], first: str, second: str) -> bool:
    """Whether a tensor has both axes, `first` directly before `second` each time, or neither."""
    pairs = list(_neighbours(dims)).count((first, second))
    return [axis for dim in dims for axis in dim if axis in (first, second)] == [first, second] * pairs


def _read_together(equation: Equation, first: str, second: str) -> bool:
    both = {first, second}
    over = [axis for axis in equation.over if axis in both]
    if over and (over != [first, second] or equation.over.index(second) != equation.over.index(first) + 1):
        return False
    return _term_together(equation.value, first, second)


def _term_together(expr: Expr, first: str, second: str) -> bool:
    """Whether the axes occur in index positions only, bare and adjacent."""
    names = (Name(first), Name(second))
    outside = sum(node in names or node in (Size(first), Size(second)) for node in walk(expr))
    for node in walk(expr):
        if isinstance(node, Read | Uniform):
            own = [part for part in node.index if part in names]
            pairs = sum(pair == names for pair in pairwise(node.index))
            if own != [*names] * pairs:
                return False
            outside -= len(own)
    return outside == 0


def _join(instance: Instance, first: str, second: str) -> Instance:
    def operand(given: Operand) -> Operand:
        return replace(given, dims=tuple(dim for dim in given.dims if dim != (second,)))

    def dropped(expr: Expr) -> Expr:
        if isinstance(expr, Read | Uniform):
            return replace(expr, index=tuple(part for part in expr.index if part != Name(second)))
        return expr

    def equation(given: Equation) -> Equation:
        over = tuple(axis for axis in given.over if axis != second)
        return replace(given, target=operand(given.target), value=rewrite(given.value, dropped), over=over)

    sizes = {axis: size for axis, size in instance.sizes.items() if axis != second}
    sizes[first] = instance.sizes[first] * instance.sizes[second]
    return replace(
        instance,
        inputs=tuple(map(operand, instance.inputs)),
        outputs=tuple(map(operand, instance.outputs)),
        sizes=sizes,
        equations=tuple(map(equation, instance.equations)),
        evaluation=tuple(map(equation, instance.evaluation)),
    )


# ---------------------------------------------------------------------------------------------- names and numbers


def _renamed(instance: Instance) -> tuple[Instance, dict[str, str]]:
    """The instance with the axes that no declaration names numbered as they appear, and the renaming of its axes."""
    declared = _declared(instance.operator)
    found = dict.fromkeys(axis for operand in _operands(instance) for axis in operand.axes)
    found |= dict.fromkeys(axis for equation in _equations(instance) for axis in equation.over)
    free = [axis for axis in found if axis not in declared]
    names = {axis: axis for axis in found} | {axis: f"~{number}" for number, axis in enumerate(free)}

    def operand(given: Operand) -> Operand:
        return replace(given, dims=tuple(tuple(names[axis] for axis in dim) for dim in given.dims))

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Name | Size):
            return replace(expr, name=names.get(expr.name, expr.name))
        return expr

    def equation(given: Equation) -> Equation:
        over = tuple(names[axis] for axis in given.over)
        return replace(given, target=operand(given.target), value=rewrite(given.value, change), over=over)

    changed = replace(
        instance,
        inputs=tuple(map(operand, instance.inputs)),
        outputs=tuple(map(operand, instance.outputs)),
        sizes={names.get(axis, axis): size for axis, size in instance.sizes.items()},
        equations=tuple(map(equation, instance.equations)),
        evaluation=tuple(map(equation, instance.evaluation)),
    )
    return changed, names


@lru_cache(maxsize=1024)
def _ranks(operator: OperatorDecl) -> set[str]:
    """Attributes that determine the rank of a rest group, and are used for nothing else."""
    about_ranks = [condition for condition in operator.conditions if mentions_rank(condition)]
    others = [condition for condition in operator.conditions if not mentions_rank(condition)]
    others += [statement.value for statement in (*operator.statements, *operator.evaluation)]
    used = {name for expr in others for name in free_axes(expr)}
    return {name for condition in about_ranks for name in free_axes(condition)} - used


@lru_cache(maxsize=1024)
def _counting(operator: OperatorDecl) -> set[str]:
    """Attributes that occur in indices or comparisons, where an integer and a real number mean different things."""
    found: set[str] = set()
    for statement in (*operator.statements, *operator.evaluation):
        for node in walk(statement.value):
            if isinstance(node, Read | Uniform):
                found.update(name for part in node.index for name in free_axes(part))
            elif isinstance(node, Apply) and node.function in COMPARISONS | {"//", "%"}:
                found.update(free_axes(node))
    return found


@lru_cache(maxsize=1024)
def _tied(operator: OperatorDecl) -> set[str]:
    """Names that a condition relates to others."""
    conditions = [free_axes(condition) for condition in operator.conditions]
    return {name for names in conditions if len(names) > 1 for name in names}


@lru_cache(maxsize=1024)
def _written(operator: OperatorDecl) -> set[Rational]:
    """The numbers in the declaration's own text."""
    statements = (*operator.statements, *operator.evaluation)
    return {node.value for statement in statements for node in walk(statement.value) if isinstance(node, Number)}


@lru_cache(maxsize=1024)
def _conditions(operator: OperatorDecl) -> tuple[str, ...]:
    """The conditions on sizes, as `where` lines."""
    found = (condition for condition in operator.conditions if not mentions_rank(condition))
    return tuple(f"where {condition_text(condition)}" for condition in found)


@lru_cache(maxsize=1024)
def _dividing(operator: OperatorDecl) -> set[str]:
    """Attributes that divide a size with `//`. With a symbolic divisor the quotient is not a polynomial."""
    nodes = [node for condition in operator.conditions for node in walk(condition)]
    divisors = [node.arguments[1] for node in nodes if isinstance(node, Apply) and node.function == "//"]
    return {name for divisor in divisors for name in free_axes(divisor)}


def _symbolic(instance: Instance, operator: OperatorDecl) -> Subject:
    """The subject with numbers of attributes replaced by their names, where a number identifies its attribute."""
    attributes = {name: value for name, value in instance.attributes.items() if name not in _ranks(operator)}
    values = list(attributes.values())
    tied, written = _tied(operator), _written(operator)
    counting, dividing = _counting(operator), _dividing(operator)
    names: dict[Rational, Expr] = {}
    integers, real = [], []
    for name, value in attributes.items():
        if values.count(value) > 1 or value in written or name in instance.sizes or name in dividing:
            continue
        if name not in tied and (not isinstance(value, int) or name not in counting):
            names[value] = Read(f"#{name}", ())
            real.append(name)
        elif isinstance(value, int) and value >= 1:
            names[value] = Size(name)
            integers.append(name)

    def change(expr: Expr) -> Expr:
        return names.get(expr.value, expr) if isinstance(expr, Number) else expr

    def equation(given: Equation) -> Equation:
        return replace(given, value=rewrite(given.value, change))

    changed = replace(
        instance,
        equations=tuple(map(equation, instance.equations)),
        evaluation=tuple(map(equation, instance.evaluation)),
    )
    return Subject(changed, tuple(integers), tuple(real))


# ---------------------------------------------------------------------------------------------- text


def _lines(subject: Subject) -> Iterator[str]:
    instance = subject.instance
    ranges = {decl.name: decl.integer_range for decl in instance.operator.inputs}
    for operand in instance.inputs:
        kind = "" if operand.integer_range is None else f" int<{ranges.get(operand.name) or operand.name}>"
        yield f"{operand.name}:{kind} [{', '.join(' '.join(dim) or '1' for dim in operand.dims)}]"
    ranks = _ranks(instance.operator)
    for name, value in instance.attributes.items():
        if name not in subject.real and name not in ranks:
            yield f"{name} = {'any' if name in subject.integers else repr(value)}"
    yield from _conditions(instance.operator)
    yield from map(equation_text, instance.equations)
    if instance.evaluation:
        yield "eval"
        yield from map(equation_text, instance.evaluation)
    yield f"-> {', '.join(operand.name for operand in instance.outputs)}"
