"""Recognises operators that modules write out as several: RMS norm, rotary positions, attention, tanh GELU, losses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isclose, pi, prod, sqrt

from torch import Tensor

from .attention import LEAST, known_mask
from .operators import arrangement
from .rotary import both, rotary
from .statements import EXAMPLES, Imported, Statement, reading
from .views import Value, View

COMPUTED = ("rope", "full_attention", "causal_attention")
"""Operators that replace constants which a module may have rounded to float32: position tables, scales."""


def with_idioms(model: Imported) -> Imported:
    """The model with each recognised pattern as one operator, and without what nothing reads any more."""
    makers = {result: statement for statement in model.statements for result in statement.results}
    read = [view.value for statement in model.statements for view in statement.operands]
    idioms = _Idioms(makers, Counter([*read, *model.left]), model.left)
    statements = [idioms.found(statement) or statement for statement in model.statements]
    changed = (new for old, new in zip(model.statements, statements, strict=True) if new is not old)
    rounded = any(statement.operator in COMPUTED for statement in changed)
    return without_unread(replace(model, statements=reading(statements, idioms.shown), rounded=rounded))


def without_unread(model: Imported) -> Imported:
    """The model without statements and inputs that nothing reads."""
    wanted = model.left
    kept: list[Statement] = []
    for statement in reversed(model.statements):
        if not wanted.isdisjoint(statement.results):
            kept.append(statement)
            wanted |= {operand.value for operand in statement.operands}
    return replace(model, statements=kept[::-1], inputs=[value for value in model.inputs if value in wanted])


@dataclass(frozen=True)
class _Idioms:
    """`makers` maps a value to its statement, `readers` counts the reads of a value, `left` are the values that the
    model leaves. If an idiom makes a result in another arrangement, `shown` has the original value as a view of it.
    """

    makers: Mapping[Value, Statement]
    readers: Mapping[Value, int]
    left: Collection[Value]
    shown: dict[Value, View] = field(default_factory=dict)

    def made(self, view: View, operator: str) -> Statement | None:
        """The statement that makes a view's value, if it has that operator."""
        found = self.makers.get(view.value)
        return found if found is not None and found.operator == operator else None

    def found(self, statement: Statement) -> Statement | None:
        if statement.operator == "mul":
            return self.rms_norm(statement) or self.gelu_tanh(statement)
        if statement.operator == "matmul":
            return self.attention(statement)
        if statement.operator in ("scale", "reduce_mean"):
            return self.mean(statement)
        if statement.operator in ("add", "concat") and (turned := rotary(statement, self.made)) is not None:
            (result,) = statement.results
            if turned.shown is None:
                return turned.statement
            if result not in self.left:
                self.shown[result] = turned.shown
                return turned.statement
        return self.linear_bias(statement) if statement.operator == "add" else None

    def rms_norm(self, statement: Statement) -> Statement | None:
        """x * rsqrt(mean(x^2) + eps) * gain."""
        for gain, normed in both(statement.operands):
            is_gain = gain.value.kind == "weight" and len(gain.dims) == 1 and normed.is_whole
            product = self.made(normed, "mul") if is_gain else None
            for x, inverse in both(product.operands) if product is not None else ():
                root = self.made(inverse, "rsqrt")
                shift = root and self.made(root.operands[0], "shift")
                mean = shift and self.made(shift.operands[0], "reduce_mean")
                square = mean and self.square(mean.operands[0], x)
                if shift and mean and square:
                    if mean.settings["kept"].split() == [str(place) for place in range(len(x.dims) - 1)]:
                        eps = {"eps": shift.settings["by"]}
                        return replace(statement, operator="rms_norm", operands=(x, gain), settings=eps)
        return None

    def square(self, view: View, x: View) -> Statement | None:
        """The statement that makes a view as the square of x, possibly after rearranging it like x."""
        arranged = self.made(view, "rearrange")
        if arranged is not None and arrangement(arranged.operands[0]) == arrangement(x):
            view = arranged.operands[0]
        found = self.made(view, "square")
        return found if found is not None and found.operands[0].value is x.value else None

    def mean(self, statement: Statement) -> Statement | None:
        """A sum divided by its number of elements, as a mean; a mean over all elements that makes a loss, as that
        loss.
        """
        total, made = statement, statement
        if statement.operator == "scale":
            found = self.made(statement.operands[0], "reduce_sum")
            if found is None or not statement.operands[0].is_whole:
                return None
            count = prod(found.operands[0].shape) // prod(statement.results[0].shape)
            if not _is(statement.settings["factor"], 1 / count):
                return None
            total, made = found, replace(found, operator="reduce_mean", results=statement.results)
        inner = total.operands[0]
        while statement.results[0].shape == () and (mean := self.made(inner, "reduce_mean")) is not None:
            inner = mean.operands[0]
        loss = self.loss(inner) if statement.results[0].shape == () and not inner.repeated else None
        if loss is not None:
            return replace(made, operator=loss[0], operands=loss[1], settings={})
        return made if made is not statement else None

    def loss(self, inner: View) -> tuple[str, tuple[View, View]] | None:
        """The operator and the operands of the loss that is the mean of `inner`."""
        negated, difference = self.made(inner, "neg"), self.made(inner, "sub")
        if negated is not None and (gather := self.made(negated.operands[0], "gather")) is not None:
            logarithms, places = gather.operands
            if places.dims[-1] or int(gather.settings["dim"]) != len(places.dims) - 1:
                return None
            places = places.arranged(places.dims[:-1])
            softmax = self.made(logarithms, "log_softmax")
            if softmax is not None and logarithms.is_whole:
                return "cross_entropy", (softmax.operands[0], places)
            return "nll", (logarithms, places)
        for operator, name in (("square", "mse"), ("abs", "l1")):
            power = self.made(inner, operator)
            error = self.made(power.operands[0], "sub") if power is not None else None
            if error is not None and _are_alike(*error.operands):
                return name, (error.operands[0], error.operands[1])
        product = self.made(difference.operands[1], "mul") if difference is not None else None
        soft = self.made(difference.operands[0], "softplus") if difference is not None else None
        if product is not None and soft is not None:
            x, y = product.operands
            if x.value is soft.operands[0].value and _are_alike(x, y):
                return "binary_cross_entropy_with_logits", (x, y)
        return None

    def attention(self, statement: Statement) -> Statement | None:
        """softmax(q k^T / sqrt(|k|) + mask) v, over all keys or the causal ones."""
        weights, value = statement.operands
        softmax = self.made(weights, "softmax")
        scores = softmax.operands[0] if softmax is not None else None
        if scores is None or not weights.is_whole or not scores.is_whole or len(value.dims) != 4:
            return None
        name, masked, added = "full", self.made(scores, "causal_mask"), self.made(scores, "add")
        if masked is not None:
            name, scores = "causal", masked.operands[0]
        elif added is not None:
            tables = [part for part in both(added.operands) if part[1].value.constant is not None]
            if not tables or not _is_causal(tables[0][1].value.constant, scores.shape):
                return None
            name, scores = "causal", tables[0][0]
        product = self.made(scores, "matmul")
        if product is None or not scores.is_whole:
            return None
        (q, first), (key, second) = (self.unscaled(part) for part in product.operands)
        if not isclose(first * second, 1 / sqrt(q.shape[-1]), rel_tol=1e-6) or q.repeated or key.repeated:
            return None
        operands = (q, key.permuted((0, 1, 3, 2)), value)
        return replace(statement, operator=f"{name}_attention", operands=operands, settings={})

    def unscaled(self, view: View) -> tuple[View, float]:
        """A view before it was scaled, and the scale."""
        scaled = self.made(view, "scale")
        if scaled is None:
            return view, 1.0
        given = scaled.operands[0]
        if not given.is_whole:
            return view, 1.0
        return View(given.value, view.base, view.dims), float(scaled.settings["factor"])

    def gelu_tanh(self, statement: Statement) -> Statement | None:
        """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))."""
        for half, other in both(statement.operands):
            scaled, shift = self.made(half, "scale"), self.made(other, "shift")
            tanh = shift and self.made(shift.operands[0], "tanh")
            inner = tanh and self.made(tanh.operands[0], "scale")
            total = inner and self.made(inner.operands[0], "add")
            if scaled is None or inner is None or total is None or not _is(scaled.settings["factor"], 0.5):
                continue
            for x, cubic in both(total.operands):
                part = self.made(cubic, "scale")
                cube = part and self.made(part.operands[0], "power")
                if part and cube and x.value is cube.operands[0].value is scaled.operands[0].value:
                    if _is(part.settings["factor"], 0.044715) and _is(inner.settings["factor"], sqrt(2 / pi)):
                        return replace(statement, operator="gelu_tanh", operands=scaled.operands, settings={})
        return None

    def linear_bias(self, statement: Statement) -> Statement | None:
        """x w^T + bias, where nothing else reads the product."""
        for product, bias in both(statement.operands):
            linear = self.made(product, "linear")
            if linear is None or not product.is_whole or self.readers[product.value] != 1:
                continue
            if bias.value.kind == "weight" and len(bias.dims) == 1 and bias.shape == product.shape[-1:]:
                return replace(statement, operator="linear_bias", operands=(*linear.operands, bias))
        return None


def _are_alike(x: View, y: View) -> bool:
    return x.shape == y.shape and not (x.repeated or y.repeated)


def _is_causal(table: Tensor | None, shape: Sequence[int]) -> bool:
    """Whether a table that is added to scores is 0 up to the diagonal and hides all scores beyond."""
    if table is None or table.dim() < 2 or tuple(table.shape[-2:]) != tuple(shape[-2:]):
        return False
    if not bool(((table == 0) | (table <= -LEAST)).all()):
        return False
    known = known_mask(table == 0)
    return known is not None and known.form == "causal"


def _is(text: str, value: float) -> bool:
    """Whether a setting is this number; False for one that depends on the batch."""
    return EXAMPLES not in text and isclose(float(text), value, rel_tol=1e-6)
