"""The meshes that can be searched: those with few axes that pins allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..graph.layout import Mesh
from ..graph.plan import Advice
from ..machine.mesh import describe_mesh
from ..syntax.diagnostic import fail
from .layout_pins import Pin
from .meshes.mesh_joining import joined_mesh


def searchable(
    meshes: Sequence[Mesh], pins: Mapping[str, Pin]
) -> tuple[Sequence[Mesh], Mapping[str, Pin], tuple[str, ...]]:
    """The meshes that pins allow, with the pins and notes. If the only mesh has too many axes, some are joined, as are
    the pins' kinds. Raises E305 for a pin that treats joined axes differently.
    """
    if len(meshes) > 1:
        axes = {len(pin) for pin in pins.values() if len(pin) > 1}
        return [mesh for mesh in meshes if axes <= {len(mesh.axes)}] or meshes, pins, ()
    (mesh,) = meshes
    small, blocks = joined_mesh(mesh)
    if small == mesh:
        return meshes, pins, ()
    joined = {}
    for name, pin in pins.items():
        if len(pin) == len(mesh.axes):
            for block in blocks:
                if len({pin[axis] for axis in block}) > 1:
                    named = ", ".join(mesh.axes[axis].name for axis in block)
                    raise fail(
                        "E305", f"the pin of `{name}` treats the mesh axes {named} differently, which are joined"
                    )
            pin = tuple(pin[block[0]] for block in blocks)
        joined[name] = pin
    note = Advice(f"searched on a mesh of {describe_mesh(small)}: the {describe_mesh(mesh)} has too many layouts")
    return (small,), joined, (note,)
