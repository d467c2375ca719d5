"""Reads and classifies small rule files under a reading."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from unity_dsl.index.library import Library
from unity_dsl.rules.audit.classification import Finding, classify
from unity_dsl.rules.audit.file_rules import RuleFile
from unity_dsl.rules.audit.formats import FORMATS
from unity_dsl.rules.audit.reading import Reading, chosen_reading
from unity_dsl.rules.audit.rule_file import read_rule_file


def read(data: bytes | str) -> RuleFile:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "given"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return read_rule_file(path)


def reading_of(file: RuleFile, *choices: str) -> Reading:
    return chosen_reading(FORMATS[file.format], choices)


@cache
def library_of_format(name: str) -> Library:
    return chosen_reading(FORMATS[name], ()).library()


def classified(data: bytes | str, *choices: str) -> list[Finding]:
    file = read(data)
    reading, library = reading_of(file, *choices), library_of_format(file.format)
    return [classify(rule, reading, library) for rule in file.rules]
