"""Turns a parse error into words: the most likely mistake.

Broken snippets represent kinds of errors, as in lark's match_examples. That function compares the whole depth of the
parser's stack, so a snippet would not match the same mistake in a second declaration or one bracket further in. Here,
the snippet wins whose stack agrees with the error's for the longest stretch from the top.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from lark import Token
from lark.lexer import PatternStr

from .diagnostic import InputError, Label, fail, suggest
from .grammar import Refusal, grammar, parse_tree
from .mistakes import MISTAKES, Mistake
from .span import Source, Span
from .token_lines import Layout, is_word, lay_out, token_span, unclosed

COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "%"})
VALUES = frozenset({"NAME", "NUMBER"})
DESCRIPTIONS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "DOTTED": "a dotted name",
    "_NL": "the end of the line",
    "_INDENT": "indented lines",
    "_DEDENT": "the end of the block",
    "$END": "the end of the file",
}


@dataclass(frozen=True)
class _Example:
    states: tuple[int, ...]
    token: str
    mistake: Mistake


def diagnose(refusal: Refusal, layout: Layout, language: str) -> InputError:
    """The diagnostic of a token that the grammar does not allow where it stands. Codes E009 to E029."""
    case = _Case(refusal, layout, language)
    return (
        case.unclosed_bracket()
        or case.missing_body()
        or case.unexpected_indent()
        or case.known_mistake(exact=True)
        or case.keyword_as_name()
        or case.known_mistake(exact=False)
        or case.misspelt_keyword()
        or case.missing_parentheses()
        or case.missing_value()
        or case.missing_separator()
        or case.anything_else()
    )


def match(refusal: Refusal, language: str, *, exact: bool) -> Mistake | None:
    """The mistake whose snippet stopped the parser in the most similar state; if `exact`, at the same kind of token."""
    longest = 0
    found: Mistake | None = None
    for example in _examples(language):
        if example.token == _kind(refusal.token) or (example.mistake.any_token and not exact):
            length = _common_suffix(example.states, refusal.states)
            if length > longest:
                longest, found = length, example.mistake
    return found


@cache
def _examples(language: str) -> tuple[_Example, ...]:
    examples = []
    for mistake in MISTAKES[language]:
        for snippet in mistake.snippets:
            refusal = parse_tree(lay_out(Source("snippet", snippet), grammar(language)), language)
            assert isinstance(refusal, Refusal), snippet
            examples.append(_Example(refusal.states, _kind(refusal.token), mistake))
    return tuple(examples)


def _kind(token: Token) -> str:
    """The kind of a token. Tokens of one kind cause the same mistake."""
    if token in COMPARISONS:
        return "comparison"
    return "arithmetic" if token in ARITHMETIC else token.type


def _common_suffix(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    length = 0
    for a, b in zip(reversed(left), reversed(right), strict=False):
        if a != b:
            break
        length += 1
    return length


@cache
def terminal_texts(language: str) -> dict[str, str]:
    """The text of every terminal with a fixed spelling: the keywords of a language and its signs."""
    terminals = grammar(language).terminals
    return {t.name: t.pattern.value for t in terminals if isinstance(t.pattern, PatternStr)}


@dataclass(frozen=True)
class _Case:
    """One refused token. Each method returns one explanation of it, or None where that does not apply."""

    refusal: Refusal
    layout: Layout
    language: str

    @property
    def source(self) -> Source:
        return self.layout.source

    @property
    def token(self) -> Token:
        return self.refusal.token

    @property
    def span(self) -> Span:
        """The refused token; if it is the end of a line or a block, the place after the last word."""
        if self.token.type == "_INDENT":
            return token_span(self.source, self.layout.tokens[self.refusal.position + 1])
        if not is_word(self.token):
            previous = self.previous
            end = 0 if previous is None else previous.end_pos or 0
            return Span(self.source, end, end)
        return token_span(self.source, self.token)

    @property
    def previous(self) -> Token | None:
        """The last word before the refused token."""
        before = self.layout.tokens[: self.refusal.position]
        return next((token for token in reversed(before) if is_word(token)), None)

    @property
    def accepts(self) -> frozenset[str]:
        return self.refusal.accepts

    def known_mistake(self, exact: bool) -> InputError | None:
        mistake = match(self.refusal, self.language, exact=exact)
        if mistake is None:
            return None
        return fail(mistake.code, mistake.message, self.span, label=mistake.label, help=mistake.help)

    def unclosed_bracket(self) -> InputError | None:
        """A refused word begins a line, inside a bracket that an earlier line opens."""
        opening: list[Token] = []
        for token in self.layout.tokens[: self.refusal.position]:
            if token in ("(", "["):
                opening.append(token)
            elif token in (")", "]"):
                opening.pop()
        previous = self.previous
        if not opening or previous is None or (self.token.line or 0) <= (previous.line or 0):
            return None
        error = unclosed(self.source, opening[-1]).diagnostic
        return InputError(replace(error, notes=(Label(self.span, "this line is read as part of it"),)))

    def missing_body(self) -> InputError | None:
        if self.accepts != {"_INDENT"}:
            return None
        header = self.previous
        assert header is not None
        first = next(token for token in self.layout.tokens if token.line == header.line and is_word(token))
        span = token_span(self.source, first)
        return fail("E013", f"this `{first}` has no body", span, label="expected indented lines below")

    def unexpected_indent(self) -> InputError | None:
        if self.token.type != "_INDENT":
            return None
        arrow = self.layout.tokens[self.refusal.position + 1] == "=>"
        help = "`=>` on a line of its own is indented as the line above it" if arrow else ""
        return fail("E014", "unexpected indentation", self.span, label="indented deeper than the line above", help=help)

    def keyword_as_name(self) -> InputError | None:
        """`weight loss: …`, and `output = …`, where the keyword is the previous word."""
        word: Token | None = self.token
        if self.token == "=":
            word = self.previous
        elif "NAME" not in self.accepts:
            return None
        if word is None or word.type not in terminal_texts(self.language) or not word.isalpha():
            return None
        return fail("E012", f"`{word}` is a keyword", token_span(self.source, word), label="cannot be a name")

    def misspelt_keyword(self) -> InputError | None:
        """`wieght w: …`: the word that begins the line is nearly a keyword that may begin one."""
        tokens = self.layout.tokens
        start = self.refusal.position
        while start > 0 and is_word(tokens[start - 1]):
            start -= 1
        first = (*tokens, self.token)[start]
        if first.type != "NAME" or self.refusal.position - start > 1:
            return None
        hint = suggest(str(first), _line_keywords(self.language))
        span = token_span(self.source, first)
        return fail("E010", f"unknown keyword `{first}`", span, label=hint) if hint else None

    def missing_parentheses(self) -> InputError | None:
        """`relu x` in a rule, outside brackets, where no keyword was meant."""
        names = self.language == "rules" and self.token.type == "NAME" and "LPAR" in self.accepts
        if not names or self.previous is None or self.previous.type != "NAME":
            return None
        message, help = (
            f"the operands of `{self.previous}` stand in parentheses",
            f"write `{self.previous}({self.token})`",
        )
        return fail("E010", message, self.span, label="expected `(`", help=help)

    def missing_value(self) -> InputError | None:
        if not self.accepts >= VALUES or self.token.type in VALUES:
            return None
        after = f" after `{self.previous}`" if self.previous is not None else ""
        return fail("E010", f"a value is missing{after}", self.span, label="expected a value")

    def missing_separator(self) -> InputError | None:
        starts_value = self.token.type in VALUES or self.token in ("(", "[", "@", "|")
        if not starts_value or "PLUS" not in self.accepts or self.previous is None:
            return None
        wanted = "`,` or an operator" if "COMMA" in self.accepts else "an operator"
        return fail("E010", f"{wanted} is missing after `{self.previous}`", self.span, label=f"expected {wanted}")

    def anything_else(self) -> InputError:
        named = f"`{self.token}`" if is_word(self.token) else DESCRIPTIONS[self.token.type]
        return fail("E010", f"unexpected {named}", self.span, label=f"expected {self._expected()}")

    def _expected(self) -> str:
        """The tokens that are allowed here: words and signs as they are written, families of tokens by name."""
        texts = terminal_texts(self.language)
        written = {texts.get(name, "") for name in self.accepts}
        names: list[str] = []
        if written >= {"+", "*"}:
            names.append("an operator")
            written -= ARITHMETIC
        if written & COMPARISONS == COMPARISONS:
            names.append("a comparison")
            written -= COMPARISONS
        names += [f"`{text}`" for text in sorted(written - {""})]
        names += [text for kind, text in DESCRIPTIONS.items() if kind in self.accepts]
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


@cache
def _line_keywords(language: str) -> tuple[str, ...]:
    """The keywords that begin a line."""
    words = {
        "uop": ("op", "parallel", "fn", "where", "eval", "derivative", "surrogate", "fact", "torch", "numpy"),
        "udl": ("model", "block", "preset", "input", "weight", "buffer", "repeat", "if", "return", "loss", "output"),
        "rules": ("rule", "where"),
    }
    return words[language]
