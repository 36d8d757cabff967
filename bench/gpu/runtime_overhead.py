"""Host time of one call: greenfast's runtime beside other ways to launch the same kernel.

    python -m bench.gpu.runtime_overhead OUT.json

All of them launch the attention kernel of the shipped set for a small shape, thousands of times in
a row; the kernel takes less time than the host. The host's time is that of queueing alone, measured
in batches that the GPU's queue holds. `in_graph_us` is the time of one call inside a CUDA graph.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.gpu.graph_times import times_us
from bench.gpu.measured_gpu import set_name, visible_model
from bench.gpu.runtime_calls import environment
from bench.results import Row, write_json
from greenfast.runtime.driver import MAX_DYNAMIC_SHARED

BARE = "bare cuLaunchKernelEx, ctypes"
BATCH, BATCHES = 200, 60  # calls between two synchronisations


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    options = parser.parse_args()
    require_gpu()
    rows, notes = measured()
    result = {"environment": environment(), "rows": rows, "unavailable": notes}
    write_json(options.out, result)
    print(json.dumps(result), flush=True)
    return 0


def host_us(function: Callable[[], Any]) -> dict[str, float]:
    """The median and the quartiles over batches of the host's time for one call."""
    import torch

    for _ in range(BATCH):
        function()
    torch.cuda.synchronize()
    samples = []
    for _ in range(BATCHES):
        begin = time.perf_counter()
        for _ in range(BATCH):
            function()
        samples.append((time.perf_counter() - begin) / BATCH * 1e6)
        torch.cuda.synchronize()
    low, middle, high = statistics.quantiles(samples, n=4)
    return {"host_us": middle, "low": low, "high": high}


def measured() -> tuple[list[Row], Row]:
    import torch

    require_modes()
    rows, notes = [], {}
    with torch.no_grad():
        functions = ways(notes)
        graphs = times_us(
            {name: function for name, function in functions.items() if name not in NOT_IN_GRAPHS},
            drop_above=100.0,
        )
        for name, function in functions.items():
            row = {"way": name, **host_us(function)}
            if name in graphs:
                row["in_graph_us"] = graphs[name]["us"]
            rows.append(row)
    return rows, notes


