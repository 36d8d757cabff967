"""Facts about GPUs, read from the .toml files beside this one, which name their sources."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from greenfast.search.errors import unknown_name
from greenfast.search.kernels.tables import Table

TENSOR_FORMATS = ("fp16", "bf16", "tf32", "e4m3", "e5m2", "int8")
FOLDER = Path(__file__).parent
KINDS: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float)}


@dataclass(frozen=True)
class Device:
    """A GPU model. Limits are CUDA's; rates are the architecture's peaks."""

    name: str
    title: str
    sm: int  # compute capability x10: 90 for Hopper
    multiprocessors: int
    clock_max_mhz: int
    registers_per_sm: int
    registers_per_block: int
    registers_per_thread: int
    register_unit_per_warp: int  # a warp gets a multiple of this many registers
    threads_per_sm: int
    threads_per_block: int
    blocks_per_sm: int
    smem_per_sm_bytes: int
    smem_per_block_bytes: int  # opt-in maximum, dynamic and static together
    smem_reserved_bytes: int  # the driver's own share of each block's
    l2_bytes: int
    dram_bytes_per_us: float
    tensor_fp16_flop_per_cycle_per_sm: int  # dense, fp32 accumulation
    fp32_flop_per_cycle_per_sm: int
    special_function_per_cycle_per_sm: int
    shared_bytes_per_cycle_per_sm: int
    tensor_bf16_flop_per_cycle_per_sm: int = 0  # dense; 0: no such products, or unknown
    tensor_tf32_flop_per_cycle_per_sm: int = 0
    tensor_e4m3_flop_per_cycle_per_sm: int = 0
    tensor_e5m2_flop_per_cycle_per_sm: int = 0
    tensor_int8_flop_per_cycle_per_sm: int = 0  # operations, accumulated in int32
    int32_per_cycle_per_sm: int = 64  # additions, comparisons, shifts

    @property
    def arch(self) -> str:
        """The compilers' name of the architecture: `sm_90`."""
        return f"sm_{self.sm}"

    def compiled_arch(self, *, specific: bool) -> str:
        """The architecture to compile for: `sm_90a` for `specific` code, else `sm_90`."""
        return f"{self.arch}a" if specific else self.arch

    def tensor_flop_per_cycle_per_sm(self, form: str) -> int:
        """The rate for a format of TENSOR_FORMATS; 0 when the GPU has no such products."""
        if form not in TENSOR_FORMATS:
            raise unknown_name("tensor format", form, TENSOR_FORMATS)
        rate: int = getattr(self, f"tensor_{form}_flop_per_cycle_per_sm")
        return rate


def device_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def device(name: str) -> Device:
    """The facts of a GPU by its name (`h200`, `l4`); UsageError when it is unknown."""
    if name not in device_names():
        raise unknown_name("device", name, device_names())
    table = Table.read(FOLDER / f"{name}.toml", f"devices/{name}.toml")
    values = {field.name: table.get(field.name, KINDS[str(field.type)]) for field in fields(Device)}
    table.get("sources", list)
    table.finish()
    return Device(**values)
