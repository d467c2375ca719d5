"""The rules of a `.rules` text, each with the prover's answer."""

from __future__ import annotations

from ..index.library import Library
from ..prove.prove import NotProved, Refuted, prove_rule
from ..syntax.diagnostic import fail
from ..syntax.parse_rules import RuleDecl, parse_rules
from ..syntax.span import Source


def accept_rules(source: Source, library: Library) -> tuple[RuleDecl, ...]:
    """The rules of a text, all of them proved now. Raises E542 for one that is not, and InputError as `prove_rule`."""
    rules = parse_rules(source).rules
    for rule in rules:
        match prove_rule(rule, library):
            case Refuted(found):
                sizes = ", ".join(f"{name} = {size}" for name, size in found.sizes.items())
                place = f"at {list(found.position)} it is {found.left:g} on the left and {found.right:g} on the right"
                message = f"the rule `{rule.name}` is false: with {sizes}, {place}"
                raise fail("E542", message, rule.span)
            case NotProved(obligation, reason):
                raise fail("E542", f"the rule `{rule.name}` is not proved: {obligation}: {reason}", rule.span)
    return rules