def require_modes() -> None:
    """AssertionError where a repeated call forgets autocast, a gradient or a layout."""
    import torch

    import greenfast

    q, k, v = (torch.randn(1, 4, 128, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    for _ in range(3):
        o = greenfast.attention(q, k, v)
    with torch.autocast("cuda", torch.float16):
        assert greenfast.attention(q, k, v).dtype == torch.float16
    assert greenfast.attention(q.clone().requires_grad_(), k, v).requires_grad
    with torch.inference_mode():
        assert torch.equal(greenfast.attention(q, k, v), o)
    stacked = torch.func.vmap(greenfast.attention)(*(item.unsqueeze(1) for item in (q, k, v)))
    assert stacked.shape == (1, 1, 4, 128, 64)
    turned = q.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(greenfast.attention(turned, k, v), o)


# They launch on the stream that was current before, or need gradients.
NOT_IN_GRAPHS = (
    BARE,
    "plan.launch",
    "bare launch and torch.empty_like",
    "greenfast.attention, fallback (gradient)",
    "torch sdpa, gradient",
    "cupy RawModule",
    "cuda.core launch",
    "greenfast.attention, CuPy arrays",
)


def ways(notes: Row) -> dict[str, Callable[[], Any]]:
    import torch

    import greenfast
    from greenfast.runtime import torch_front

    q, k, v = (torch.randn(1, 4, 128, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    greenfast.attention(q, k, v)
    state = torch_front.explained_attention(q, k, v)
    plan = state.plan  # type: ignore[union-attr]
    o = torch.empty_like(q)
    addresses = [tensor.data_ptr() for tensor in (q, k, v, o)]
    stream = torch.cuda.current_stream().cuda_stream
    plan.launch(addresses, stream)
    frame = plan._free[0]
    launch, (place, arguments) = plan.driver.launch, frame.calls[0]
    assert frame.memory[place] == stream
    sdpa = torch.nn.functional.scaled_dot_product_attention
    qg, x = q.clone().requires_grad_(), torch.randn(32, 4096, device="cuda").half()
    weight, residual = torch.randn(4096, device="cuda").half(), torch.randn_like(x)
    layers = itertools.cycle([_inputs_with_maps() for _ in range(8)])
    functions: dict[str, Callable[[], Any]] = {
        BARE: lambda: launch(*arguments),
        "plan.launch": lambda: plan.launch(addresses, stream),
        "greenfast.attention": lambda: greenfast.attention(q, k, v),
        # On wgmma, in the shipped set; tensors of eight layers in turns.
        "greenfast.attention, tensor maps": lambda: greenfast.attention(*next(layers)),
        "greenfast.attention, with lse": lambda: greenfast.attention(q, k, v, return_lse=True),
        "torch.empty_like": lambda: torch.empty_like(q),
        "bare launch and torch.empty_like": lambda: (torch.empty_like(q), launch(*arguments)),
        "torch sdpa": lambda: sdpa(q, k, v),
        "greenfast.attention, fallback (gradient)": lambda: _with_grad(greenfast, qg, k, v),
        "torch sdpa, gradient": lambda: _sdpa_with_grad(sdpa, qg, k, v),
        "torch.ops.greenfast.attention": lambda: torch.ops.greenfast.attention(
            q, k, v, "none", None, False
        ),
        "greenfast.rms_norm": lambda: greenfast.rms_norm(x, weight, residual),
        "torch add and rms_norm": lambda: torch.nn.functional.rms_norm(
            x + residual, (4096,), weight, 1e-6
        ),
    }
    _add(functions, notes, "custom_op", lambda: _custom_op(q, k, v, plan))
    _add(functions, notes, "cupy RawModule", lambda: _cupy(plan, addresses))
    _add(functions, notes, "cuda.core launch", lambda: _cuda_core(plan, addresses))
    _add(functions, notes, "greenfast.attention, CuPy arrays", lambda: _cupy_arrays(greenfast, q))
    _add(functions, notes, "loaded bundle", lambda: _loaded(q, k, v))
    return functions


def _inputs_with_maps() -> tuple[Any, Any, Any]:
    import torch

    q, k, v = (torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    return q, k, v


def _with_grad(greenfast: Any, q: Any, k: Any, v: Any) -> Any:
    import torch

    with torch.enable_grad():
        return greenfast.attention(q, k, v)


def _sdpa_with_grad(sdpa: Any, q: Any, k: Any, v: Any) -> Any:
    import torch

    with torch.enable_grad():
        return sdpa(q, k, v)


def _add(
    functions: dict[str, Callable[[], Any]],
    notes: Row,
    name: str,
    make: Callable[[], Callable[[], Any]],
) -> None:
    try:
        function = make()
        function()
    except Exception as error:  # a package that is missing, or has another interface
        notes[name] = f"{type(error).__name__}: {error}"[:200]
        return
    functions[name] = function


def _loaded(q: Any, k: Any, v: Any) -> Callable[[], Any]:
    import greenfast
    from greenfast.runtime.tuned import FOLDER

    kernels = greenfast.load(FOLDER / set_name(visible_model()))
    return lambda: kernels(q, k, v)


def _custom_op(q: Any, k: Any, v: Any, plan: Any) -> Callable[[], Any]:
    """The same launch as torch.library.custom_op makes it."""
    import torch

    schema = "(Tensor q, Tensor k, Tensor v) -> Tensor"

    @torch.library.custom_op("greenfast_bench::attention", mutates_args=(), schema=schema)
    def operator(q: Any, k: Any, v: Any) -> Any:
        o = torch.empty_like(q)
        plan.launch(
            (q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr()),
            torch._C._cuda_getCurrentRawStream(0),
        )
        return o

    return lambda: operator(q, k, v)


def _scalars(plan: Any) -> list[Any]:
    """The argument list behind the addresses, as CuPy and cuda.core take it."""
    import numpy

    types = {4: numpy.int32, 8: numpy.int64}
    values: list[Any] = []
    for packed in plan.geometry.arguments[4:]:
        kind = types[len(packed)]
        values.append(numpy.frombuffer(packed, kind)[0])
    return values


def _cupy(plan: Any, addresses: list[int]) -> Callable[[], Any]:
    import cupy
    import numpy

    module = cupy.RawModule(path=_cubin_file(plan))
    launch = plan.launches[0]
    function = module.get_function(launch.entry)
    function.max_dynamic_shared_size_bytes = launch.smem_dynamic_bytes
    arguments = (*(numpy.uint64(address) for address in addresses), *_scalars(plan))
    import torch

    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)

    def run() -> None:
        with stream:
            function(launch.grid, launch.block, arguments, shared_mem=launch.smem_dynamic_bytes)

    return run


def _cubin_file(plan: Any) -> str:
    path = Path(tempfile.gettempdir()) / f"{plan.program.source_digest[:12]}.cubin"
    path.write_bytes(next(iter(plan.program.cubins.values())))
    return str(path)


def _cuda_core(plan: Any, addresses: list[int]) -> Callable[[], Any]:
    from cuda.core import Device, LaunchConfig, ObjectCode, launch

    device = Device(0)
    device.set_current()
    shape = plan.launches[0]
    kernel = ObjectCode.from_cubin(_cubin_file(plan)).get_kernel(shape.entry)
    config = LaunchConfig(grid=shape.grid, block=shape.block, shmem_size=shape.smem_dynamic_bytes)
    handle = ctypes.c_void_p(int(getattr(kernel, "handle", None) or kernel._handle))
    if shape.smem_dynamic_bytes:
        plan.driver.library.cuKernelSetAttribute(
            MAX_DYNAMIC_SHARED, shape.smem_dynamic_bytes, handle, 0
        )
    stream = device.default_stream
    arguments = [ctypes.c_uint64(address) for address in addresses]
    scalars = _scalars(plan)
    return lambda: launch(stream, config, kernel, *arguments, *scalars)


def _cupy_arrays(greenfast: Any, q: Any) -> Callable[[], Any]:
    import cupy

    array = cupy.from_dlpack(q)
    from greenfast.runtime.front import attention_elsewhere
    from greenfast.runtime.signatures import AttentionArguments

    return lambda: attention_elsewhere(
        AttentionArguments(array, array, array, None, 0.0, False, None, None, False, False, None)
    )


if __name__ == "__main__":
    raise SystemExit(main())
