"""Parser of `.uop`: operators, parallel operators, element functions."""

from __future__ import annotations

from dataclasses import replace

from lark import Token

from .ast import (
    Apply,
    AttributeDecl,
    DeviceName,
    DimDecl,
    Expr,
    FactDecl,
    FunctionDecl,
    Name,
    NativeArgument,
    NativeCall,
    NativeList,
    NativeSteps,
    NativeString,
    Number,
    OperatorDecl,
    OpsFile,
    ParallelDecl,
    Read,
    Reduce,
    ReductionKind,
    Select,
    Size,
    Statement,
    TensorDecl,
    Ties,
    Uniform,
)
from .diagnostic import InputError, Label, fail, gathered, suggest
from .grammar import Node
from .outline import declared_parts
from .parse import parse
from .span import Source, Span
from .tree_builder import Builder, token_at, tokens_of, tree_at, tree_of, trees_of


def parse_ops(source: Source) -> OpsFile:
    """The declarations of a `.uop` text. Raises InputError, codes E005 to E029, for all faulty declarations."""
    whole = Span(source, 0, len(source.text))
    try:
        return OpsFile(_declarations(whole), span=whole)
    except InputError as fault:
        raise gathered(_faults(source) or [fault]) from fault


def _faults(source: Source) -> list[InputError]:
    """The faults of the declarations of a text, each parsed by itself."""
    found = []
    for part in declared_parts(source):
        try:
            _declarations(part)
        except InputError as fault:
            found.append(fault)
    return found


def parse_operator(part: Span) -> OperatorDecl:
    """The operator that a part of a `.uop` text, of whole lines, declares. Raises InputError, codes E005 to E029."""
    (operator,) = _declarations(part)
    assert isinstance(operator, OperatorDecl)
    return operator


def _declarations(part: Span) -> tuple[OperatorDecl | ParallelDecl | FunctionDecl, ...]:
    layout, tree = parse(part.source, "uop", part)
    return tuple(_OpsBuilder(layout).build_all(tree.children))


