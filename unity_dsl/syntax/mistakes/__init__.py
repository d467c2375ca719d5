"""Broken snippets and what is wrong with them. They choose the words of a syntax error and are the corpus of its test.

A snippet stands for every text that stops the parser in the same state; see `diagnose`.
"""

from __future__ import annotations

from .mistake import Mistake
from .models import UDL
from .operators import UOP
from .rules import RULES

__all__ = ["MISTAKES", "Mistake"]

MISTAKES = {"uop": UOP, "udl": UDL, "rules": RULES}
