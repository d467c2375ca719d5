"""Parser of `.udl`: blocks and a model."""

from __future__ import annotations

from .ast import (
    Assign,
    Binary,
    BlockDecl,
    Call,
    Collect,
    Cond,
    Expr,
    If,
    Initialiser,
    Loss,
    ModelChoice,
    ModelDecl,
    ModelExpr,
    ModelFile,
    ModelStatement,
    Name,
    Number,
    Output,
    Parameter,
    Pattern,
    PatternFactor,
    Precision,
    Preset,
    Repeat,
    Return,
    Scan,
    Slices,
    Storage,
    StorageDecl,
    TypeExpr,
    UpdateStatement,
    View,
)
from .diagnostic import Label, fail, suggest
from .grammar import Node
from .parse import parse
from .span import Source, Span
from .tree_builder import Builder, token_at, tokens_of, tree_at, tree_of, trees_of

DTYPES = ("f64", "f32", "bf16", "f16")
INITIALISERS = {
    "normal": ("std",),
    "uniform": ("low", "high"),
    "zeros": (),
    "ones": (),
    "constant": ("value",),
    "fan_in_normal": ("gain",),
    "fan_in_uniform": ("gain",),
    "fan_out_normal": ("gain",),
    "xavier_uniform": (),
    "kaiming_uniform": (),
}
# Which statements a body may hold, by the rule that the body belongs to. Any body may hold the others.
ALLOWED = {
    "model": frozenset({"preset", "precision", "storage", "loss", "output"}),
    "block": frozenset({"storage", "return_"}),
    "repeat": frozenset({"storage"}),
    "scan": frozenset({"storage", "collect"}),
    "cond": frozenset({"storage"}),
    "if": frozenset({"storage"}),
}


def parse_model(source: Source) -> ModelFile:
    """The blocks and the model of a `.udl` text. Raises InputError, codes E005 to E029."""
    layout, tree = parse(source, "udl")
    return _ModelBuilder(layout).file(tree)


