"""Reads the values of options that several commands have."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from math import inf

import click


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """`d=64` as a name and the text of its value, which the model's parameter then reads. Raises E024 if a name has two
    values.
    """
    from ..syntax.diagnostic import fail

    found: dict[str, str] = {}
    for text in texts:
        name, value = _parse_setting(text)
        if found.setdefault(name, value) != value:
            help = "give each parameter one value"
            raise fail("E024", f"`{name}` is set twice, to {found[name]} and to {value}", help=help)
    return found


def _parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise click.BadParameter(f"`{text}` is not NAME=VALUE", param_hint="--set")
    return name.strip(), value.strip()


def parse_mesh(text: str | None) -> tuple[int, ...] | None:
    """`2,4` or `2x4` as degrees."""
    if text is None:
        return None
    try:
        return tuple(int(degree) for degree in text.replace("x", ",").split(","))
    except ValueError:
        raise click.BadParameter(f"`{text}` is not a list of numbers such as 2,4", param_hint="--mesh") from None


def parse_seconds(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """A positive and finite number of seconds; the callback of an option."""
    if text is None:
        return None
    with suppress(ValueError):
        seconds = float(text)
        if 0 < seconds < inf:
            return seconds
    raise click.BadParameter(f"`{text}` is not a positive number of seconds", param=option)
