"""Tokenises source text: comments are separated, lines are joined inside brackets, and indentation becomes block
tokens.

Everything that needs no grammar is refused here, at the place of the fault: foreign characters, tabs, a dedent to
nowhere, brackets that do not match, and depth. Depth is bounded before parsing (E005). All later stages recurse over
trees, and none can overflow the stack on an input that parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters

from .diagnostic import InputError, Label, fail
from .span import Source, Span

MAX_NESTING = 64  # open brackets plus open blocks
MAX_OPERATORS = 128  # operators of one logical line, hence the depth of a chain `a + b + …`

CLOSING = {"(": ")", "[": "]"}
_CLOSED = frozenset(CLOSING.values())
INSTEAD = {
    "@": "the product of two matrices is `matmul(a, b)`",
    "|": "the size of a dimension is written as its bare name",
    "&": "conditions are separated by commas",
    "→": "an arrow is written `->`",
    "⇒": "the sides of a rule are joined by `=>`",
    "≠": "unequal is written `!=`",
    "≤": "at most is written `<=`",
    "≥": "at least is written `>=`",
    "×": "a product is written `*`",
    "·": "a product is written `*`",
}
"""How the language writes characters of formulas and of other languages."""
OPERATORS = frozenset({"+", "-", "*", "/", "//", "%", "sum", "prod", "max", "min"})


@dataclass(frozen=True)
class Layout:
    """The tokens that the parser sees (with `_NL`, `_INDENT`, `_DEDENT`), and the comments that it does not."""

    source: Source
    tokens: tuple[Token, ...]
    comments: tuple[Token, ...]


def lay_out(source: Source, lexer: Lark, part: Span | None = None) -> Layout:
    """Tokens and comments of a source, or of the whole lines `part` of it. Raises E005 to E009 and E011.

    Tokens keep their offsets in the source; only their line numbers count from the beginning of the part.
    """
    part = part or Span(source, 0, len(source.text))
    run = _Run(part)
    for token in _lex(part, lexer):
        run.take(token)
    run.finish()
    return Layout(source, tuple(run.tokens), tuple(run.comments))


def is_word(token: Token) -> bool:
    """Whether a token stands for text, and not for the layout or the end."""
    return token.type not in ("_NL", "_INDENT", "_DEDENT", "$END")


def token_span(source: Source, token: Token) -> Span:
    """The place of a token. Block tokens are empty spans where the block begins or ends."""
    start = token.start_pos or 0
    return Span(source, start, start if token.end_pos is None else token.end_pos)


def _lex(part: Span, lexer: Lark) -> Iterator[Token]:
    # One blank line of the same length replaces the text before the part.
    before = " " * (part.start - 1) + "\n" if part.start else ""
    try:
        yield from lexer.lex(before + part.text)
    except UnexpectedCharacters as error:
        assert error.pos_in_stream is not None
        strings = any(terminal.name == "STRING" for terminal in lexer.terminals)
        raise _foreign_character(part.source, error.pos_in_stream, strings) from None


def _foreign_character(source: Source, offset: int, strings: bool) -> InputError:
    char = source.text[offset]
    span = Span(source, offset, offset + 1)
    if char in "\"'" and strings:
        help = 'in a `torch:` line a string stands in double quotes: `approximate="tanh"`'
        return fail("E006", "this is no string", span, label="unexpected quote", help=help)
    if char in "\"'":
        return fail("E006", "the language has no strings", span, label="unexpected quote")
    if char.isprintable():
        help = INSTEAD.get(char, "")
        return fail("E006", f"unexpected character `{char}`", span, label="not part of the language", help=help)
    named = "a no-break space" if char == "\xa0" else f"an invisible character, U+{ord(char):04X}"
    return fail("E006", f"unexpected character: {named}", span, label="not part of the language", help="delete it")


@dataclass
class _Run:
    """The state of one pass over the tokens."""

    part: Span
    tokens: list[Token] = field(default_factory=list)
    comments: list[Token] = field(default_factory=list)
    indents: list[int] = field(default_factory=lambda: [0])
    brackets: list[Token] = field(default_factory=list)
    operators: int = 0
    line_open: bool = False  # a logical line has begun and its newline is still to come

    @property
    def source(self) -> Source:
        return self.part.source

    def take(self, token: Token) -> None:
        if token.type == "NEWLINE":
            if self.line_open and not self.brackets:
                self._end_line(token)
        elif token.type == "COMMENT":
            self.comments.append(token)
        else:
            if not self.line_open:
                self._begin_line(token)
            self._count(token)
            self.tokens.append(token)

    def finish(self) -> None:
        end = self.part.end
        last = Token("_NL", "", end, end_pos=end)
        if self.brackets:
            raise unclosed(self.source, self.brackets[-1])
        if self.line_open:
            self._end_line(last)
        self._close_blocks(0, last)

    def _begin_line(self, token: Token) -> None:
        self._check_tabs(token)
        self.line_open = True
        self.operators = 0
        indent = (token.column or 1) - 1
        if indent > self.indents[-1]:
            self.indents.append(indent)
            self._check_depth(token)
            self.tokens.append(_block_token("_INDENT", token))
        elif indent in self.indents:
            self._close_blocks(indent, token)
        else:
            raise self._dedent_to_nowhere(token, indent)

    def _end_line(self, token: Token) -> None:
        self.tokens.append(_block_token("_NL", token))
        self.line_open = False

    def _close_blocks(self, indent: int, at: Token) -> None:
        while indent < self.indents[-1]:
            self.indents.pop()
            self.tokens.append(_block_token("_DEDENT", at))

    def _count(self, token: Token) -> None:
        if token in CLOSING:
            self.brackets.append(token)
            self._check_depth(token)
        elif token in _CLOSED:
            self._close_bracket(token)
        elif token in OPERATORS:
            self.operators += 1
            if self.operators > MAX_OPERATORS:
                raise self._too_large(token, f"more than {MAX_OPERATORS} operators in one statement", "one too many")

    def _close_bracket(self, token: Token) -> None:
        here = token_span(self.source, token)
        if not self.brackets:
            raise fail("E011", f"`{token}` closes nothing", here, label="no bracket is open here")
        opening = self.brackets.pop()
        if CLOSING[str(opening)] != token:
            note = Label(token_span(self.source, opening), "opened here")
            wanted = CLOSING[str(opening)]
            raise fail("E011", f"`{opening}` is closed by `{token}`", here, label=f"expected `{wanted}`", notes=[note])

    def _check_depth(self, token: Token) -> None:
        if len(self.brackets) + len(self.indents) - 1 > MAX_NESTING:
            what = "brackets and blocks are" if self.brackets and len(self.indents) > 1 else "this is"
            raise self._too_large(token, f"{what} nested more than {MAX_NESTING} deep", "one level too many")

    def _too_large(self, token: Token, message: str, label: str) -> InputError:
        help = "name intermediate results on lines of their own"
        return fail("E005", message, token_span(self.source, token), label=label, help=help)

    def _check_tabs(self, token: Token) -> None:
        offset = token.start_pos or 0
        start = offset - (token.column or 1) + 1
        tab = self.source.text.find("\t", start, offset)
        if tab >= 0:
            span = Span(self.source, tab, tab + 1)
            raise fail(
                "E007", "tab in the indentation", span, label="a tab has no width here", help="indent with spaces"
            )

    def _dedent_to_nowhere(self, token: Token, indent: int) -> InputError:
        allowed = ", ".join(str(level) for level in self.indents[:-1]) + f" and {self.indents[-1]}"
        return fail(
            "E008",
            "this line's indentation belongs to no block",
            token_span(self.source, token),
            label=f"indented by {indent}",
            help=f"the blocks that are open here are indented by {allowed}",
        )


def unclosed(source: Source, opening: Token) -> InputError:
    """The fault of a bracket that is never closed."""
    wanted = CLOSING[str(opening)]
    return fail("E009", f"`{opening}` is never closed", token_span(source, opening), label=f"`{wanted}` is missing")


def _block_token(kind: str, at: Token) -> Token:
    """An empty layout token before another token."""
    return Token(kind, "", at.start_pos, at.line, at.column, at.line, at.column, at.start_pos)
