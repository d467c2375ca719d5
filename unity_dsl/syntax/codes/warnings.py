"""W3xx: plans that can be written, and of which the user should know something first."""

from __future__ import annotations

from .code import Code

WARNINGS: dict[str, Code] = {
    "W301": Code(
        "more than a device's memory",
        "The program is written with `--force`, and will most likely run out of memory. Counted is the most at "
        "a time in a simulated step, on each device: parameters and buffers as they are stored, the two moments that "
        "AdamW keeps, gradients as far as there are any, the tensors that the forward pass keeps for the backward one, "
        "and what operators and collectives hold while they run. Not counted is what the allocator cannot use. The "
        "strategy `auto` looks for "
        "plans that fit; a smaller batch keeps fewer activations, and more devices keep smaller slices.",
    ),
}
