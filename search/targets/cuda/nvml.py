"""Clocks, power, throttling and other processes' work, through NVML.

Nothing is reported where nvidia-ml-py is not installed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

# NVML's clock event reasons that slow a kernel down: power cap, hardware slowdown, thermal
# (software, hardware), power brake.
SLOWING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
# Between two looks at the GPU's users, and the time that each covers: NVML samples seldom.
LOOK_S = 1.0
POLL_S = 0.25
BUSY_PERCENT = 5  # of the multiprocessors' time, by others


class Health:
    """Reads the GPU that CUDA calls `number`.

    Create it before this process has a context there. The process that NVML lists afterwards, and
    did not list before, is this one; inside a container NVML uses other process numbers.
    """

    def __init__(self, number: int) -> None:
        self.version = ""
        self._looked = -LOOK_S  # on the monotonic clock
        self._foreign: dict[str, float] = {}
        self._own: int | None = None
        try:
            import cupy
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(
                cupy.cuda.runtime.deviceGetPCIBusId(number).encode()
            )
            self.version = str(pynvml.nvmlSystemGetDriverVersion())
            self._before = self._users()
        except Exception:  # no module, no library or no permission: nothing is reported
            self._nvml = None

    def now(self) -> dict[str, float]:
        """{"sm_clock_mhz", "power_w", "temperature_c", "throttled"}, as far as NVML has them."""
        nvml, figures = self._nvml, dict[str, float]()
        if nvml is None:
            return figures
        for name, read in (
            ("sm_clock_mhz", lambda: nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM)),
            ("power_w", lambda: nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000),
            (
                "temperature_c",
                lambda: nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU),
            ),
            (
                "throttled",
                lambda: bool(
                    nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle) & SLOWING
                ),
            ),
        ):
            try:
                figures[name] = float(read())
            except nvml.NVMLError:
                continue
        return figures

    def quiet(self, deadline_s: float) -> dict[str, float]:
        """Wait, at most `deadline_s`, until other processes leave the GPU idle.

        Returns {"gpu_processes", "foreign_busy_percent"} as they are then.
        """
        if self._nvml is None:
            return {}
        end = time.monotonic() + deadline_s
        if time.monotonic() - self._looked > LOOK_S:
            self._look()
        while (
            self._foreign.get("foreign_busy_percent", 0.0) >= BUSY_PERCENT
            and time.monotonic() < end
        ):
            time.sleep(POLL_S)
            self._look()
        return dict(self._foreign)

    def _look(self) -> None:
        nvml, self._looked = self._nvml, time.monotonic()
        try:
            users = self._users()
            if self._own is None:
                self._own = own_number(self._before, users)
            self._foreign = {"gpu_processes": float(len(users))}
            others = strangers(users, self._own)
            if others:
                self._foreign["foreign_busy_percent"] = float(
                    foreign_percent(self._samples(), others)
                )
        except nvml.NVMLError:
            pass

    def _users(self) -> set[int]:
        return {
            int(running.pid)
            for running in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        }

    def _samples(self) -> list[tuple[int, int]]:
        """(process, percentage of the last second in which it kept multiprocessors busy)."""
        since = int(1e6 * (time.time() - LOOK_S))
        try:
            return [
                (int(sample.pid), int(sample.smUtil))
                for sample in self._nvml.nvmlDeviceGetProcessUtilization(self._handle, since)
            ]
        except self._nvml.NVMLError_NotFound:  # no sample: the GPU was idle
            return []


def driver_of_today() -> str:
    """The driver's version, as the identity of a target names it; empty if none is loaded."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # no module or no library
        return ""


def own_number(before: set[int], users: set[int]) -> int | None:
    """NVML's number of this process, which inside a container is not os.getpid(). None: unknown."""
    if os.getpid() in users:
        return os.getpid()
    newcomers = users - before
    return newcomers.pop() if len(newcomers) == 1 else None


def strangers(users: Iterable[int], own: int | None) -> set[int]:
    """Users that are neither this process, `own`, nor its siblings. Empty when `own` is unknown."""
    if own is None:
        return set()
    return {user for user in users if user != own and _parent(user) != os.getppid()}


def foreign_percent(samples: Iterable[tuple[int, int]], foreign: set[int]) -> int:
    """The largest percentage in `samples`, (pid, percent), of a process in `foreign`; 0: none."""
    return max((percent for pid, percent in samples if pid in foreign), default=0)


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
