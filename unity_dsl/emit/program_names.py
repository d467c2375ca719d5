"""Names in an emitted program: what the user's names become, and which are reserved."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable
from keyword import iskeyword, issoftkeyword

PROGRAM_NAMES = frozenset({
    "self", "model", "nn", "torch", "F", "Tensor", "parallel", "hashlib", "DeviceMesh", "NamedTuple", "Path", "Model",
    "offload",
    "MESH", "WORLD_SIZE", "INPUTS", "PARAMETERS", "BUFFERS", "MODEL", "DTYPE", "CUTS", "factory", "inputs",
    "COMPUTE_DTYPE", "PARTS", "MICRO_BATCHES", "DIVIDED", "LOSS_DIVISOR", "BATCH", "Iterator",
    "at_least", "drawn", "mixed", "places", "uniform", "Einsum", "Factory", "Surrogate", "of_factor", "surrogate",
    "positions", "build_mesh", "check_mesh", "checked", "initial", "init_device_mesh", "TensorSpec",
    "Constants", "Recomputation", "checkpoint", "nullcontext", "Callable", "stored_buffers", "restore",
    "TF32", "set_tf32", "warnings",
    "ParameterSpec", "OutputSpec", "OUTPUTS", "Block", "name", "spec", "annotations", "declared",
})  # fmt: skip
"""Names that the emitted module itself uses: no variable or class of a model may hide one of these."""

TORCH_TYPES = {
    "f64": "float64", "f32": "float32", "tf32": "float32", "bf16": "bfloat16", "f16": "float16", "int": "int64",
}  # fmt: skip
"""Torch's names of dtypes."""

_FLOAT_TYPES = {"f32": "full_dtype", "summed": "sum_dtype"}
"""Attributes of the wider float types of a program in mixed precision."""

STATE = frozenset({"training", "seed", "step", "micro_batch", "accumulating", "bucket_bytes", "index"})
"""Attributes that emitted modules set while they run."""

ATTRIBUTES = STATE | frozenset({
    "groups", "sync", "counters", "gathered", "mesh", "device", "dtype", "full_dtype", "compute_dtype", "sum_dtype",
    "stored",
    "micro_batches", "join", "parts", "own", "blocks", "constants",
    "initialise", "load_global", "global_tensors", "load_weights", "shard", "full", "gather", "gathers", "synchronise",
    "recomputed", "offloaded", "host",
    "grad_norm", "T_destination", "add_module", "apply", "bfloat16", "buffers", "call_super_init", "children",
    "compile", "cpu", "cuda", "double", "dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer",
    "get_extra_state", "get_parameter", "get_submodule", "half", "ipu", "load_state_dict", "modules", "mtia",
    "named_buffers", "named_children", "named_modules", "named_parameters", "parameters", "register_backward_hook",
    "register_buffer", "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "register_full_backward_pre_hook", "register_load_state_dict_post_hook", "register_load_state_dict_pre_hook",
    "register_module", "register_parameter", "register_state_dict_post_hook", "register_state_dict_pre_hook",
    "requires_grad_", "set_extra_state", "set_submodule", "share_memory", "state_dict", "to", "to_empty", "train",
    "type", "xpu", "zero_grad",
})  # fmt: skip
"""Attributes that every module has, ours or torch's. A tensor of such a name is reached through torch's registry
instead.
"""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TAKEN = frozenset(dir(builtins)) | PROGRAM_NAMES


def is_identifier(name: str) -> bool:
    """Whether a name of the user's text is an identifier. The grammars allow nothing else between dots."""
    return _IDENTIFIER.match(name) is not None


def checked(name: str) -> str:
    """The name, for use within code. Raises ValueError if no grammar allows it."""
    if not all(is_identifier(part) or part.isdecimal() for part in name.split(".")):
        raise ValueError(f"{name!r} is no name")
    return name


class Names:
    """The names of one scope of emitted code, each given once."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._used = {*PROGRAM_NAMES, *reserved}

    def fresh(self, wanted: str) -> str:
        """`wanted` if it is free and not reserved, else the nearest free name: `x_`, `x_2`, …"""
        stem = checked(wanted).replace(".", "_")
        if iskeyword(stem) or issoftkeyword(stem) or stem in _TAKEN or stem.startswith("__"):
            word = stem.lstrip("_")
            stem = f"{'' if word[:1].isalpha() else 'name'}{word}_"
        name, number = stem, 1
        while name in self._used:
            number += 1
            name = f"{stem}_{number}"
        self._used.add(name)
        return name


def float_type(state: str, dtype: str, mixed: bool) -> str:
    """The text of a float type of a program: its compute type, or in mixed precision one of its wider types."""
    return f"{state}.{_FLOAT_TYPES.get(dtype, 'compute_dtype')}" if mixed else f"{state}.dtype"


def class_name(word: str) -> str:
    """`my_layer` as a class: `MyLayer`."""
    parts = checked(word).replace(".", "_").split("_")
    name = "".join(part[:1].upper() + part[1:] for part in parts if part)
    return name if name[:1].isalpha() else f"Body{name}"


def comment_text(text: str) -> str:
    """User text within a comment: one line of printable characters."""
    return "".join(char if char.isprintable() else " " for char in text).strip()


def docstring_text(text: str) -> str:
    """User text within a docstring: as in a comment, without characters that could end the string or escape in it."""
    return comment_text(text).replace("\\", "/").replace('"', "'")


def is_plain_attribute(name: str) -> bool:
    """Whether a module may have an ordinary attribute of this name."""
    return is_identifier(name) and not iskeyword(name) and not name.startswith("_") and name not in ATTRIBUTES


def path(holder: str, name: str, registry: str) -> str:
    """The text that reads what a module has under a dotted name. `registry` is torch's dictionary for things of this
    kind.
    """
    *modules, last = checked(name).split(".")
    for module in modules:
        holder = f"{holder}.{module}" if is_plain_attribute(module) else f'{holder}._modules["{module}"]'
    return f"{holder}.{last}" if is_plain_attribute(last) else f'{holder}.{registry}["{last}"]'
