"""Nanoseconds of CPU time that repeated calls take: greenfast.attention, a loaded bundle.

    python -m bench.speed.call_cost [--save]

Needs PyTorch (any build) and g++, and no GPU: CPU tensors count as those of an H200,
and the driver is the one of the tests, with a launch that does nothing. So it compares versions of
our Python; bench.gpu.runtime_overhead measures times of a GPU's host.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import Row
from greenfast.runtime import driver as driver_module
from greenfast.runtime.tuned import FOLDER
from tests.unit.runtime_bundles import built_stub

BATCH, BATCHES = 1000, 101
# One with a single launch of plain pointers (mma), and one whose tensors have maps (wgmma).
SHAPES = {"plain pointers": (1, 4, 128, 64), "tensor maps": (2, 8, 512, 64)}


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stub = built_stub(Path(folder))
        os.environ[driver_module.LIBRARY_VARIABLE] = str(stub.path)
        stub.reset(0)
        # It returns 0, whatever its arguments.
        driver_module.driver().launch = driver_module.driver().library.cuInit
        rows = [measured(name, function) for name, function in functions().items()]
    for row in rows:
        print(f"{row['way']:44}{row['ns']:8.0f} [{row['low']:.0f}, {row['high']:.0f}]")
    if options.save:
        publish("call_cost", {"rows": rows, "torch": torch_version()})


def torch_version() -> str:
    import torch

    return str(torch.__version__)


def functions() -> dict[str, Callable[[], Any]]:
    import torch

    torch._C._cuda_getCurrentRawStream = lambda device: 0  # a CUDA build needs a GPU for it
    import greenfast
    from greenfast.runtime import frameworks

    frameworks.HOST_DEVICE = 0
    torch.set_grad_enabled(False)
    made: dict[str, Callable[[], Any]] = {}
    for name, shape in SHAPES.items():
        made |= calls(name, *(torch.randn(shape).bfloat16() for _ in range(3)))
    q = torch.randn(SHAPES["plain pointers"]).bfloat16()
    made["torch.empty_like"] = lambda: torch.empty_like(q)
    x, residual = (torch.randn(32, 4096).half() for _ in range(2))
    weight = torch.randn(4096).half()
    made["greenfast.rms_norm"] = lambda: greenfast.rms_norm(x, weight, residual)
    rms_norm = greenfast.load(FOLDER / "rmsnorm-h200.zip")
    made["loaded rmsnorm"] = lambda: rms_norm(x, residual, weight)
    return made


def calls(name: str, q: Any, k: Any, v: Any) -> dict[str, Callable[[], Any]]:
    """A call and the launches below it, on tensors of one shape."""
    import torch

    import greenfast
    from greenfast.runtime import torch_front

    greenfast.attention(q, k, v)
    state = torch_front.explained_attention(q, k, v)
    plan = state.plan  # type: ignore[union-attr]
    others = [torch.empty_like(q) for _ in range(4)]
    outputs = [[tensor.data_ptr() for tensor in (q, k, v, o)] for o in others]
    plan.launch(outputs[0], 0)
    launch, (_, arguments) = plan.driver.launch, plan._free[0].calls[0]
    turn = itertools.count()
    pair = itertools.cycle((q, q.new_empty(q.shape[0] * 2, *q.shape[1:])[::2]))
    loaded = greenfast.load(FOLDER / "attention-h200.zip")
    return {
        f"{name}: the driver's launch": lambda: launch(*arguments),
        f"{name}: plan.launch": lambda: plan.launch(outputs[0], 0),
        f"{name}: plan.launch, other outputs": lambda: plan.launch(outputs[next(turn) % 4], 0),
        f"{name}: greenfast.attention": lambda: greenfast.attention(q, k, v),
        f"{name}: with lse": lambda: greenfast.attention(q, k, v, return_lse=True),
        f"{name}: two layouts in turns": lambda: greenfast.attention(next(pair), k, v),
        f"{name}: loaded bundle": lambda: loaded(q, k, v),
        f"{name}: loaded, with options": lambda: loaded(q, k, v, mask="none", scale=0.125),
        f"{name}: loaded, with lse": lambda: loaded(q, k, v, optional="lse"),
        f"{name}: loaded, two layouts in turns": lambda: loaded(next(pair), k, v),
        f"{name}: loaded, by name": lambda: loaded(q=q, k=k, v=v),
    }


def measured(name: str, function: Callable[[], Any]) -> Row:
    """The median and the quartiles over batches."""
    for _ in range(BATCH):
        function()
    samples = []
    for _ in range(BATCHES):
        began = time.thread_time_ns()
        for _ in range(BATCH):
            function()
        samples.append((time.thread_time_ns() - began) / BATCH)
    low, middle, high = statistics.quantiles(samples, n=4)
    return {"way": name, "ns": middle, "low": low, "high": high, "least": min(samples)}


if __name__ == "__main__":
    main()
