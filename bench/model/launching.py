"""Candidates launched and timed through CuPy alone, for a first look without the GPU target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from greenfast.search.oracle.problem import Problem, Scalar
from greenfast.search.render import RenderedSource

LAUNCHES, SAMPLES, DISCARDED = 40, 15, 2
NVRTC_OPTIONS = ("--std=c++17", "-I/usr/local/cuda/include")


class LoadedProblem:
    """A compiled source with a problem's memory on the device."""

    def __init__(self, source: RenderedSource, problem: Problem) -> None:
        import cupy

        self.cupy = cupy
        module = cupy.RawModule(code=source.text, backend="nvrtc", options=NVRTC_OPTIONS)
        self.images = {tensor.name: cupy.asarray(tensor.image) for tensor in problem.tensors}
        self.images |= {
            workspace.name: cupy.asarray(np.zeros(max(1, workspace.bytes), np.uint8))
            for workspace in problem.workspaces
        }
        self._calls = []
        for plan in problem.launches:
            function = module.get_function(plan.entry)
            function.max_dynamic_shared_size_bytes = plan.smem_dynamic_bytes
            arguments = problem.arguments if plan.arguments is None else plan.arguments
            self._calls.append((function, plan, tuple(map(self._argument, arguments))))
        self.registers: int = self._calls[0][0].num_regs

    def _argument(self, argument: Any) -> Any:
        if argument is None:
            return self.cupy.uint64(0)
        if isinstance(argument, Scalar):
            return getattr(self.cupy, argument.dtype)(argument.value)
        return self.images[argument.name]

    def launch(self) -> None:
        for function, plan, arguments in self._calls:
            function(plan.grid, plan.block, arguments, shared_mem=plan.smem_dynamic_bytes)

    def outputs(self) -> dict[str, np.ndarray]:
        """All images after one launch."""
        self.launch()
        self.cupy.cuda.Device().synchronize()
        return {name: self.cupy.asnumpy(image) for name, image in self.images.items()}


def launch_us(cupy: Any, launch: Callable[[], None]) -> float:
    """Median microseconds of a launch, from graphs of N and 2N launches, with a warm L2."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        graphs = [_graph(stream, launch, count) for count in (LAUNCHES, 2 * LAUNCHES)]
        times = []
        for _ in range(DISCARDED + SAMPLES):
            single, double = (_graph_ms(cupy, stream, graph) for graph in graphs)
            times.append((double - single) * 1000 / LAUNCHES)
    return sorted(times[DISCARDED:])[SAMPLES // 2]


def _graph(stream: Any, launch: Callable[[], None], count: int) -> Any:
    stream.begin_capture()
    for _ in range(count):
        launch()
    return stream.end_capture()


def _graph_ms(cupy: Any, stream: Any, graph: Any) -> float:
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record(stream)
    graph.launch(stream)
    end.record(stream)
    end.synchronize()
    return cupy.cuda.get_elapsed_time(begin, end)
