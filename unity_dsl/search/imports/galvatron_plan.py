"""Plans of Galvatron (`galvatron_config_*.json`). For each layer they give a degree of tensor parallelism, whether it
is over neighbouring devices, how weights are stored along the others, and whether the layer is recomputed.

The meaning of the fields is that of its `config2strategy` and of its documentation of the JSON mode. `tp_sizes_enc`,
`tp_consecutive_flags`, `dp_types_enc` (0 as `default_dp_type` says, 1 ZeRO-3) and `checkpoint` are texts of numbers
with commas. `vtp`, `vsp` and `embed_sdp` are for embeddings and head. `global_bsz` and `chunks` are read too. ZeRO-2
gathers and scatters as much as slices do that are gathered once a step, so both are slices here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...graph.graph import Model
from ...graph.layout import Mesh
from ...machine.machine import Machine
from ..recomputed_segments import NONE
from ..strategies.galvatron import Hybrid, hybrid, planned
from ..strategies.strategy import Chosen, Space
from .imported_plan import ImportedPlan, layers_of, mesh_of_cuts, outside, unfit
from .json_text import Json

KINDS = {"ddp": False, "zero2": True, "zero3": True}
"""Whether weights are stored in slices."""


@dataclass(frozen=True)
class Layer:
    """The strategy of a layer: its degree, the `part` of the plan that says so, and whether it is over the inner
    devices.
    """

    degree: int
    inner: bool
    sliced: bool
    recomputed: bool
    part: Json

    def alike(self, other: Layer) -> bool:
        return (self.degree, self.inner, self.sliced) == (other.degree, other.inner, other.sliced)

    def axes(self, mesh: Mesh) -> tuple[int, ...]:
        """The mesh axes of tensor parallelism."""
        count = len(mesh.axes)
        every = range(count)
        for size in range(count + 1):
            axes = every[count - size :] if self.inner else every[:size]
            if mesh.degree(axes) == self.degree:
                return tuple(axes)
        raise AssertionError("the mesh has a cut for every degree")


def galvatron_plan(top: Json) -> ImportedPlan:
    """Reads a plan. Raises E321 for faulty fields, E323 for pipelines and for sequence parallelism."""
    if top["pp_deg"].number(1) > 1:
        raise outside(top["pp_deg"], "a pipeline of several stages", "search for plans with `pp_deg` 1 there")
    layers, around = _layers(top), _around(top)
    micro_batches = top["chunks"].number(1) if "chunks" in top else 1

    def mesh(machine: Machine, devices: int) -> tuple[Mesh, ...]:
        cuts = []
        for layer in (*layers, around):
            if devices % layer.degree:
                message = f"tensor parallelism over {layer.degree} of {devices} devices"
                raise unfit(layer.part, message, "--devices is the number of all devices")
            cuts.append(devices // layer.degree if layer.inner else layer.degree)
        return mesh_of_cuts(machine, devices, cuts, top["tp_sizes_enc"])

    def choose(space: Space) -> Chosen:
        return _chosen(space, layers, around, top, micro_batches)

    def recompute(model: Model) -> str:
        named = []
        for name, those in _by_segment(model, layers, top):
            again = sum(one.recomputed for one in those)
            named += [f"{name}:{again}"] if again else []
        return ",".join(named) or NONE

    return ImportedPlan("Galvatron", mesh, choose, micro_batches, recompute)


def _layers(top: Json) -> list[Layer]:
    sizes = top["tp_sizes_enc"].numbers()
    if not sizes:
        raise top["tp_sizes_enc"].refused("there are no layers")

    def each(name: str, otherwise: int) -> list[Json]:
        if name not in top:
            return [Json(otherwise, size.span) for size in sizes]
        found = top[name].numbers()
        if len(found) != len(sizes):
            raise top[name].refused(f"{len(found)} numbers, where `tp_sizes_enc` has {len(sizes)}")
        return found

    default = _kept(top)
    for name, least in (("use_sp", 0), ("cp_sizes_enc", 1)):
        for size, flag in zip(sizes, each(name, least), strict=True):
            if flag.number() > least and (name != "use_sp" or size.number() > 1):
                raise outside(flag, "a layer that divides its sequences over devices")
    columns = (each("tp_consecutive_flags", 1), each("dp_types_enc", 0), each("checkpoint", 0))
    return [
        Layer(size.number(1), inner.number() > 0, default or kept.number() > 0, again.number() > 0, size)
        for size, inner, kept, again in zip(sizes, *columns, strict=True)
    ]


def _around(top: Json) -> Layer:
    """The strategy of what is around the layers: embeddings and the head."""
    part = top["vtp"] if "vtp" in top else top["tp_sizes_enc"]
    degree = part.number(1) if "vtp" in top else 1
    if "vsp" in top and top["vsp"].number() and degree > 1:
        raise outside(top["vsp"], "embeddings that divide sequences over devices")
    sliced = _kept(top) or ("embed_sdp" in top and top["embed_sdp"].number() > 0)
    return Layer(degree, True, sliced, False, part)


def _kept(top: Json) -> bool:
    """Whether weights are stored in slices if a layer does not say otherwise."""
    if "default_dp_type" not in top:
        return False
    kind = top["default_dp_type"]
    if kind.text() not in KINDS:
        raise kind.refused(f"`{kind.text()}` is none of {', '.join(KINDS)}")
    return KINDS[kind.text()]


def _by_segment(model: Model, layers: Sequence[Layer], top: Json) -> list[tuple[str, Sequence[Layer]]]:
    """The layers of each repeat of a model, by their position in the plan. Raises E322."""
    segments = layers_of(model)
    count = sum(segment.count for segment in segments)
    if count != len(layers):
        told = ", ".join(f"`{segment.name}` {segment.count}" for segment in segments) or "no repeat"
        message = f"the plan has {len(layers)} layers, the model {count} in repeats: {told}"
        raise unfit(top["tp_sizes_enc"], message, "set the model's sizes with --set or --preset")
    found, place = list[tuple[str, Sequence[Layer]]](), 0
    for segment in segments:
        found.append((segment.name, layers[place : place + segment.count]))
        place += segment.count
    return found


def _chosen(space: Space, layers: Sequence[Layer], around: Layer, top: Json, micro_batches: int) -> Chosen:
    mesh, model = space.meshes[0], space.model
    _check_batch(model, top, micro_batches)
    inside, notes = dict[str, Hybrid](), list[str]()
    for name, those in _by_segment(model, layers, top):
        if (other := next((one for one in those if not one.alike(those[0])), None)) is not None:
            help = f"iterations of a repeat are planned together: write those of `{name}` that differ as another repeat"
            raise unfit(other.part, f"this layer is not as the first one of `{name}`", help)
        inside[name] = _hybrid(space, mesh, those[0])
        again = sum(one.recomputed for one in those)
        if not all(one.recomputed for one in those[:again]):
            notes.append(f"the plan runs {again} layers of `{name}` again, here the first ones")
    chosen = planned(space, mesh, _hybrid(space, mesh, around), inside)
    if chosen is None:
        raise unfit(top, "no configurations of the model's operators are the plan's")
    return Chosen(chosen.variant, chosen.problem, chosen.plan, chosen.cost, chosen.held, (*chosen.notes, *notes))


def _hybrid(space: Space, mesh: Mesh, layer: Layer) -> Hybrid:
    axes = layer.axes(mesh)
    found = hybrid(space, mesh, axes, layer.sliced and layer.degree < mesh.size)
    if found is None:
        over = f"tensor parallelism over {layer.degree} and data parallelism over {mesh.size // layer.degree} devices"
        raise unfit(
            layer.part, f"`{space.model.name}` is not divided by {over}", "sizes that are no multiples stay whole"
        )
    return found


def _check_batch(model: Model, top: Json, micro_batches: int) -> None:
    shapes = [source.value.shape for source in model.graph.inputs if source.value.shape]
    if "global_bsz" not in top or not shapes:
        return
    wanted, own = top["global_bsz"].number(1), shapes[0][0] * micro_batches
    if wanted != own:
        help = "a plan is compared at the batch that it is for: set the model's with --set"
        raise unfit(top["global_bsz"], f"the plan is for {wanted} examples a step, the model's step has {own}", help)
