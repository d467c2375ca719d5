"""The NCCL settings of a machine file: `collectives = "nccl"`, and the table [nccl]."""

from __future__ import annotations

from dataclasses import dataclass

from .nccl_tuning import GENERATIONS, HOSTS, LINKS
from .toml_table import TomlTable

LIBRARY, TABLE = "collectives", "nccl"
"""The key and the section in a machine file."""


@dataclass(frozen=True)
class NcclSettings:
    """Inputs of NCCL's cost model besides the machine's levels: the `generation` of the GPUs, the vendor of the `host`,
    and the kind of `link` between GPUs of the first level.

    `channels` and `network_channels` are those of a ring in a node and between nodes. `ring` is the bus bandwidth of a
    ring in a node, bytes per second, if it differs from that of the levels. `nvls` says that NVSwitches reduce, as
    Hopper's do.
    """

    generation: str = "hopper"
    host: str = "intel"
    link: str = "nvlink"
    channels: int = 16
    network_channels: int = 16
    ring: float | None = None
    nvls: bool = True


def read_nccl_settings(machine: TomlTable) -> NcclSettings | None:
    """The NCCL settings; None if the file does not name NCCL. Raises E304."""
    if LIBRARY not in machine:
        if TABLE in machine:
            raise machine.fault(TABLE, f'[{TABLE}] is for machines with `{LIBRARY} = "{TABLE}"`')
        return None
    machine.choice(LIBRARY, (TABLE,))
    if machine.text("device") != "cuda":
        raise machine.fault(LIBRARY, "NCCL joins GPUs, so `device` must be `cuda`")
    if TABLE not in machine:
        return NcclSettings()
    table, default = machine.table(TABLE), NcclSettings()
    table.only(
        ("generation", "host", "link", "channels", "network_channels", "ring_gb_per_s", "nvls", "source"),
    )

    def choice(key: str, choices: tuple[str, ...], otherwise: str) -> str:
        return table.choice(key, choices) if key in table else otherwise

    return NcclSettings(
        choice("generation", GENERATIONS, default.generation),
        choice("host", HOSTS, default.host),
        choice("link", LINKS, default.link),
        table.whole("channels") if "channels" in table else default.channels,
        table.whole("network_channels") if "network_channels" in table else default.network_channels,
        table.positive("ring_gb_per_s") * 1e9 if "ring_gb_per_s" in table else None,
        table.flag("nvls") if "nvls" in table else default.nvls,
    )
