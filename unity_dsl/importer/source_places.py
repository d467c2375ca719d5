"""The place of a captured call in the user's code: its module and its line."""

from __future__ import annotations

from torch.fx import Node

from . import whole_calls

MODULE = "module"
"""The key of a call's annotation with the path of its module, for modules that are not torch's."""


def module_path(node: Node) -> tuple[str, ...]:
    """The path of the module that makes a call, relative to the root module."""
    if told := (node.meta.get("custom") or {}).get(MODULE):
        return tuple(told.split("."))
    stack = node.meta.get("nn_module_stack") or {}
    last = list(stack.values())[-1][0] if stack else ""
    return tuple(part.partition("@")[0] for part in last.split(".") if part)


def source_line(node: Node) -> str:
    """The line of the user's code that made a call: `model.py:31`."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    lines = [line for line in lines if line.startswith("File ") and whole_calls.__file__ not in line]
    if not lines:
        return ""
    file, _, rest = lines[-1].removeprefix('File "').partition('", line ')
    return f"{file.rpartition('/')[2]}:{rest.partition(',')[0]}"
