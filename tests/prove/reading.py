"""Parses and evaluates the prover's notation, as an independent check of printed normal forms."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

Value = Callable[[Mapping[str, int]], Any]
"""Maps the values of sizes and indices, by name, to a number."""


def partial(function: Callable[..., float]) -> Callable[..., float]:
    """The function, returning NaN where it raises ValueError or ZeroDivisionError."""

    def value(*arguments: float) -> float:
        try:
            return function(*arguments)
        except (ValueError, ZeroDivisionError):
            return math.nan

    return value


def extreme(choose: Callable[[list[Any]], Any], members: list[Any]) -> Any:
    """The extremum of a set; NaN if a member is NaN."""
    return math.nan if any(math.isnan(member) for member in members) else choose(members)


FUNCTIONS: dict[str, Callable[..., float]] = {
    "exp": math.exp,
    "log": partial(math.log),
    "sqrt": partial(math.sqrt),
    "erf": math.erf,
    "tanh": math.tanh,
    "sin": math.sin,
    "cos": math.cos,
    "abs": abs,
    "pow": partial(math.pow),
    "positive": lambda x: float(x > 0),
    "not_negative": lambda x: float(x >= 0),
    "zero": lambda x: float(x == 0),
    "select": lambda condition, then, otherwise: then if condition else otherwise,
    "inv": partial(lambda x: 1 / x),
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
WORD = re.compile(r"\s*(\(\w+&\w+\)|//|<=|>=|==|!=|\d+(?:\.\d+)?(?:e[+-]?\d+)?|@?[A-Za-z_][\w.]*|\S)")


@dataclass
class Reader:
    """A parser of a text in the notation. `tensors` have one dimension per factor, device axes first."""

    text: str
    tensors: Mapping[str, npt.NDArray[Any]]
    words: list[str] = field(default_factory=list)
    at: int = 0

    def __post_init__(self) -> None:
        self.words = [*WORD.findall(self.text.strip()), ""]

    def value(self) -> Value:
        found = self.form()
        assert not self.word, f"{self.word!r} is left of {self.text}"
        return found

    @property
    def word(self) -> str:
        return self.words[self.at]

    def take(self, *expected: str) -> str:
        word = self.word
        assert not expected or word in expected, f"{word!r} where {expected} is expected in {self.text}"
        self.at += 1
        return word

    def taken(self, word: str) -> bool:
        if self.word == word:
            self.at += 1
            return True
        return False

    # ------------------------------------------------------------------------------------------ numbers

    def form(self) -> Value:
        parts = [(-1 if self.taken("-") else 1, self.term())]
        while self.word in ("+", "-"):
            parts.append((-1 if self.take() == "-" else 1, self.term()))
        return lambda env: sum(sign * part(env) for sign, part in parts)

    def term(self) -> Value:
        ranges: list[tuple[str, Value]] = []
        if self.word == "sum" and self.words[self.at + 1] == "(":
            self.at += 2
            ranges = [self.range()]
            while self.take(",", ")") == ",":
                ranges.append(self.range())
        guards: list[Value] = []
        if self.taken("["):
            guards = [self.guard()]
            while self.take(",", "]") == ",":
                guards.append(self.guard())
        body = self.product()

        def total(env: Mapping[str, int]) -> Any:
            return sum(body(inner) for inner in bindings(ranges, env) if all(guard(inner) for guard in guards))

        return total

    def range(self) -> tuple[str, Value]:
        name = self.take()
        self.take("<")
        return name, self.form()

    def guard(self) -> Value:
        left, sign, right = self.form(), COMPARISONS[self.take(*COMPARISONS)], self.form()
        return lambda env: sign(left(env), right(env))

    def product(self) -> Value:
        parts = [("*", self.power())]
        while self.word in ("*", "/", "//"):
            parts.append((self.take(), self.power()))

        def value(env: Mapping[str, int]) -> Any:
            found: Any = 1
            for sign, part in parts:
                other = part(env)
                found = found * other if sign == "*" else found / other if sign == "/" else found // other
            return found

        return value

    def power(self) -> Value:
        base = self.atom()
        if not self.taken("^"):
            return base
        exponent = (-1 if self.taken("-") else 1) * int(self.take())
        return lambda env: base(env) ** exponent

    def atom(self) -> Value:
        word = self.take()
        if word == "(":
            inner = self.form()
            self.take(")")
            return inner
        if word[0].isdigit():
            number = float(word) if re.search(r"[.e]", word) else int(word)
            return lambda env: number
        if self.taken("["):
            return self.read(word)
        if word in FUNCTIONS and self.taken("("):
            arguments = [self.form()]
            while self.take(",", ")") == ",":
                arguments.append(self.form())
            return lambda env: FUNCTIONS[word](*(argument(env) for argument in arguments))
        if word in ("max", "min") and self.taken("{"):
            return self.extremum(word)
        if word in self.tensors:
            return lambda env: self.tensors[word][()]
        return lambda env: np.inf if word == "inf" else env[word]

    def read(self, tensor: str) -> Value:
        index = self.entries()
        while self.take(",", "]") == ",":
            index += self.entries()
        return lambda env: self.tensors[tensor][tuple(part(env) for part in index)]

    def entries(self) -> list[Value]:
        """One index, or the indices of a dimension's factors, `(i j)`."""
        start = self.at
        try:
            found = [self.form()]
            assert self.word in (",", "]")
            return found
        except AssertionError:
            self.at = start
        self.take("(")
        found = []
        while not self.taken(")"):
            found.append(self.product())
        return found

    def extremum(self, kind: str) -> Value:
        families = [self.family()]
        while self.take(";", "}") == ";":
            families.append(self.family())
        choose = max if kind == "max" else min
        return lambda env: extreme(choose, [value for family in families for value in family(env)])

    def family(self) -> Callable[[Mapping[str, int]], Iterator[Any]]:
        value = self.form()
        ranges: list[tuple[str, Value]] = []
        guards: list[Value] = []
        if self.taken(":"):
            while True:
                start = self.at
                name, sign = self.take(), self.take()
                bound = sign == "<" and name.isidentifier() and name not in dict(ranges) and not guards
                self.at = start
                if bound:
                    ranges.append(self.range())
                else:
                    guards.append(self.guard())
                if not self.taken(","):
                    break

        def members(env: Mapping[str, int]) -> Iterator[Any]:
            for inner in bindings(ranges, env):
                if all(guard(inner) for guard in guards):
                    yield value(inner)

        return members


def bindings(ranges: list[tuple[str, Value]], env: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    for values in product(*(range(size(env)) for _, size in ranges)):
        yield {**env, **dict(zip((name for name, _ in ranges), values, strict=True))}


def table(lines: list[str], tensors: Mapping[str, npt.NDArray[Any]], sizes: Mapping[str, int]) -> npt.NDArray[Any]:
    """The values of `name[i, (j k)], i < m, j < p, k < e =` and the lines below it, one dimension per factor."""
    head = re.fullmatch(r"[^\[]*\[(.*?)\](.*) =", lines[0])
    assert head is not None, lines[0]
    ranges = {}
    for text in filter(None, re.split(r", (?=\w+ < )", head[2])):
        name, _, size = text.partition(" < ")
        ranges[name] = Reader(size, tensors).value()(sizes)
    names = re.findall(r"@?[\w.]+", head[1])
    extents = [sizes[name[1:]] if name.startswith("@") else ranges[name] for name in names]
    value = Reader("".join(lines[1:]), tensors).value()
    found = np.zeros(extents)
    for index in np.ndindex(*extents):
        found[index] = value({**sizes, **dict(zip(names, index, strict=True))})
    return found
