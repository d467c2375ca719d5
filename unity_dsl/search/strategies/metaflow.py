"""Strategy `metaflow`: relaxed substitutions for one device, then data parallelism (Jia et al., SysML 2019).

As `taso`, but a model may cost up to 1.01 times the best, so that a more expensive model may lead to a cheaper one; 300
models are changed. Large graphs need no split: repeated layers are matched once.
"""

from __future__ import annotations

from .backtracking import Limits
from .strategy import Chosen, Space
from .taso import in_data_parallel, substituted

LIMITS = Limits(threshold=1.01, budget=300)


def metaflow(space: Space) -> Chosen:
    """The model that costs least on one device by MetaFlow's relaxed backtracking, then data parallel."""
    return in_data_parallel(space, *substituted(space, LIMITS), "metaflow")
