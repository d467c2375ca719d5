"""The tensors that a lowering builds and those that autograd saves, by size: torch's execution without elements.

The result of one torch kernel is one tensor here. Views share the storage of their base tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from .constant_terms import constants_apart
from .kept_by_torch import KEPT, WITH_POSITIONS, Kept
from .local_tensor import Memory, Shape, Storage, Tensor, broadcast
from .matrix_products import contract, kept_factors, matrix_product
from .operand_reuse import IN_PLACE
from .operator_lowering import Lowering
from .standardised_lowering import STANDARDISED
from .torch_term import Argument, Sort, Term, Variable
from .value_lowering import Statement
from .views import gathered, is_view, numbers, padded, reduced, taken, transposed, view

_WITHOUT_GRADIENT = frozenset({
    "==", "!=", "<", "<=", ">", ">=", "&", "|", "//", "uniform", "at_least", "torch.floor", "torch.round",
    "torch.sign", "torch.ne", "torch.argsort", "torch.zeros_like",
})  # fmt: skip

_NO_TENSOR = frozenset({
    "number", "word", "state", "float_type", "index", "@dtype", "@device", "@training", ".size", ".numel",
    "torch.promote_types",
})  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """An input or an output on one device. Without strides it is contiguous."""

    shape: Shape
    sort: Sort
    moves: bool = False
    strides: Shape | None = None


@dataclass(frozen=True)
class Built:
    """A storage and the term that makes it. `moves` says that the term has a gradient."""

    storage: Storage
    term: Term
    moves: bool


@dataclass(frozen=True)
class Execution:
    """The operator's `inputs` and `outputs`, the storages that were `built`, in order, and those `saved` for backward.

    Variables of the program hold the `named` storages until the enclosing function returns. `kernels` has, for each
    storage that was built, the term that makes it. Constants that the program holds for all steps are in none of these.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    built: tuple[Storage, ...]
    saved: tuple[Storage, ...]
    named: tuple[Storage, ...] = ()
    kernels: tuple[Built, ...] = ()


def execute(lowering: Lowering, inputs: Sequence[Operand], outputs: Sequence[Operand], width: int) -> Execution:
    """What a run on these operands builds and saves, with floats of `width` bytes."""
    memory = Memory(width, all(output.sort is Sort.INT for output in outputs))
    given = [memory.new(operand.shape, operand.sort, moves=operand.moves) for operand in inputs]
    given = [replace(x, strides=operand.strides or x.strides) for x, operand in zip(given, inputs, strict=True)]
    memory.built.clear()
    run = _Run(memory, dict(zip(map(Variable, range(len(given))), given, strict=True)))
    constants, lowering = constants_apart(lowering)
    held = run.take(constants)
    shapes = dict(zip(lowering.results, outputs, strict=True))
    for statement in lowering.statements:
        if statement.value.operation == STANDARDISED:
            run.variables |= zip(statement.variables, run.standardised(statement.value), strict=True)
            continue
        for variable in statement.variables:
            found = run.tensor(statement.value, shapes.get(variable))
            if found is not None:
                run.variables[variable] = found
    results = tuple(run.variables[variable] for variable in lowering.results)
    named = dict.fromkeys(tensor.storage for tensor in run.variables.values() if tensor.storage not in held)
    saved = dict.fromkeys(storage for storage in run.saved if storage not in held)
    return Execution(tuple(given), results, tuple(memory.built), tuple(saved), tuple(named), tuple(run.kernels))