class _ModelBuilder(Builder):
    """One method per rule of grammar/udl.lark."""

    # ---------------------------------------------------------------- declarations

    def file(self, node: Node) -> ModelFile:
        span = Span(self.source, 0, len(self.source.text))
        blocks = tuple(self.build_all(trees_of(node, "block")))
        models = trees_of(node, "model")
        if not models:
            raise fail(
                "E020", "the file declares no model", Span(self.source, 0, 0), help="add `model NAME` with a loss"
            )
        if len(models) > 1:
            note = Label(self.at(token_at(models[0], 1)), "the first one is here")
            raise fail("E021", "a second model in one file", self.at(token_at(models[1], 1)), notes=[note])
        return ModelFile(blocks, self.model(models[0]), span=span)

    def model(self, node: Node) -> ModelDecl:
        parameters = self.parameters(tree_of(node, "parameters"))
        for parameter in parameters:
            if parameter.default is None:
                message = f"the model's parameter `{parameter.name}` has no default"
                raise fail("E026", message, parameter.span, help=f"write `{parameter.name} = 64`, say")
        body = tree_at(node, -1)
        statements = self.body(body, "model")
        presets = tuple(statement for statement in statements if isinstance(statement, Preset))
        return ModelDecl(
            str(token_at(node, 1)),
            parameters,
            presets,
            tuple(statement for statement in statements if not isinstance(statement, ModelChoice)),
            self._only_precision([statement for statement in statements if isinstance(statement, Precision)]),
            doc=self.doc(node),
            span=self.span(node),
        )

    def block(self, node: Node) -> BlockDecl:
        names = tree_of(node, "names")
        body = tree_at(node, -1)
        statements = self.body(body, "block")
        returns = [statement for statement in statements if isinstance(statement, Return)]
        if not returns:
            message = f"the block `{token_at(node, 1)}` returns nothing"
            raise fail("E023", message, self.at(token_at(node, 1)), help="end it with `return VALUE`")
        if statements[-1] is not returns[0]:
            raise fail("E023", "`return` is not the block's last line", returns[0].span, label="lines follow")
        return BlockDecl(
            str(token_at(node, 1)),
            self.parameters(tree_of(node, "parameters")),
            () if names is None else self.names(names),
            tuple(statement for statement in statements if not isinstance(statement, ModelChoice)),
            doc=self.doc(node),
            span=self.span(node),
        )

    def body(self, node: Node, owner: str) -> list[ModelStatement | ModelChoice]:
        """The statements of a block of lines. Raises E022 for one that does not belong there."""
        for child in trees_of(node, "preset", "precision", "storage", "collect", "return_", "loss", "output"):
            if child.data not in ALLOWED[owner]:
                word = token_at(child, 0)
                places = " or ".join(f"a {place}" for place, kinds in ALLOWED.items() if child.data in kinds)
                message = f"`{word}` inside {'an' if owner == 'if' else 'a'} {owner}"
                raise fail("E022", message, self.at(word), label=f"belongs directly into {places}")
            if owner != "model" and child.data == "storage" and token_at(child, 0) == "input":
                message = f"`input` inside {'an' if owner == 'if' else 'a'} {owner}"
                raise fail("E022", message, self.at(token_at(child, 0)), label="belongs directly into a model")
        return self.build_all(node.children)

    def parameters(self, node: Node | None) -> tuple[Parameter, ...]:
        if node is None:
            return ()
        self.distinct([token_at(parameter, 0) for parameter in trees_of(node, "parameter")], "the parameter")
        return tuple(self.build_all(node.children))

    def parameter(self, node: Node) -> Parameter:
        default = None if node.children[-1] is None else self.build(tree_at(node, 2))
        return Parameter(str(token_at(node, 0)), default, span=self.span(node))

    def names(self, node: Node) -> tuple[str, ...]:
        names = tokens_of(node, "NAME")
        self.distinct(names, "the name")
        return tuple(str(name) for name in names)

    def preset(self, node: Node) -> Preset:
        return Preset(str(token_at(node, 1)), self._settings(node), span=self.span(node))

    def precision(self, node: Node) -> Precision:
        return Precision(str(token_at(node, 1)), span=self.span(node))

    def _only_precision(self, found: list[Precision]) -> Precision | None:
        if len(found) > 1:
            assert found[0].span is not None
            note = Label(found[0].span, "first here")
            raise fail("E024", "the precision is given twice", found[1].span, notes=[note])
        return found[0] if found else None

    def _settings(self, node: Node | None) -> tuple[tuple[str, Expr], ...]:
        settings = [] if node is None else trees_of(node, "setting")
        self.distinct([token_at(setting, 0) for setting in settings], "the value of")
        return tuple((str(token_at(setting, 0)), self.build(tree_at(setting, 2))) for setting in settings)

    def storage(self, node: Node) -> StorageDecl:
        initialiser = tree_of(node, "initialiser")
        kind = Storage(token_at(node, 0))
        if kind is Storage.INPUT and initialiser is not None:
            raise fail("E027", "an input has no initialiser", self.span(initialiser), help="the caller gives its value")
        return StorageDecl(
            kind,
            str(token_at(node, 1)),
            self.build(tree_at(node, 3)),
            None if initialiser is None else self.initialiser(initialiser),
            span=self.span(node),
        )

    def tensor_type(self, node: Node) -> TypeExpr:
        dtype = token_at(node, 0)
        if dtype == "int":
            integer_range: Expr | None = self.build(tree_at(node, 2))
        elif dtype in DTYPES:
            integer_range = None
        else:
            known = f"dtypes are {', '.join(DTYPES)} and int<n>"
            label = suggest(dtype, (*DTYPES, "int"))
            raise fail("E025", f"unknown dtype `{dtype}`", self.at(dtype), label=label, help=known)
        dims = tree_of(node, "quantities")
        return TypeExpr(str(dtype), integer_range, self._quantities(dims), span=self.span(node))

    def _quantities(self, node: Node | None) -> tuple[Expr, ...]:
        return () if node is None else tuple(self.build_all(node.children))

    def initialiser(self, node: Node) -> Initialiser:
        name = token_at(node, 0)
        if name not in INITIALISERS:
            known = ", ".join(_signature(known) for known in INITIALISERS)
            label = suggest(name, INITIALISERS)
            raise fail("E027", f"unknown initialiser `{name}`", self.at(name), label=label, help=f"there are {known}")
        arguments = self._quantities(tree_of(node, "quantities"))
        if len(arguments) != len(INITIALISERS[name]):
            raise fail(
                "E027", f"wrong number of values for `{name}`", self.span(node), help=f"it is {_signature(name)}"
            )
        return Initialiser(str(name), arguments, span=self.span(node))

    # ---------------------------------------------------------------- statements

    def assign(self, node: Node) -> Assign:
        return Assign(self.names(tree_at(node, 0)), self.build(tree_at(node, 2)), span=self.span(node))

    def update(self, node: Node) -> UpdateStatement:
        return UpdateStatement(str(token_at(node, 1)), self.build(tree_at(node, 3)), span=self.span(node))

    def repeat(self, node: Node) -> Repeat:
        body = self._inner(tree_at(node, -1), "repeat")
        return Repeat(self.build(tree_at(node, 1)), str(token_at(node, 3)), body, span=self.span(node))

    def _inner(self, node: Node, owner: str) -> tuple[ModelStatement, ...]:
        """The statements in the body of a statement, without choices such as presets."""
        statements = self.body(node, owner)
        return tuple(statement for statement in statements if not isinstance(statement, ModelChoice))

    def scan(self, node: Node) -> Scan:
        parts = trees_of(node, "slices")
        self.distinct([token_at(part, 0) for part in parts], "the name")
        body = self._inner(tree_at(node, -1), "scan")
        return Scan(tuple(self.build_all(parts)), str(tokens_of(node, "NAME")[0]), body, span=self.span(node))

    def slices(self, node: Node) -> Slices:
        dim = self.build(tree_at(node, 4))
        return Slices(str(token_at(node, 0)), self.build(tree_at(node, 2)), dim, span=self.span(node))

    def collect(self, node: Node) -> Collect:
        dim = None if node.children[5] is None else self.build(tree_at(node, 5))
        return Collect(self.build(tree_at(node, 1)), str(token_at(node, 3)), dim, span=self.span(node))

    def cond(self, node: Node) -> Cond:
        expected = None if node.children[3] is None else self.build(tree_at(node, 3))
        name = str(tokens_of(node, "NAME")[0])
        body = self._inner(tree_at(node, -1), "cond")
        return Cond(self.build(tree_at(node, 1)), expected, name, body, span=self.span(node))

    def if_(self, node: Node) -> If:
        conditions = tuple(self.build_all(trees_of(node, "comparison")))
        otherwise = tree_of(node, "else_")
        body = self._inner(trees_of(node, "body")[0], "if")
        other = () if otherwise is None else self._inner(tree_at(otherwise, -1), "if")
        return If(conditions, body, other, span=self.at(token_at(node, 0)))

    comparison = Builder.arithmetic

    def return_(self, node: Node) -> Return:
        return Return(tuple(self.build_all(node.children)), span=self.span(node))

    def loss(self, node: Node) -> Loss:
        return Loss(self.build(tree_at(node, 1)), span=self.span(node))

    def output(self, node: Node) -> Output:
        value: ModelExpr = self.build(tree_at(node, 1))
        named = tokens_of(node, "NAME")
        if not named and not isinstance(value, Name):
            raise fail(
                "E028", "this output needs a name", self.span(tree_at(node, 1)), help="write `output VALUE as NAME`"
            )
        name = str(named[0]) if named else value.name if isinstance(value, Name) else ""
        return Output(value, name, span=self.span(node))

    # ---------------------------------------------------------------- tensors

    def binary(self, node: Node) -> Binary:
        left: ModelExpr = self.build(tree_at(node, 0))
        right: ModelExpr = self.build(tree_at(node, 2))
        return Binary(str(token_at(node, 1)), left, right, span=self.span(node))

    def negative(self, node: Node) -> ModelExpr:
        """`-x` is `-1 * x`; in front of a literal the minus is part of the literal."""
        inner: ModelExpr = self.build(tree_at(node, 1))
        if isinstance(inner, Number):
            return Number(-inner.value, span=self.span(node))
        return Binary("*", Number(-1, span=self.at(token_at(node, 0))), inner, span=self.span(node))

    def call(self, node: Node) -> Call:
        return self._call(node, [])

    def block_call(self, node: Node) -> Call:
        return self._call(node, trees_of(tree_at(node, 2), "setting"))

    def _call(self, node: Node, parameters: list[Node]) -> Call:
        arguments = tree_of(node, "arguments")
        after = trees_of(node, "settings")[1 if parameters else 0 :]
        settings = [*parameters, *(setting for group in after for setting in trees_of(group, "setting"))]
        self.distinct([token_at(setting, 0) for setting in settings], "the attribute")
        return Call(
            str(token_at(node, 0)),
            () if arguments is None else tuple(self.build_all(arguments.children)),
            tuple((str(token_at(setting, 0)), self.build(tree_at(setting, 2))) for setting in settings),
            span=self.span(node),
        )

    def view(self, node: Node) -> View:
        return self._view(node, self.build(tree_at(node, 0)))

    def name_view(self, node: Node) -> View:
        return self._view(node, self.name(node))

    def _view(self, node: Node, operand: ModelExpr) -> View:
        source, target = (self.pattern(pattern) for pattern in trees_of(node, "pattern"))
        return View(operand, source, target, span=self.span(node))

    def pattern(self, node: Node) -> Pattern:
        dims = tuple(tuple(self.build_all(dim.children)) for dim in trees_of(node, "pattern_dim"))
        return Pattern(dims, span=self.span(node) if dims else None)

    def plain_factor(self, node: Node) -> PatternFactor:
        return self.factor_entry(node)

    def factor_entry(self, node: Node) -> PatternFactor:
        token = token_at(node, 0)
        if token.type == "NUMBER":
            if not token.isdigit():
                raise fail("E010", f"`{token}` is not a size", self.at(token), label="expected a whole number")
            return PatternFactor(None, Number(self.literal(token), span=self.at(token)), span=self.at(token))
        trees = self.build_all(node.children)
        return PatternFactor(str(token), trees[0] if trees else None, span=self.span(node))

    # ---------------------------------------------------------------- numbers

    quantity_binary = Builder.arithmetic
    quantity_negative = Builder.negation


def _signature(name: str) -> str:
    parameters = INITIALISERS[name]
    return f"{name}({', '.join(parameters)})" if parameters else name
