"""Rules that the search must not use, by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..resources import folder
from ..syntax.diagnostic import fail, suggest
from ..syntax.parse_rules import parse_rules
from ..syntax.read import read_source
from ..syntax.span import Source


def check_forbidden(names: Sequence[str], given: Iterable[Source]) -> None:
    """Checks that each name is a rule of the `given` texts or of a shipped file. Raises E541 for any other name."""
    if not names:
        return
    shipped = map(read_source, sorted(folder("rules").glob("*.rules")))
    known = {rule.name for source in (*given, *shipped) for rule in parse_rules(source).rules}
    for name in names:
        if name not in known:
            hint = suggest(name, known) or "`unityc rules list` names the shipped ones"
            raise fail("E541", f"there is no rule called `{name}`", help=hint)
