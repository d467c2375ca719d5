"""Subjects of window theorems: instances with a dimension read around one of their axes."""

from __future__ import annotations

from ...graph.halo import window_attributes
from ...index.axes.axis_windows import Windowed, windowed
from ...index.equations.instance import Instance
from ...index.equations.term import free_axes, reads
from ...index.library import Library
from .theorem_subject import Subject


def window_text(subject: Subject, axis: str, by: str, library: Library) -> str:
    """The part of a window theorem's subject beyond the instance: reach of the reads, lengths, attributes of the op."""
    axis = subject.axes.get(axis, axis)
    window = windowed(subject.instance, library).get(axis)
    if not isinstance(window, Windowed):
        return ""
    size, declaration = subject.instance.sizes[axis], library.parallels[by]
    lengths = {name: subject.instance.sizes[name] for name in sorted(axes_beside(subject.instance, window, axis))}
    windows = [(reach, window_attributes(declaration, size, reach)) for reach in window.reaches]
    return f"{windows!r} {lengths!r}"


def axes_beside(instance: Instance, window: Windowed, axis: str) -> set[str]:
    """The other axes in the positions read, whose lengths determine the width of the windows."""
    places = {(reach.operand, reach.dim) for reach in window.reaches}
    return {
        name
        for equation in (*instance.equations, *instance.evaluation)
        for read in reads(equation.value)
        for dim, index in enumerate(read.index)
        if (read.tensor, dim) in places
        for name in free_axes(index)
    } - {axis}