class _OpsBuilder(Builder):
    """One method per rule of grammar/uop.lark."""

    # ---------------------------------------------------------------- declarations

    def op(self, node: Node) -> OperatorDecl:
        self._check_clauses(trees_of(node, "op_clause"))
        clauses = {_keyword(tree_at(clause, 0)): tree_at(clause, 0) for clause in trees_of(node, "op_clause")}
        return replace(
            self._header(node),
            statements=tuple(self.build_all(trees_of(node, "statement"))),
            evaluation=tuple(self.build_all(trees_of(clauses["eval"], "statement"))) if "eval" in clauses else (),
            torch=self.build(clauses["torch"]) if "torch" in clauses else None,
        )

    def extern(self, node: Node) -> OperatorDecl:
        clauses = [tree_at(clause, 0) for clause in trees_of(node, "extern_clause")]
        self._check_clauses(trees_of(node, "extern_clause"))
        found = {str(clause.data): self.build(clause) for clause in clauses}
        return replace(
            self._header(node),
            torch=found.get("torch"),
            numpy=found.get("numpy"),
            declared=found.get("declared", ()),
            extern=True,
        )

    def _header(self, node: Node) -> OperatorDecl:
        """An operator up to its conditions, without the statements that compute it."""
        return OperatorDecl(
            str(tokens_of(node, "NAME")[0]),
            inputs=self.operands(tree_of(node, "operands")),
            attributes=self.attributes(tree_of(node, "attributes")),
            outputs=self.tensors(tree_of(node, "tensors")),
            conditions=self._conditions(node),
            statements=(),
            doc=self.doc(node),
            span=self.span(node),
        )

    def parallel(self, node: Node) -> ParallelDecl:
        names = tree_of(node, "names")
        assert names is not None
        return ParallelDecl(
            str(tokens_of(node, "NAME")[0]),
            degrees=self.names(names),
            attributes=self.attributes(tree_of(node, "attributes")),
            inputs=self.operands(tree_of(node, "operands")),
            outputs=self.tensors(tree_of(node, "tensors")),
            conditions=self._conditions(node),
            statements=tuple(self.build_all(trees_of(node, "statement"))),
            doc=self.doc(node),
            span=self.span(node),
        )

    def fn(self, node: Node) -> FunctionDecl:
        clauses = [tree_at(clause, 0) for clause in trees_of(node, "fn_clause")]
        self._check_clauses(trees_of(node, "fn_clause"))
        derivatives = [clause for clause in clauses if clause.data in ("derivative", "surrogate")]
        self.distinct([token_at(clause, 1) for clause in derivatives], "the derivative by")
        calls = {clause.data: self.build(clause) for clause in clauses if clause.data in ("torch", "numpy")}
        names = tree_of(node, "names")
        assert names is not None
        equals = tokens_of(node, "EQUAL")
        return FunctionDecl(
            str(tokens_of(node, "NAME")[0]),
            parameters=self.names(names),
            definition=self.build(tree_at(node, node.children.index(equals[0]) + 1)) if equals else None,
            derivatives=tuple((str(token_at(clause, 1)), self.build(tree_at(clause, 3))) for clause in derivatives),
            torch=calls.get("torch"),
            numpy=calls.get("numpy"),
            facts=tuple(self.build(clause) for clause in clauses if clause.data == "fact"),
            surrogates=tuple(str(token_at(clause, 1)) for clause in derivatives if clause.data == "surrogate"),
            doc=self.doc(node),
            span=self.span(node),
        )

    def _check_clauses(self, clauses: list[Node]) -> None:
        first: dict[str, Node] = {}
        for clause in clauses:
            inner = tree_at(clause, 0)
            kind = _keyword(inner)
            if kind not in ("derivative", "surrogate", "fact") and kind in first:
                note = Label(self.at(token_at(first[kind], 0)), "first here")
                raise fail("E024", f"`{kind}` is given twice", self.at(token_at(inner, 0)), notes=[note])
            first[kind] = inner

    def _conditions(self, node: Node) -> tuple[Expr, ...]:
        return tuple(condition for where in trees_of(node, "where") for condition in self.build_all(where.children))

    def operands(self, node: Node | None) -> tuple[TensorDecl, ...]:
        return () if node is None else self.tensors(tree_of(node, "tensors"))

    def tensors(self, node: Node | None) -> tuple[TensorDecl, ...]:
        return () if node is None else tuple(self.build_all(node.children))

    def tensor(self, node: Node) -> TensorDecl:
        name, *integer_range = tokens_of(node, "NAME")
        dims = tree_of(node, "dims")
        return TensorDecl(
            str(name),
            () if dims is None else tuple(dim for part in self.build_all(dims.children) for dim in part),
            str(integer_range[0]) if integer_range else None,
            span=self.span(node),
        )

    def dim(self, node: Node) -> tuple[DimDecl]:
        (name,) = tokens_of(node, "NAME")
        broadcast = bool(tokens_of(node, "BROADCAST"))
        rest = broadcast or bool(tokens_of(node, "REST"))
        return (DimDecl(str(name), rest, broadcast, device=name is not node.children[0], span=self.span(node)),)

    def merged(self, node: Node) -> tuple[DimDecl, ...]:
        """The axes of one dimension, major first."""
        names = tokens_of(node, "NAME")
        return tuple(DimDecl(str(name), joined=place > 0, span=self.at(name)) for place, name in enumerate(names))

    def names(self, node: Node) -> tuple[str, ...]:
        names = tokens_of(node, "NAME")
        self.distinct(names, "the name")
        return tuple(str(name) for name in names)

    def attributes(self, node: Node | None) -> tuple[AttributeDecl, ...]:
        if node is None:
            return ()
        self.distinct([token_at(attribute, 0) for attribute in trees_of(node, "attribute")], "the attribute")
        return tuple(self.build_all(node.children))

    def attribute(self, node: Node) -> AttributeDecl:
        default = tree_of(node, "number")
        value = None if default is None else self.number(default).value
        return AttributeDecl(str(token_at(node, 0)), value, span=self.span(node))

    def derivative(self, node: Node) -> Expr:
        expr: Expr = self.build(tree_at(node, 3))
        return expr

    surrogate = derivative

    def fact(self, node: Node) -> FactDecl:
        claim = self.comparison(tree_at(node, 1))
        wheres = trees_of(node, "where")
        conditions = [self.comparison(part) for where in wheres for part in trees_of(where, "comparison")]
        return FactDecl(claim, tuple(conditions), span=self.span(node))

    def declared(self, node: Node) -> tuple[Name | DeviceName, ...]:
        listed = tree_at(node, 2)
        self.distinct([name for axis in trees_of(listed, "axis") for name in tokens_of(axis, "NAME")], "the axis")
        return self.axes(listed)

    def torch(self, node: Node) -> NativeCall:
        return self.call(tree_at(node, 2))

    def torch_steps(self, node: Node) -> NativeSteps:
        steps = trees_of(node, "torch_step")
        self.distinct([token_at(step, 0) for step in steps], "the name")
        calls = tuple((str(token_at(step, 0)), self.call(tree_at(step, 2))) for step in steps)
        return NativeSteps(calls, span=self.span(node))

    def numpy(self, node: Node) -> NativeCall:
        return self.call(tree_at(node, 2))

    def statement(self, node: Node) -> Statement:
        equals = node.children.index(tokens_of(node, "EQUAL")[0])
        return Statement(
            str(token_at(node, 0)),
            self.axes(tree_of(node, "axes")),
            self.build(tree_at(node, equals + 1)),
            span=self.span(node),
        )

    def axes(self, node: Node | None) -> tuple[Name | DeviceName, ...]:
        return () if node is None else tuple(self.build_all(node.children))

    def axis(self, node: Node) -> Name | DeviceName:
        (name,) = tokens_of(node, "NAME")
        if name is not node.children[0]:
            return DeviceName(str(name), span=self.span(node))
        return Name(str(name), rest=bool(tokens_of(node, "REST")), span=self.span(node))

    # ---------------------------------------------------------------- expressions

    binary = Builder.arithmetic
    negative = Builder.negation

    def comparison(self, node: Node) -> Apply:
        return self.arithmetic(node)

    def iverson(self, node: Node) -> Apply:
        condition = self.comparison(tree_at(node, 1))
        return Apply(condition.function, condition.arguments, span=self.span(node))

    def reduce(self, node: Node) -> Reduce:
        kind = ReductionKind(token_at(node, 0))
        body = self.build(tree_at(node, len(node.children) - 1))
        return Reduce(kind, self.axes(tree_at(node, 2)), body, self._ties(kind, node), span=self.span(node))

    def _ties(self, kind: ReductionKind, node: Node) -> Ties:
        """How ties are broken, as written after the axes: `; ties = first`."""
        if not (names := tokens_of(node, "NAME")):
            return Ties.SHARE
        name, value = names
        if kind not in (ReductionKind.MAX, ReductionKind.MIN) or name != "ties":
            help = "`max` and `min` may say `ties = first` or `ties = share`"
            raise fail("E010", f"`{kind}` has no `{name}`", self.at(name), help=help)
        if value not in tuple(Ties):
            help = suggest(value, tuple(Ties)) or "`first` or `share`"
            raise fail("E010", f"ties are not broken by `{value}`", self.at(value), help=help)
        return Ties(value)

    def infinity(self, node: Node) -> Number:
        return Number(float("inf"), span=self.span(node))

    def size(self, node: Node) -> Size:
        return Size(str(token_at(node, 1)), rest=bool(tokens_of(node, "REST")), span=self.span(node))

    def device(self, node: Node) -> DeviceName:
        return DeviceName(str(token_at(node, 1)), span=self.span(node))

    def rest(self, node: Node) -> Name:
        return Name(str(token_at(node, 0)), rest=True, span=self.span(node))

    def read(self, node: Node) -> Read:
        otherwise = tokens_of(node, "ELSE")
        fill = self.build(tree_at(node, node.children.index(otherwise[0]) + 1)) if otherwise else None
        return Read(str(token_at(node, 0)), self._indices(node), fill, span=self.span(node))

    def uniform(self, node: Node) -> Uniform:
        return Uniform(self._indices(node), span=self.span(node))

    def _indices(self, node: Node) -> tuple[Expr, ...]:
        indices = tree_of(node, "indices")
        return () if indices is None else tuple(self.build_all(indices.children))

    def apply(self, node: Node) -> Apply:
        arguments = tree_of(node, "arguments")
        values = () if arguments is None else tuple(self.build_all(arguments.children))
        return Apply(str(token_at(node, 0)), values, span=self.span(node))

    def select(self, node: Node) -> Select:
        condition, then, otherwise = self.build_all(node.children)
        return Select(condition, then, otherwise, span=self.span(node))

    # ---------------------------------------------------------------- native calls

    def call(self, node: Node) -> NativeCall:
        arguments = tree_of(node, "call_arguments")
        positional: list[NativeArgument] = []
        keywords: list[tuple[Token, NativeArgument]] = []
        for argument in [] if arguments is None else trees_of(arguments, "call_argument", "keyword"):
            if argument.data == "keyword":
                keywords.append((token_at(argument, 0), self.build(tree_at(argument, 2))))
            elif keywords:
                message = "a positional argument after a named one"
                raise fail("E010", message, self.span(argument), label="move it to the front")
            else:
                positional.append(self.build(tree_at(argument, 0)))
        self.distinct([key for key, _ in keywords], "the argument")
        return NativeCall(
            str(token_at(node, 0)),
            tuple(positional),
            tuple((str(key), value) for key, value in keywords),
            span=self.span(node),
        )

    def native_list(self, node: Node) -> NativeList:
        items = tree_of(node, "natives")
        return NativeList(() if items is None else tuple(self.build_all(items.children)), span=self.span(node))

    def string(self, node: Node) -> NativeString:
        return NativeString(str(token_at(node, 0))[1:-1], span=self.span(node))

    def number(self, node: Node) -> Number:
        negative = bool(tokens_of(node, "MINUS"))
        token = [child for child in node.children if isinstance(child, Token)][-1]
        return Number(self.literal(token, negative), span=self.span(node))


def _keyword(clause: Node) -> str:
    """The word that a clause begins with."""
    return str(token_at(clause, 0))
