"""A winner and a peer timed in turns in one process, on one stream.

CuPy launches the winner's cubin and PyTorch the peer; both share the primary context. The peer
reads the winner's own input bytes. Its outputs are PyTorch's, one per input set of the ring. Both
are captured in graphs of N and 2N passes, as in every other timing. Only the child imports this.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import torch
from cupy.cuda import runtime

from greenfast.search.targets.cuda.arena import ALIGN, Arena, lay_out, starting_bytes
from greenfast.search.targets.cuda.launches import Loaded, Stopwatch, wait
from greenfast.search.targets.cuda.nvml import Health
from greenfast.search.timing import race, ring_sets

TORCH_TYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
}
TO_DEVICE, TO_HOST = 1, 2  # cudaMemcpyKind
WARM_UP_S = 0.05
PLACES = 8192  # of 256 bytes: within 2 MiB

Tensors = dict[str, torch.Tensor]
Run = Callable[[Tensors], Tensors]  # of peers.py: from inputs to outputs, by argument name


class Duel:
    """One GPU, one stream. As a context manager it makes both frameworks use that stream."""

    def __init__(self, number: int, l2_bytes: int, deadline_s: float) -> None:
        self._health = Health(number)  # must precede the context
        cupy.cuda.Device(number).use()
        torch.cuda.set_device(number)
        self._device = torch.device("cuda", number)
        self._l2_bytes, self._deadline_s = l2_bytes, deadline_s
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._torch_stream = torch.cuda.ExternalStream(self._stream.ptr, device=self._device)
        self._contexts: tuple[Any, ...] = ()

    def __enter__(self) -> Duel:
        self._contexts = (self._stream, torch.cuda.stream(self._torch_stream), torch.no_grad())
        for context in self._contexts:
            context.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for context in reversed(self._contexts):
            context.__exit__(*error)

    def require_working(self) -> None:
        """RuntimeError when the context is broken: every later call would fail with that error."""
        torch.cuda.synchronize(self._device)

    def time_in_turns(
        self, run: Run, name: str, workload: dict[str, Any], request: dict[str, Any]
    ) -> dict[str, Any]:
        """Samples of both in microseconds, and files with the outputs of the timed launches."""
        described = workload["problem"]
        arena = lay_out(described)
        start = starting_bytes(described, arena)
        sets = ring_sets(
            sum(tensor["bytes"] for tensor in described["tensors"]),
            self._l2_bytes,
            workload["mode"],
        )
        # The place of the data can change a time by 1 %, so each seed places them differently.
        shift = ALIGN * random.Random(request["seed"]).randrange(PLACES)
        memory = cupy.cuda.Memory(sets * arena.total_bytes + ALIGN * PLACES)
        module = cupy.RawModule(path=request["cubin"])
        winners, peers = [], []
        for number in range(sets):
            base = memory.ptr + shift + number * arena.total_bytes
            self._upload(base, start)
            winners.append(_loaded(module, described, arena, base))
            peers.append(PeerCall(run, self._inputs(workload, arena, base, memory)))
        watch = Stopwatch(winners, self._stream, self._deadline_s)
        peer_watch = PeerStopwatch(peers, self._stream, self._deadline_s, self._torch_stream)
        samples, others = self._race(watch, peer_watch, request)
        health = self._health.now()
        # Poisoned again, so that the comparison sees the outputs of timed launches only.
        self._upload(memory.ptr + shift, start)
        for stopwatch in (watch, peer_watch):
            stopwatch.again()
            wait(self._stream, self._deadline_s)
        folder = Path(request["folder"])
        return {
            "samples": samples,
            "others": others,
            "mode": workload["mode"],
            "sets": sets,
            "nodes": watch.nodes,
            "other_nodes": peer_watch.nodes,
            "health": health,
            "winner_outputs": _winner_outputs(workload, arena, memory.ptr + shift, folder),
            "outputs": _peer_outputs(
                peers[0].outputs, workload, folder / f"{name}-{workload['name']}"
            ),
        }

    def _race(
        self, watch: Stopwatch, peer_watch: Stopwatch, request: dict[str, Any]
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        end = time.monotonic() + WARM_UP_S
        while time.monotonic() < end:
            watch(), peer_watch()
        looks = (request["blocks"],)
        return race(watch, peer_watch, request["seed"], looks=looks, screen=False)

    def _inputs(
        self, workload: dict[str, Any], arena: Arena, base: int, owner: cupy.cuda.Memory
    ) -> Tensors:
        """The input tensors as PyTorch sees them, over the winner's own bytes."""
        inputs = {}
        for tensor in workload["tensors"]:
            offset, size = arena.offsets[tensor["name"]]
            if tensor["role"] == "input":
                pointer = cupy.cuda.MemoryPointer(
                    cupy.cuda.UnownedMemory(base + offset, size, owner), 0
                )
                flat = torch.as_tensor(
                    cupy.ndarray((size,), cupy.uint8, pointer), device=self._device
                )
                inputs[tensor["name"]] = flat.view(TORCH_TYPES[tensor["dtype"]]).as_strided(
                    tensor["shape"], tensor["strides"]
                )
        return inputs

    def _upload(self, base: int, memory: np.ndarray) -> None:
        runtime.memcpy(base, memory.ctypes.data, memory.nbytes, TO_DEVICE)
        runtime.deviceSynchronize()


