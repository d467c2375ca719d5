"""kernels.py: the operators of a program that run as kernels on a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...index.equations.term_text import equation_text
from ..program_names import class_name, comment_text
from ..source_lines import above, broken
from ..templates import template
from .kernel_functions import FusedOperator, Launches, kernel_head, variable
from .kernel_text import KernelText


@dataclass(frozen=True)
class KernelOperator:
    """An operator with the torch statements that compute the same.

    `starts` are statements for the numbers that its kernels are given. `random` means that the torch statements draw
    numbers. `evaluated` means that outside training it computes something else, by torch alone. `where` says which part
    of the model it is. `priced` are the predicted times of this and other ways to compute it.
    """

    fused: FusedOperator
    torch: tuple[str, ...]
    starts: tuple[str, ...] = ()
    random: bool = False
    evaluated: bool = False
    where: str = ""
    priced: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.fused.name

    @property
    def draws(self) -> bool:
        """Whether its function is given the site of random numbers."""
        return self.random or self.fused.random


def kernel_file_text(
    title: str, operators: Iterable[KernelOperator], micro_batches: bool = False, tf32: bool = False
) -> str:
    """The file's text. With `micro_batches` the parts of a batch draw random numbers of their own. With `tf32` products
    may round their factors.
    """
    found = list(operators)
    functions = frozenset(name for one in found for kernel in one.fused.kernels for name in kernel.functions)
    written = ""
    if functions:
        written = template("element_functions.triton.j2").render(functions=functions, tf32=tf32).rstrip()
    text = template("kernels.py.j2").render(
        title=title,
        functions=functions,
        element_functions=written,
        random=any(operator.random for operator in found),
        surrogates=any("surrogate(" in line for operator in found for line in operator.torch),
        draws=any(operator.fused.random for operator in found),
        division=micro_batches,
        operators=[_operator(operator) for operator in found],
    )
    return re.sub(r"\n{4,}", "\n\n\n", text).rstrip() + "\n"


def _operator(operator: KernelOperator) -> dict[str, object]:
    fused = operator.fused
    instance = fused.instance
    tensors = [variable(operand.name) for operand in instance.inputs]
    plain = [*fused.numbers, *(["draw"] if fused.random else [])]
    floats = [operand for operand in instance.inputs if operand.integer_range is None]
    read = fused.backward.read if fused.backward else frozenset()
    grad_outputs = [variable(f"d_{output.name}") for output in instance.outputs]
    dtypes = ["torch.int64" if operand.integer_range else f"{grad_outputs[0]}.dtype" for operand in instance.inputs]
    return {
        "comments": [
            *above(operator.where or instance.name),
            *(line for words in operator.priced for line in above(words)),
            *above(", ".join(f"{name}{list(shape)}" for name, shape in zip(tensors, fused.shapes, strict=True))),
            *(f"# {comment_text(equation_text(equation))}" for equation in instance.equations),
        ],
        "name": fused.name,
        "class_name": class_name(fused.name),
        "kernels": [_kernel(kernel) for kernel in fused.kernels],
        "given": ", ".join([*tensors, *plain]),
        "head": _head(fused.name, ["model", *tensors, *(["site"] if operator.draws else [])]),
        "tensors": tensors,
        "plain": plain,
        "like": variable(floats[0].name),
        "results": ", ".join(variable(output.name) for output in instance.outputs),
        "forward": _statements(fused.forward, 8),
        "grad_outputs": grad_outputs,
        "saved": [
            *(variable(operand.name) for operand in instance.inputs if operand.name in read),
            *map(variable, fused.kept),
        ],
        "unsaved": [
            part
            for operand, shape, dtype in zip(instance.inputs, fused.shapes, dtypes, strict=True)
            if operand.name not in read
            for part in _broken(
                f"{variable(operand.name)} = torch.zeros({shape}, dtype={dtype}, device={grad_outputs[0]}.device)", 8
            )
        ],
        "contiguous": _broken(f"{', '.join(tensors)} = {', '.join(f'{name}.contiguous()' for name in tensors)}", 8),
        "backward": None if fused.backward is None else _statements(fused.backward, 16),
        "gradients": ", ".join(["None", *_gradients(fused), *(["None"] * len(plain))]),
        "wrt": fused.wrt,
        "shapes": fused.shapes,
        "torch": [part for line in operator.torch for part in _broken(line, 8)],
        "starts": operator.starts,
        "evaluated": operator.evaluated,
        "positions": fused.positions,
        "draws": fused.random,
    }


def _head(name: str, given: Sequence[str]) -> list[str]:
    return broken(f"def {name}({', '.join(given)}):")


def _kernel(kernel: KernelText) -> dict[str, object]:
    lines = [part for line in kernel.lines for part in _broken(line)]
    return {"head": kernel_head(kernel), "lines": lines, "random": kernel.random}


def _broken(line: str, indent: int = 0) -> list[str]:
    """A line broken into parts that fit at `indent` columns further right."""
    code = line.lstrip(" ")
    return [part[indent:] for part in broken(code, " " * (len(line) - len(code) + indent))]


def _statements(launches: Launches, indent: int) -> list[str]:
    """The statements, broken so that they fit where they stand."""
    return [part[indent:] for line in launches.made for part in broken(line, " " * indent)]


def _gradients(fused: FusedOperator) -> Sequence[str]:
    found = ["None"] * len(fused.instance.inputs)
    if fused.backward is not None:
        for number, result in zip(fused.wrt, fused.backward.results, strict=True):
            found[number] = result
    return found
