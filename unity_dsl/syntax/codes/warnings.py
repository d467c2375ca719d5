"""W3xx: plans that can be written, and of which the user should know something first."""

from __future__ import annotations

from .code import Code

WARNINGS: dict[str, Code] = {
    "W301": Code(
        "more than a device's memory",
        "The program is written with `--force`, and will most likely run out of memory. Counted are, on each device, "
        "parameters and buffers as they are stored, a gradient of every parameter, the two moments that AdamW keeps, "
        "and the tensors that the forward pass keeps for the backward one. Not counted are what lives only while an "
        "operator runs, the buffers of collectives, and that less is held at most times. The strategy `auto` looks for "
        "plans that fit; a smaller batch keeps fewer activations, and more devices keep smaller slices.",
    ),
}
