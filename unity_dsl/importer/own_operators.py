"""Operators of a user's .uop files that replace torch operators of the same name, and how to declare one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from torch import Tensor
from torch.fx import Node

from ..index.declarations.loading import library_of, library_sources
from ..syntax.ast import OperatorDecl
from .translation import Entry, Prepared, Translation, Unsupported
from .views import View


def own_operators(files: Sequence[Path]) -> Mapping[str, OperatorDecl]:
    """The operators that these files or folders declare besides the library's. Raises E0xx and E1xx."""
    if not files:
        return {}
    shipped, every = (library_of(library_sources(extra)).operators for extra in ((), files))
    return {name: every[name] for name in every if name not in shipped}


def call_own(
    walk: Translation, declared: OperatorDecl, node: Node, args: Sequence[Entry], named: Mapping[str, Entry]
) -> Entry:
    """The result of a user's operator: tensors are its operands in order, numbers its attributes by name.

    Raises Unsupported for operands, attributes or results that it does not have.
    """
    given = {argument.name: entry for argument, entry in zip(_arguments(node), args, strict=False)} | {**named}
    tensors = [entry for entry in given.values() if isinstance(entry, View | Prepared | Tensor)]
    numbers = {name: entry for name, entry in given.items() if isinstance(entry, int | float)}
    known = [attribute.name for attribute in declared.attributes]
    if len(tensors) != len(declared.inputs) or any(one.integer_range is not None for one in declared.inputs):
        raise Unsupported(f"{len(tensors)} operands, of which `{declared.name}` takes {len(declared.inputs)} of floats")
    if others := [name for name in numbers if name not in known]:
        raise Unsupported(f"`{declared.name}` has no attribute `{others[0]}`")
    result = node.meta["val"]
    if not isinstance(result, Tensor):
        raise Unsupported("several results")
    return walk.make(declared.name, *map(walk.view, tensors), shape=tuple(result.shape), **numbers)


def stub_of(node: Node) -> str:
    """The first line of a declaration for a torch operator; empty where it does not return a single tensor."""
    result = node.meta.get("val")
    if not isinstance(result, Tensor):
        return ""
    operands, attributes = list[tuple[str, Tensor]](), list[str]()
    for argument, entry in zip(_arguments(node), node.args, strict=False):
        value = entry.meta.get("val") if isinstance(entry, Node) else entry
        if isinstance(value, Tensor):
            operands.append((argument.name, value))
        elif isinstance(value, int | float):
            attributes.append(argument.name)
    alike = all(tensor.shape == result.shape for _, tensor in operands)
    letters = dict[int, str]()

    def dims(tensor: Tensor) -> str:
        found = (letters.setdefault(size, ascii_lowercase[len(letters) % 26]) for size in tensor.shape)
        return "[a..]" if alike else f"[{', '.join(found)}]"

    told = ", ".join(f"{_plain(name)}: {dims(tensor)}" for name, tensor in operands)
    settings = f"; {', '.join(attributes)}" if attributes else ""
    name = str(node.target).removeprefix("aten.").partition(".")[0]
    return f"op {name.strip('_')}({told}{settings}) -> y: {dims(result)}"


def _plain(name: str) -> str:
    return "x" if name in ("self", "input") else name


def _arguments(node: Node) -> Sequence[Any]:
    target: Any = node.target
    return list(target._schema.arguments)
