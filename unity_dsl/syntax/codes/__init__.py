"""Every diagnostic code with what it means: `unityc explain CODE` prints it.

E0xx reading and parsing, E1xx `.uop` declarations and calls of operators, E2xx `.udl` models, E3xx devices, machines,
pins, layouts and strategies, E4xx files of out/, E5xx `.rules` substitutions, E54x their proofs and certificates, E55x
files of rules of other systems, E60x modules of other frameworks. W3xx are warnings.
"""

from __future__ import annotations

from .certificates import CERTIFICATES
from .code import Code
from .imports import IMPORTS
from .models import MODELS
from .operators import OPERATORS
from .plans import PLANS
from .reading import READING
from .rule_files import RULE_FILES
from .rules import RULES
from .warnings import WARNINGS

__all__ = ["CODES", "Code"]

CODES: dict[str, Code] = READING | OPERATORS | MODELS | PLANS | RULES | CERTIFICATES | RULE_FILES | IMPORTS | WARNINGS
