"""Declarations from text, for tests."""

from __future__ import annotations

from unity_dsl.index.declarations.loading import library_of
from unity_dsl.index.library import Library
from unity_dsl.resources import folder
from unity_dsl.syntax.ast import OperatorDecl, ParallelDecl
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

FUNCTIONS = read_source(folder("ops") / "functions.uop")


def declare(text: str) -> Library:
    """The declarations of a text, with the shipped element functions."""
    return library_of([FUNCTIONS, Source("test.uop", text)])


def operator(text: str) -> OperatorDecl:
    """The only operator of a text."""
    (found,) = declare(text).operators.values()
    return found


def parallel(text: str) -> ParallelDecl:
    (found,) = declare(text).parallels.values()
    return found
