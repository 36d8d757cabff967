"""A winner and a peer timed in turns in one process: CuPy launches the cubin, PyTorch the peer, on one stream.

Both share the primary context. The peer reads the winner's own input bytes; its outputs are PyTorch's, one for each
set of the ring. Both are captured in graphs of N and 2N passes, as everywhere here. Only the child imports this.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import torch
from cupy.cuda import runtime

from greenfast.search.targets.cuda.arena import ALIGN, Arena, lay_out, starting_bytes
from greenfast.search.targets.cuda.measurer import Loaded, Stopwatch, wait
from greenfast.search.targets.cuda.nvml import Health
from greenfast.search.timing import race, ring_sets

TORCH_TYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "float32": torch.float32,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
}
TO_DEVICE, TO_HOST = 1, 2  # cudaMemcpyKind
WARM_UP_S = 0.05
PLACES = 8192  # of 256 bytes: within 2 MiB


class Duel:
    """One GPU, one stream; a context in which both frameworks use it."""

    def __init__(self, number: int, l2_bytes: int, deadline_s: float) -> None:
        self._health = Health(number)  # before there is a context
        cupy.cuda.Device(number).use()
        torch.cuda.set_device(number)
        self._device = torch.device("cuda", number)
        self._l2_bytes, self._deadline_s = l2_bytes, deadline_s
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._torch_stream = torch.cuda.ExternalStream(self._stream.ptr, device=self._device)
        self._both: tuple[Any, ...] = ()

    def __enter__(self) -> Duel:
        self._both = (self._stream, torch.cuda.stream(self._torch_stream), torch.no_grad())
        for one in self._both:
            one.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for one in reversed(self._both):
            one.__exit__(*error)

    def require_working(self) -> None:
        """RuntimeError when an error broke the context: it would answer everything with that error from now on."""
        torch.cuda.synchronize(self._device)

    def fight(
        self, run, name: str, workload: dict[str, Any], request: dict[str, Any]
    ) -> dict[str, Any]:
        """Samples of both in turns, and files with the outputs that the timed work left."""
        described = workload["problem"]
        arena = lay_out(described)
        start = starting_bytes(described, arena)
        sets = ring_sets(
            sum(tensor["bytes"] for tensor in described["tensors"]),
            self._l2_bytes,
            workload["mode"],
        )
        # Where a process happens to place data is worth 1 % at times: each seed gives it another place.
        first = ALIGN * random.Random(request["seed"]).randrange(PLACES)
        memory = cupy.cuda.Memory(sets * arena.total_bytes + ALIGN * PLACES)
        module = cupy.RawModule(path=request["cubin"])
        winners, peers = [], []
        for number in range(sets):
            base = memory.ptr + first + number * arena.total_bytes
            self._upload(base, start)
            winners.append(_loaded(module, described, arena, base))
            peers.append(PeerCall(run, self._inputs(workload, arena, base, memory)))
        watch = Stopwatch(winners, self._stream, self._deadline_s)
        peer_watch = PeerStopwatch(peers, self._stream, self._deadline_s, self._torch_stream)
        end = time.monotonic() + WARM_UP_S
        while time.monotonic() < end:
            watch(), peer_watch()
        samples, others = race(
            watch, peer_watch, request["seed"], looks=(request["blocks"],), screen=False
        )
        health = self._health.now()
        self._upload(
            memory.ptr + first, start
        )  # poisoned again: what the timed launches leave is compared
        watch.again()
        wait(self._stream, self._deadline_s)
        peer_watch.again()
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
            "winner_outputs": self._winner_outputs(workload, arena, memory.ptr + first, folder),
            "outputs": _peer_outputs(
                peers[0].outputs, workload, folder / f"{name}-{workload['name']}"
            ),
        }

    def _inputs(
        self, workload: dict[str, Any], arena: Arena, base: int, owner
    ) -> dict[str, torch.Tensor]:
        """The input tensors as PyTorch sees them, over the winner's own bytes."""
        found = {}
        for tensor in workload["tensors"]:
            offset, size = arena.offsets[tensor["name"]]
            if tensor["role"] == "input":
                pointer = cupy.cuda.MemoryPointer(
                    cupy.cuda.UnownedMemory(base + offset, size, owner), 0
                )
                flat = torch.as_tensor(
                    cupy.ndarray((size,), cupy.uint8, pointer), device=self._device
                )
                found[tensor["name"]] = flat.view(TORCH_TYPES[tensor["dtype"]]).as_strided(
                    tensor["shape"], tensor["strides"]
                )
        return found

    def _upload(self, base: int, memory: np.ndarray) -> None:
        runtime.memcpy(base, memory.ctypes.data, memory.nbytes, TO_DEVICE)
        runtime.deviceSynchronize()

    @staticmethod
    def _winner_outputs(
        workload: dict[str, Any], arena: Arena, base: int, folder: Path
    ) -> dict[str, str]:
        """The whole byte image of each output, in files."""
        found = {}
        for tensor in workload["tensors"]:
            if tensor["role"] != "input":
                offset, size = arena.offsets[tensor["name"]]
                image = np.empty(size, np.uint8)
                runtime.memcpy(image.ctypes.data, base + offset, size, TO_HOST)
                found[tensor["name"]] = str(folder / f"winner-{workload['name']}-{tensor['name']}")
                image.tofile(found[tensor["name"]])
        return found