def _winner_outputs(
    workload: dict[str, Any], arena: Arena, base: int, folder: Path
) -> dict[str, str]:
    """Write the whole byte image of each output to a file; returns the files by name."""
    files = {}
    for tensor in workload["tensors"]:
        if tensor["role"] != "input":
            offset, size = arena.offsets[tensor["name"]]
            image = np.empty(size, np.uint8)
            runtime.memcpy(image.ctypes.data, base + offset, size, TO_HOST)
            files[tensor["name"]] = str(folder / f"winner-{workload['name']}-{tensor['name']}")
            image.tofile(files[tensor["name"]])
    return files


def _loaded(module: cupy.RawModule, described: dict[str, Any], arena: Arena, base: int) -> Loaded:
    addresses = {name: base + offset for name, (offset, _) in arena.offsets.items()}
    return Loaded(module, described, addresses, arena.zeroed_spans(base))


def _peer_outputs(outputs: Tensors | None, workload: dict[str, Any], path: Path) -> dict[str, str]:
    """Write the elements of each output in logical order to a file; returns the files by name.

    ValueError when an output has another shape or type than the winner's.
    """
    shapes = {
        tensor["name"]: (list(tensor["shape"]), TORCH_TYPES[tensor["dtype"]])
        for tensor in workload["tensors"]
    }
    files = {}
    for name, tensor in (outputs or {}).items():
        if (list(tensor.shape), tensor.dtype) != shapes[name]:
            raise ValueError(f"its {name} is {tensor.dtype} {list(tensor.shape)}")
        files[name] = f"{path}-{name}"
        tensor.contiguous().view(torch.uint8).cpu().numpy().tofile(files[name])
    return files


class PeerCall:
    """One pass of a peer over one set of inputs. Passes share the memory of outputs."""

    def __init__(self, run: Run, inputs: Tensors) -> None:
        self._run, self._inputs = run, inputs
        self.outputs: Tensors | None = None

    def launch(self, stream: cupy.cuda.Stream) -> None:
        self.outputs = None
        self.outputs = self._run(self._inputs)


class PeerStopwatch(Stopwatch):
    """The same protocol over graphs that PyTorch captures, which its allocator must know of."""

    def __init__(
        self,
        ring: Sequence[PeerCall],
        stream: cupy.cuda.Stream,
        deadline_s: float,
        torch_stream: torch.cuda.Stream,
    ) -> None:
        self._calls, self._torch_stream = ring, torch_stream
        super().__init__(ring, stream, deadline_s)

    def _graph(self, nodes: int) -> TorchGraph:
        return TorchGraph(self._calls, nodes, self._torch_stream)

    def again(self) -> None:
        """Repeat the timed work: the longer graph, whose outputs the ring holds, over poison."""
        self._next = 0
        for call in self._calls:
            for tensor in (call.outputs or {}).values():
                tensor.fill_(float("nan"))
        self._graphs[-1].launch() if self.nodes else self._launch_next()


class TorchGraph:
    """Passes captured by PyTorch, launched like a graph of CuPy."""

    def __init__(self, ring: Sequence[PeerCall], nodes: int, stream: torch.cuda.Stream) -> None:
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream):
            for number in range(nodes):
                ring[number % len(ring)].launch(stream)

    def launch(self) -> None:
        self._graph.replay()  # on PyTorch's current stream, which is ours
