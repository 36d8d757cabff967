"""A GPU's attributes and device facts from the driver, without a CUDA context."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache

from greenfast.search.devices.facts import Device, device, device_names
from greenfast.search.errors import Fault

# CUdevice_attribute, CUDA driver API.
ATTRIBUTES = {
    "threads_per_block": 1,
    "registers_per_block": 12,
    "clock_khz": 13,
    "multiprocessors": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "threads_per_sm": 39,
    "major": 75,
    "minor": 76,
    "smem_per_sm_bytes": 81,
    "registers_per_sm": 82,
    "smem_per_block_bytes": 97,
    "blocks_per_sm": 106,
    "smem_reserved_bytes": 111,
}


NO_LIBRARY = -1
# CUresult of cuInit, CUDA driver API: reasons that there is no GPU.
ABSENCES = {
    NO_LIBRARY: "no NVIDIA driver is installed (there is no libcuda.so.1)",
    100: "the driver shows no CUDA device",
    803: "the driver's library and its kernel module have different versions: "
    "restart after an update",
    804: "the driver's library does not support this GPU",
}


@cache
def _opened() -> tuple[ctypes.CDLL | None, int]:
    """The driver and the result of cuInit: 0 when it works."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, NO_LIBRARY
    return driver, int(driver.cuInit(0))


def _driver() -> ctypes.CDLL | None:
    driver, code = _opened()
    return driver if code == 0 else None


def _require_driver() -> ctypes.CDLL:
    """Fault when the driver does not work."""
    driver = _driver()
    if driver is None:
        raise Fault("the CUDA driver does not start", code="gpu_lost")
    return driver


def why_not(number: int, start_code: int, count: int) -> str:
    """Why GPU `number` cannot be used, by cuInit's result and the count of GPUs; "" if it can."""
    if start_code != 0:
        return ABSENCES.get(start_code, f"the driver does not start (cuInit returned {start_code})")
    if count == 0:
        return ABSENCES[100]
    if number >= count:
        visible = f"{count} CUDA devices are" if count > 1 else "1 CUDA device is"
        return f"{visible} visible, the last is cuda:{count - 1}"
    return ""


def start_code() -> int:
    """The result of cuInit; 0: the driver works."""
    return _opened()[1]


def gpu_count() -> int:
    """The number of visible CUDA devices; 0 without a driver."""
    driver, count = _driver(), ctypes.c_int(0)
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def gpu_name(number: int) -> str:
    """The driver's name for it: `NVIDIA H200`."""
    text = ctypes.create_string_buffer(256)
    if _require_driver().cuDeviceGetName(text, len(text), _handle(number)) != 0:
        raise Fault(f"the driver does not name GPU {number}", code="gpu_unreadable")
    return text.value.decode(errors="replace")


def gpu_uuid(number: int) -> str:
    """Names the board itself, whichever GPUs CUDA_VISIBLE_DEVICES hides."""
    raw = (ctypes.c_ubyte * 16)()
    if _require_driver().cuDeviceGetUuid(raw, _handle(number)) != 0:
        raise Fault(f"the driver gives no UUID for GPU {number}", code="gpu_unreadable")
    return bytes(raw).hex()


def driver_version() -> str:
    """The CUDA version that the driver supports: `13.0`."""
    number = ctypes.c_int(0)
    _require_driver().cuDriverGetVersion(ctypes.byref(number))
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


@cache
def device_of(number: int) -> Device:
    """Facts of GPU `number`: of a known model, or from the driver with unknown peaks (0)."""
    values = {name: _attribute(number, code) for name, code in ATTRIBUTES.items()}
    return device_facts(gpu_name(number), values)


def device_facts(name: str, values: dict[str, int]) -> Device:
    """The known device that `name` contains, if the chip agrees; else one made from attributes."""
    sm = 10 * values["major"] + values["minor"]
    words = name.lower().split()
    for known in map(device, device_names()):
        if known.name in words and (known.sm, known.multiprocessors) == (
            sm,
            values["multiprocessors"],
        ):
            return replace(known, title=name)
    # DDR memory transfers on both edges of its clock. 0: the driver no longer reports it.
    dram = values["memory_clock_khz"] * 2 * values["memory_bus_bits"] / 8 / 1000
    return Device(
        name="-".join(words),
        title=name,
        sm=sm,
        multiprocessors=values["multiprocessors"],
        clock_max_mhz=values["clock_khz"] // 1000,
        registers_per_sm=values["registers_per_sm"],
        registers_per_block=values["registers_per_block"],
        registers_per_thread=255,
        register_unit_per_warp=256,
        threads_per_sm=values["threads_per_sm"],
        threads_per_block=values["threads_per_block"],
        blocks_per_sm=values["blocks_per_sm"],
        smem_per_sm_bytes=values["smem_per_sm_bytes"],
        smem_per_block_bytes=values["smem_per_block_bytes"],
        smem_reserved_bytes=values["smem_reserved_bytes"],
        l2_bytes=values["l2_bytes"],
        dram_bytes_per_us=float(dram),
        tensor_fp16_flop_per_cycle_per_sm=0,
        fp32_flop_per_cycle_per_sm=0,
        special_function_per_cycle_per_sm=0,
        shared_bytes_per_cycle_per_sm=0,
    )


def _attribute(number: int, code: int) -> int:
    value = ctypes.c_int(0)
    driver = _require_driver()
    if driver.cuDeviceGetAttribute(ctypes.byref(value), code, _handle(number)) != 0:
        return 0  # this driver does not know the attribute
    return value.value


def _handle(number: int) -> ctypes.c_int:
    handle = ctypes.c_int(0)
    if _require_driver().cuDeviceGet(ctypes.byref(handle), number) != 0:
        raise Fault(f"GPU {number} is gone: the driver no longer shows it", code="gpu_lost")
    return handle
