"""Clocks, power, throttling and other people's work through NVML, where nvidia-ml-py is installed; else silence."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

# NVML's clock event reasons that slow a kernel down: power cap, hardware slowdown, thermal (software, hardware),
# power brake.
SLOWING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
LOOK_S = 1.0                     # between two looks at who uses the GPU
POLL_S = 0.1
BUSY_PERCENT = 5                 # of the multiprocessors' time, by others


class Health:
    """Reads the GPU that CUDA calls `number`."""

    def __init__(self, number: int) -> None:
        self.version = ""
        self._looked, self._foreign = 0.0, {}
        try:
            import cupy
            import pynvml
            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(
                cupy.cuda.runtime.deviceGetPCIBusId(number).encode())
            self.version = str(pynvml.nvmlSystemGetDriverVersion())
        except Exception:                        # no module, no library or no right to ask: times go without
            self._nvml = None

    def now(self) -> dict[str, float]:
        """{"sm_clock_mhz", "power_w", "temperature_c", "throttled"}, as far as NVML answers."""
        nvml, found = self._nvml, {}
        if nvml is None:
            return found
        for name, read in (
                ("sm_clock_mhz", lambda: nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM)),
                ("power_w", lambda: nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000),
                ("temperature_c", lambda: nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU)),
                ("throttled", lambda: bool(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle) & SLOWING))):
            try:
                found[name] = float(read())
            except nvml.NVMLError:
                continue
        return found

    def quiet(self, deadline_s: float) -> dict[str, float]:
        """Wait until others leave the GPU alone: {"gpu_processes", "foreign_busy_percent"}, after at most `deadline_s`.

        What still runs then is said, and the times stand under it.
        """
        if self._nvml is None:
            return {}
        end = time.monotonic() + deadline_s
        if time.monotonic() - self._looked > LOOK_S:
            self._look()
        while self._foreign.get("foreign_busy_percent", 0.0) >= BUSY_PERCENT and time.monotonic() < end:
            time.sleep(POLL_S)
            self._look()
        return dict(self._foreign)

    def _look(self) -> None:
        nvml, now, since = self._nvml, time.monotonic(), self._looked
        self._looked = now
        try:
            users = [int(one.pid) for one in nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)]
            self._foreign = {"gpu_processes": float(len(users))}
            if strangers(users):
                microseconds = int(1e6 * (time.time() - min(now - since, LOOK_S)))
                samples = nvml.nvmlDeviceGetProcessUtilization(self._handle, microseconds)
                self._foreign["foreign_busy_percent"] = float(foreign_percent(
                    ((int(one.pid), int(one.smUtil)) for one in samples), strangers(users)))
        except nvml.NVMLError:                   # "no sample" is one of these, too: nobody worked
            pass


def strangers(users: Iterable[int]) -> set[int]:
    """Processes that are neither this one nor a child of its parent. Empty where we do not see ourselves among them:
    a container counts processes by other numbers, so that nobody can be told from us."""
    users = set(users)
    if os.getpid() not in users:
        return set()
    return {one for one in users if one != os.getpid() and _parent(one) != os.getppid()}


def foreign_percent(samples: Iterable[tuple[int, int]], foreign: set[int]) -> int:
    """The largest share of time that processes in `foreign` kept multiprocessors busy; samples are (pid, percent)."""
    return max((percent for pid, percent in samples if pid in foreign), default=0)


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
