from .api.parallel_module import ParallelModule as ParallelModule
from .api.parallel_module import parallelize as parallelize
from .api.planned_model import PlannedModel as PlannedModel
from .api.planned_model import Report as Report
from .api.planned_model import compile as compile
from .commands.what_if import WhatIf as WhatIf
from .importer.block_calls import replaces as replaces
from .importer.blocks import Block as Block
from .syntax.diagnostic import InputError as InputError

__version__: str