@dataclass
class _Run:
    """The variables so far, the storages saved for backward, and the term that makes each storage built."""

    memory: Memory
    variables: dict[Variable, Tensor]
    saved: list[Storage] = field(default_factory=list)
    kernels: list[Built] = field(default_factory=list)

    def take(self, constants: Sequence[Statement]) -> frozenset[Storage]:
        """Binds the constants that the program holds for all steps. Returns their storages."""
        for statement in constants:
            if (found := self.tensor(statement.value)) is not None:
                self.variables[statement.variables[0]] = found
        held = frozenset(self.memory.built)
        self.memory.built.clear()
        self.kernels.clear()
        self.saved.clear()
        return held

    def tensor(self, term: Argument, output: Operand | None = None) -> Tensor | None:
        """The tensor that a term makes; None for a number or a word. `output` describes the result of a native call."""
        if not isinstance(term, Term):
            return None
        found = self.evaluated(term, output)
        # The inner terms have recorded their own storages already.
        for storage in self.memory.built[len(self.kernels) :]:
            self.kernels.append(Built(storage, term, found is not None and found.moves))
        return found

    def evaluated(self, term: Term, output: Operand | None) -> Tensor | None:
        match term.operation:
            case "name":
                (variable,) = term.arguments
                assert isinstance(variable, Variable)
                return self.variables.get(variable)
            case operation if operation in _NO_TENSOR:
                return None
            case "@values" | "@shape":
                return self.tensor(term.arguments[0])
            case "torch.einsum":
                return self.einsum(term)
            case "places":
                return self.places(term)
            case "surrogate":
                return self.surrogate(term)
            case "torch.pow" | "/" if isinstance(first := term.arguments[0], Term) and first.sort is Sort.NUMBER:
                return self.of_number(term)
        # If a number scales a call, the call's result has the size of the scaled result.
        scaled = output if term.operation in ("*", "/") and _is_number(term.arguments[1]) else None
        operands = [found for part in _terms(term) if (found := self.tensor(part, scaled)) is not None]
        if term.operation == "[]":
            # An index without dimensions counts as a number.
            operands[1:] = [place for place in operands[1:] if place.shape]
        if term.operation in ("torch.matmul", "torch.bmm", "F.linear"):
            left, right, *_ = operands
            right = right.permuted((1, 0)) if term.operation == "F.linear" else right
            return matrix_product(self.memory, left, right, self.saved)
        if is_view(self.memory, term, operands):
            return view(self.memory, term, operands)
        if term.operation == ".take_along_dim":
            # torch makes a new index tensor, because negative positions count from the end.
            operands[1] = self.memory.elementwise(operands[1:2], Sort.INT)
        if term.operation == "torch.where":
            for _ in range(3 - len(operands)):
                self.memory.new((), term.sort)
        if (call := IN_PLACE.get(term.operation)) is not None:
            moves = any(operand.moves for operand in operands)
            result = replace(operands[0], moves=moves)
            self.saved += self.kept(replace(term, operation=call), operands, result) if moves else ()
            return result
        result = self.computed(term, operands, output)
        if any(operand.moves for operand in operands) and term.operation not in _WITHOUT_GRADIENT:
            result = replace(result, moves=result.sort in (Sort.FLOAT, Sort.POSITION))
            self.saved += self.kept(term, operands, result)
        if term.operation == "torch.argsort":
            self.memory.new(result.shape, operands[0].sort)  # the sorted values; only their positions are used
        if term.operation in WITH_POSITIONS:
            places = self.memory.new(result.shape, Sort.INT)
            self.saved += [places.storage] * result.moves
        return result

    def of_number(self, term: Term) -> Tensor | None:
        """A number divided by a tensor (torch multiplies it with the reciprocal), or raised to its power."""
        operand = self.tensor(term.arguments[1])
        if operand is None:
            return None
        result = self.memory.elementwise([operand], term.sort, moves=operand.moves)
        if operand.moves:
            self.saved.append(result.storage)
        if term.operation == "/":
            return self.memory.elementwise([result], term.sort, moves=operand.moves)
        return result

    def places(self, term: Term) -> Tensor | None:
        """Row-major positions: the sum of those at which rows begin and those within a row."""
        given = self.tensor(term.arguments[0])
        assert given is not None
        for count, axes in ((prod(given.shape[:-1]), term.axes[:-1]), (given.shape[-1], term.axes[-1:])):
            made = self.memory.new((count,), term.sort).storage
            self.kernels.append(Built(made, replace(term, axes=axes), moves=False))
        return self.memory.new(given.shape, term.sort)

    def surrogate(self, term: Term) -> Tensor:
        """The value itself. If x has a gradient, the slope that multiplies the gradient is saved for backward."""
        value, x, slope = map(self.tensor, term.arguments)
        assert value is not None and x is not None
        if x.moves and slope is not None:
            self.saved.append(slope.storage)
        return replace(value.expanded(broadcast([value.shape, x.shape])), moves=value.moves or x.moves)

    def einsum(self, term: Term) -> Tensor:
        spec, *factors = term.arguments
        assert isinstance(spec, Term)
        (text,) = spec.arguments
        tensors = [found for factor in factors if (found := self.tensor(factor)) is not None]
        return contract(self.memory, str(text).strip('"'), tensors, self.saved)

    def standardised(self, term: Term) -> Iterator[Tensor]:
        """The results of the call: the standardised value, mean and variance."""
        x, gain, bias = map(self.tensor, term.arguments[:3])
        assert x is not None
        moves, channels = any(operand.moves for operand in (x, gain, bias) if operand is not None), x.shape[1]
        found = [self.memory.elementwise([x], term.sort, moves=moves)]
        found += [self.memory.new((channels,), term.sort, moves=x.moves) for _ in range(2)]
        *_, axes = term.arguments
        assert isinstance(axes, tuple)
        for tensor, over in zip(found, (term.axes, axes, axes), strict=True):
            named = tuple(axis for axis in over if isinstance(axis, str))
            self.kernels.append(Built(tensor.storage, Term(STANDARDISED, (), named), tensor.moves))
        saved = [x, *([] if gain is None else [gain]), *found[1:]]
        self.saved += [tensor.storage for tensor in saved] if moves else []
        return iter(found)

    # ------------------------------------------------------------------------------------------ results

    def computed(self, term: Term, operands: Sequence[Tensor], output: Operand | None) -> Tensor:
        """The tensor that a call makes, before its gradient is considered."""
        if term.operation == "F.scaled_dot_product_attention" and output is not None:
            # Its kernels write the heads of a position next to each other.
            return self.memory.new(output.shape, term.sort, order=(3, 1, 2, 0))
        shape = self.shape(term, operands, output)
        if shape is None:
            return self.memory.elementwise(operands, term.sort)
        return self.memory.new(shape, term.sort)

    def shape(self, term: Term, operands: Sequence[Tensor], output: Operand | None) -> Sequence[int] | None:
        """The shape of a result that is not elementwise or has no operands; None for an elementwise result."""
        operation, arguments = term.operation, term.arguments
        match operation:
            case "torch.arange":
                return [self.number(arguments[0])]
            case "torch.full":
                return numbers(arguments[0])
            case "torch.zeros":
                return numbers(arguments)
            case "torch.tensor" | "F.cross_entropy" | "F.nll_loss":
                return ()
            case "torch.sum" if len(arguments) == 1:
                return ()
            case ".sum" | ".amax" | ".amin" | ".prod" | ".max" | ".min":
                return reduced(operands[0].shape, numbers(arguments[1:]))
            case "reduce_over":
                return reduced(operands[0].shape, numbers(arguments[1]))
            case "torch.cat" if output is None:
                (dim,) = numbers(arguments[1:])
                return [*operands[0].shape[:dim], sum(x.shape[dim] for x in operands), *operands[0].shape[dim + 1 :]]
            case "F.pad":
                return padded(operands[0].shape, numbers(arguments[1]))
            case "[]":
                return gathered(term, operands)
            case ".take_along_dim":
                return taken(operands[0].shape, operands[1].shape, numbers(arguments[2])[0])
            case ".index_put" | ".scatter_add" | ".scatter_reduce" | ".index_copy" | ".cumsum":
                return operands[0].shape
            case "F.embedding":
                return operands[0].shape + operands[1].shape[1:]
            case "F.conv_transpose1d" | "F.conv_transpose2d" | "F.conv_transpose3d" if output is None:
                return transposed(operands[0].shape, operands[1].shape, dict(term.keywords))
        alike = broadcast([operand.shape for operand in operands])
        called = output is not None and operation.find(".") > 0  # a function, not a method or a Python operator
        return output.shape if output is not None and called and output.shape != alike else None

    def number(self, argument: Argument) -> int:
        """A number of positions: itself, or the size of a tensor."""
        match argument:
            case Term(".size", (tensor, int(dim))):
                found = self.tensor(tensor)
                assert found is not None
                return found.shape[dim]
            case Term(".numel", (tensor,)):
                found = self.tensor(tensor)
                assert found is not None
                return prod(found.shape)
        return numbers((argument,))[0]

    # ------------------------------------------------------------------------------------------ what is saved

    def kept(self, term: Term, operands: Sequence[Tensor], result: Tensor) -> Iterator[Storage]:
        """The storages that the backward pass of a call reads."""
        if term.operation in _PARTS:
            yield from self.parts(term, operands, result)
            return
        match KEPT.get(term.operation, Kept.OPERANDS):
            case Kept.NOTHING:
                return
            case Kept.FIRST:
                yield operands[0].storage
            case Kept.OPERANDS:
                yield from (operand.storage for operand in operands)
            case Kept.RESULT:
                yield result.storage
            case Kept.EXTREMUM:
                yield from (operands[0].storage, result.storage)
            case Kept.ALL:
                yield from (tensor.storage for tensor in (*operands, result))
            case Kept.PLACES if operands[-1].moves:
                yield from (operand.storage for operand in operands[:-1] if operand.sort is Sort.INT)
            case Kept.MASK:
                yield from (operand.storage for operand in operands if operand.sort in (Sort.INT, Sort.BOOL))
            case Kept.FACTORS:
                yield from kept_factors(operands)
            case Kept.QUOTIENT:
                yield from (operand.storage for operand in operands[1:])
                yield from (operands[0].storage for operand in operands[1:] if operand.moves)
            case Kept.POWER:
                yield from (operand.storage for operand in operands)
                yield from (result.storage for _ in operands[1:])

    def parts(self, term: Term, operands: Sequence[Tensor], result: Tensor) -> Iterator[Storage]:
        """What a call saves if it consists of several kernels, or saves more than its operands and results."""
        x, *others = operands
        match term.operation:
            case "F.layer_norm" | "F.rms_norm":
                yield from (operand.storage for operand in operands)
                rows = prod(x.shape) // prod(numbers(term.arguments[1]))
                yield from (self.statistics(rows) for _ in range(2 if term.operation == "F.layer_norm" else 1))
            case "F.group_norm":
                yield from (x.storage, others[0].storage)
                yield from (self.statistics(x.shape[0] * numbers(term.arguments[1:2])[0]) for _ in range(2))
            case "F.batch_norm":
                yield from (operand.storage for operand in operands[:4])
                yield from (self.statistics(x.shape[1]) for _ in range(2))
            case "reduce_over" if term.arguments[3] == "prod":
                yield x.storage
                yield from self.products(x, numbers(term.arguments[1]))
                yield self.memory.new(result.shape, x.sort).storage
            case "reduce_over":
                # The share of the extremum's gradient that each element gets.
                yield self.memory.elementwise([x], x.sort).storage
            case "F.cross_entropy":
                yield self.memory.new(x.shape, x.sort).storage
                yield others[0].storage
                yield self.memory.new((), x.sort).storage
            case "F.nll_loss":
                yield from (x.storage, others[0].storage, self.memory.new((), x.sort).storage)
            case "F.embedding_bag":
                yield x.storage
                rows, ids = x.shape[0], prod(x.shape)
                yield from (self.memory.new((count,), Sort.INT).storage for count in (rows, rows, rows, ids + 1))
            case "F.l1_loss":
                yield self.memory.elementwise(operands, x.sort).storage
            case "F.scaled_dot_product_attention":
                yield from (operand.storage for operand in operands[:3])
                yield from (self.memory.new(mask.shape, x.sort).storage for mask in operands[3:])
                yield self.statistics(prod(x.shape[:-1]))
                yield result.storage

    def products(self, x: Tensor, dims: Sequence[int]) -> Iterator[Storage]:
        """The results of products taken one dimension at a time, the last dimension first."""
        for dim in sorted(dims, reverse=True):
            x = self.memory.new(reduced(x.shape, [dim]), x.sort)
            yield x.storage

    def statistics(self, count: int) -> Storage:
        """`count` statistics of a normalising kernel, in float32 or the program's float type if that is wider."""
        return self.memory.new((count,), Sort.POSITION).storage


def _is_number(argument: Argument) -> bool:
    return isinstance(argument, Term) and argument.sort is Sort.NUMBER


_PARTS = frozenset({
    "F.layer_norm", "F.rms_norm", "F.group_norm", "F.batch_norm", "F.cross_entropy", "F.l1_loss",
    "F.scaled_dot_product_attention", "F.nll_loss", "F.embedding_bag", "reduce_over",
})  # fmt: skip


def _terms(term: Term) -> Iterator[Argument]:
    """The arguments of a call that may be tensors, with members of tuples and lists."""
    for argument in (*term.arguments, *(value for _, value in term.keywords)):
        if isinstance(argument, tuple | list):
            yield from argument
        else:
            yield argument
