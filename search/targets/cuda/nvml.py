"""Clocks, power and throttling through NVML, where nvidia-ml-py is installed; silence otherwise."""

from __future__ import annotations

import cupy

# NVML's clock event reasons that slow a kernel down: power cap, hardware slowdown, thermal (software, hardware),
# power brake.
SLOWING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80


class Health:
    """Reads the GPU that CUDA calls `number`."""

    def __init__(self, number: int) -> None:
        self.version = ""
        try:
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
                ("throttled", lambda: bool(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle) & SLOWING)),
                ("gpu_processes", lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)))):
            try:
                found[name] = float(read())
            except nvml.NVMLError:
                continue
        return found
