"""Amounts of memory as users write them: `40GB`, `1.5 GiB`."""

from __future__ import annotations

import re

from ..syntax.diagnostic import fail, suggest
from ..written_figures import in_units

_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_TOLD = {unit: _UNITS[unit] for unit in ("GB", "MB", "kB")} | {"bytes": 1}
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")
_UPPER = {unit.upper(): unit for unit in _UNITS}


def parse_bytes(text: str) -> int:
    """Bytes of an amount, of at least one. Raises E312."""
    found = _AMOUNT.fullmatch(text)
    units = f"units are {', '.join(_UNITS)}: `40GB`"
    if found is None:
        raise fail("E312", f"`{text}` is not an amount of memory", help=units)
    number, unit = found.groups()
    if not unit:
        raise fail("E312", f"`{text}` has no unit", help=units)
    if unit.upper() not in _UPPER:
        raise fail("E312", f"`{unit}` is not a unit of memory", help=suggest(unit, _UNITS) or units)
    count = int(float(number) * _UNITS[_UPPER[unit.upper()]])
    if count < 1:
        raise fail("E312", f"`{text}` is less than a byte", help=units)
    return count


def describe_bytes(count: float) -> str:
    """Three significant digits in GB, MB or kB; fewer than 1000 bytes in full."""
    return in_units(round(count), _TOLD)