def _loaded(module: cupy.RawModule, described: dict[str, Any], arena: Arena, base: int) -> Loaded:
    addresses = {name: base + offset for name, (offset, _) in arena.offsets.items()}
    return Loaded(
        module,
        described,
        addresses,
        [
            (addresses[name], arena.offsets[name][1])
            for name in arena.zeroed
            if arena.offsets[name][1]
        ],
    )


def _peer_outputs(
    outputs: dict[str, torch.Tensor], workload: dict[str, Any], path: Path
) -> dict[str, str]:
    """The elements of each output in logical order, in files."""
    shapes = {
        one["name"]: (list(one["shape"]), TORCH_TYPES[one["dtype"]]) for one in workload["tensors"]
    }
    found = {}
    for name, tensor in outputs.items():
        if (list(tensor.shape), tensor.dtype) != shapes[name]:
            raise ValueError(f"its {name} is {tensor.dtype} {list(tensor.shape)}")
        found[name] = f"{path}-{name}"
        tensor.contiguous().view(torch.uint8).cpu().numpy().tofile(found[name])
    return found


class PeerCall:
    """One pass of a peer over one set of inputs; the memory of its outputs is taken again each time."""

    def __init__(self, run, inputs: dict[str, torch.Tensor]) -> None:
        self._run, self._inputs = run, inputs
        self.outputs: dict[str, torch.Tensor] | None = None

    def launch(self, stream: cupy.cuda.Stream) -> None:
        self.outputs = None
        self.outputs = self._run(self._inputs)


class PeerStopwatch(Stopwatch):
    """The same watch over graphs that PyTorch captures, since its allocator has to know of them."""

    def __init__(
        self, ring: list[PeerCall], stream: cupy.cuda.Stream, deadline_s: float, torch_stream
    ) -> None:
        self._torch_stream = torch_stream
        super().__init__(ring, stream, deadline_s)

    def _graph(self, nodes: int) -> TorchGraph:
        return TorchGraph(self._ring, nodes, self._torch_stream)

    def again(self) -> None:
        """Once more what was timed: the longer graph, whose outputs the ring holds, with poison in them."""
        self._next = 0
        for call in self._ring:
            for tensor in call.outputs.values():
                tensor.fill_(float("nan"))
        self._graphs[-1].launch() if self.nodes else self._launch_next()


class TorchGraph:
    """A captured run of passes that starts like CuPy's graphs do."""

    def __init__(self, ring: list[PeerCall], nodes: int, stream) -> None:
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream):
            for number in range(nodes):
                ring[number % len(ring)].launch(stream)

    def launch(self) -> None:
        self._graph.replay()  # on PyTorch's current stream, which is ours
