"""All measurements of the runtime in one go, for scarce time on a GPU.

    python -m bench.gpu.runtime_all FOLDER [--pool] [--seconds 240]

It first looks at what can break (loading, capture, threads, streams, torch.compile, CuPy, JAX,
compiling without a cubin), then runs runtime_overhead, runtime_calls and end_to_end. Each part
writes its JSON file as soon as it is done, and a part that fails does not keep the next from
running.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.gpu import checked_calls, end_to_end, runtime_calls, runtime_overhead, runtime_shapes
from bench.gpu.measured_gpu import set_name, visible_model
from bench.results import Row, write_json


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pool", action="store_true")
    parser.add_argument("--seconds", type=float, default=240.0)
    options = parser.parse_args()
    require_gpu()
    options.folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Callable[[], Any]] = {
        "checks": lambda: {"rows": checks()},
        "overhead": lambda: _rows(*runtime_overhead.measured()),
        "calls": lambda: _calls(500, 1),
        "end_to_end": lambda: {
            "rows": [end_to_end.measured(case, compiled=True) for case in end_to_end.cases()]
        },
        "table": lambda: _table(options.seconds, options.pool),
    }
    failed = 0
    for name, part in parts.items():
        began = time.perf_counter()
        result: Row = {"environment": runtime_calls.environment()}
        try:
            result.update(part())
        except Exception:
            result["error"] = traceback.format_exc()[-3000:]
            failed += 1
        result["seconds"] = round(time.perf_counter() - began, 1)
        write_json(options.folder / f"runtime_{name}.json", result)
        print(json.dumps({name: shown(result, name)}), flush=True)
    return 1 if failed else 0


def shown(result: Row, name: str) -> Any:
    """What of a part goes to the terminal; the table prints its rows itself."""
    if "error" in result:
        return result["error"]
    return result["summary"] if name == "table" else result["rows"]


def _rows(rows: list[Row], notes: Row) -> Row:
    return {"rows": rows, "unavailable": notes}


def _calls(count: int, seed: int) -> Row:
    outcome = checked_calls.calls_in_children(count, seed)
    return {"rows": [outcome.pop("counts")], **outcome}


def _table(seconds: float, pool: bool) -> Row:
    rows = runtime_calls.table(seconds, runtime_shapes.shapes(), pool=pool)
    return {"rows": rows, "summary": runtime_calls.summary(rows)}


# ---- what can break ----


def checks() -> list[Row]:
    rows = []
    for check in (
        device,
        rebound,
        capture,
        capture_of_a_first_call,
        threads,
        streams,
        scratch,
        compiled,
        dynamic,
        gradients,
        cupy_arrays,
        jax_arrays,
        without_cubins,
        rms_norm,
    ):
        began = time.perf_counter()
        try:
            row = {"check": check.__name__, "result": check()}
        except Exception:
            row = {"check": check.__name__, "error": traceback.format_exc()[-1500:]}
        rows.append({**row, "seconds": round(time.perf_counter() - began, 2)})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def _inputs(batch: int = 2, heads: int = 8, rows: int = 256) -> tuple[Any, Any, Any]:
    import torch

    return tuple(
        torch.randn(batch, heads, rows, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3)
    )


def _difference(ours: Any, theirs: Any) -> float:
    return end_to_end.relative(ours, theirs)


def _sdpa(*arguments: Any, **settings: Any) -> Any:
    import torch

    return torch.nn.functional.scaled_dot_product_attention(*arguments, **settings)


def device() -> Row:
    import greenfast
    from greenfast.runtime.driver import device_facts

    q, k, v = _inputs()
    explanation = greenfast.explain(greenfast.attention, q, k, v)
    return {
        "facts": dataclasses.asdict(device_facts(0)),
        "said": str(explanation),
        "difference": _difference(greenfast.attention(q, k, v), _sdpa(q, k, v)),
    }


def rebound() -> Row:
    """First and second call of a new signature, on the host."""
    import torch

    import greenfast

    q, k, v = _inputs(rows=200)
    times = []
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        greenfast.attention(q, k, v)
        times.append((time.perf_counter() - begin) * 1e6)
    q, k, v = _inputs(rows=201)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    greenfast.attention(q, k, v)
    return {
        "first_us": times[0],
        "later_us": times[1:],
        "new_shape_us": (time.perf_counter() - begin) * 1e6,
    }


def capture() -> Row:
    import torch

    import greenfast

    q, k, v = _inputs()
    greenfast.attention(q, k, v)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = greenfast.attention(q, k, v)
    q.normal_()
    graph.replay()
    return {"difference": _difference(o, _sdpa(q, k, v))}


def capture_of_a_first_call() -> Row:
    """A kernel that is not loaded yet is loaded while the stream captures."""
    import torch

    import greenfast

    q, k, v = _inputs(1, 4, 128)
    torch.empty_like(q)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = greenfast.attention(q, k, v, is_causal=True)
    graph.replay()
    return {"difference": _difference(o, _sdpa(q, k, v, is_causal=True))}


def threads() -> Row:
    import torch

    import greenfast

    q, k, v = _inputs()
    expected, worst, errors = _sdpa(q, k, v), [0.0] * 8, []

    def work(number: int) -> None:
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream), torch.no_grad():
                for _ in range(200):
                    o = greenfast.attention(q, k, v)
                stream.synchronize()
            worst[number] = _difference(o, expected)
        except Exception as error:
            errors.append(str(error)[:300])

    torch.cuda.synchronize()
    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    fresh: list[float] = []
    thread = threading.Thread(
        target=lambda: fresh.append(_difference(greenfast.attention(q, k, v), expected))
    )
    thread.start()
    thread.join()
    return {"worst": max(worst), "errors": errors, "default_stream_of_a_new_thread": fresh}


def streams() -> Row:
    """Work that is queued on a side stream must be seen by a call on that stream."""
    import torch

    import greenfast

    q, k, v = _inputs()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        new = torch.randn_like(q)
        o = greenfast.attention(new, k, v)
        expected = _sdpa(new, k, v)
    torch.cuda.synchronize()
    return {"difference": _difference(o, expected)}


def scratch() -> Row:
    """Kernels with scratch memory, zeroed and not, and with two launches; also in a graph."""
    import torch

    from bench.gpu.runtime_pool import Pool
    from bench.gpu.runtime_shapes import Shape

    pool = Pool.of_points(("mma last_block", "mma two_kernels", "mma persistent"))
    shape = Shape("scratch", 2, 8, 8, 256, 256, 64, "none", False)
    q, k, v = _inputs()
    notes: Row = {}
    functions = pool.functions(shape, q, k, v, notes)
    rows = {}
    for name, function in functions.items():
        function()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = function()
        graph.replay()
        graph.replay()
        rows[name] = _difference(o, _sdpa(q, k, v))
    return {"differences": rows, "notes": notes}


def compiled() -> Row:
    import torch

    import greenfast

    def block(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.gelu(greenfast.attention(q * 0.5, k, v, is_causal=True)) + 1

    q, k, v = _inputs()
    rows = {}
    for mode in ("default", "reduce-overhead"):
        with torch.no_grad():
            fast = torch.compile(block, fullgraph=True, mode=mode)
            for _ in range(3):
                o = fast(q, k, v).clone()
        rows[mode] = _difference(o, block(q, k, v))
    return rows


def dynamic() -> Row:
    import torch

    import greenfast

    fast = torch.compile(lambda q, k, v: greenfast.attention(q, k, v) * 2, dynamic=True)
    rows = {}
    with torch.no_grad():
        for length in (128, 200, 700):
            q, k, v = _inputs(rows=length)
            rows[length] = _difference(fast(q, k, v), _sdpa(q, k, v) * 2)
    return rows


def gradients() -> Row:
    import torch

    import greenfast

    q, k, v = (tensor.requires_grad_() for tensor in _inputs())
    greenfast.attention(q, k, v).float().square().sum().backward()
    ours = q.grad.clone()
    q.grad = None
    _sdpa(q, k, v).float().square().sum().backward()
    rows = {"fallback": _difference(ours, q.grad)}
    q.grad = None
    torch.ops.greenfast.attention(q, k, v, "none", None, False).float().square().sum().backward()
    return {**rows, "operator": _difference(q.grad, ours)}


def cupy_arrays() -> Row:
    import cupy
    import torch

    import greenfast

    q, k, v = _inputs()
    arrays = [cupy.from_dlpack(tensor) for tensor in (q, k, v)]
    o = greenfast.attention(*arrays)
    return {
        "type": type(o).__module__,
        "difference": _difference(torch.from_dlpack(o), _sdpa(q, k, v)),
    }


def jax_arrays() -> Row:
    import os

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp
    import torch

    import greenfast

    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (jax.random.normal(key, (2, 8, 256, 64), jnp.bfloat16) for key in keys)
    o = greenfast.attention(q, k, v)
    tensors = [torch.from_dlpack(array) for array in (q, k, v)]
    return {
        "type": type(o).__module__,
        "difference": _difference(torch.from_dlpack(o), _sdpa(*tensors)),
    }


def without_cubins() -> Row:
    """The source compiled by NVRTC, as on a GPU that no cubin of the bundle fits."""
    import dataclasses as data

    import greenfast
    from greenfast.runtime.loaded import LoadedKernels
    from greenfast.runtime.tuned import FOLDER

    loaded = greenfast.load(FOLDER / set_name(visible_model()))
    bare = {
        name: data.replace(program, cubins={}) for name, program in loaded.kernels.programs.items()
    }
    kernels = LoadedKernels(data.replace(loaded.kernels, programs=bare), None)
    q, k, v = _inputs()
    begin = time.perf_counter()
    o = kernels(q, k, v)
    return {
        "seconds": time.perf_counter() - begin,
        "said": str(kernels.explain(q, k, v)),
        "difference": _difference(o, _sdpa(q, k, v)),
    }


def rms_norm() -> Row:
    import torch

    import greenfast

    rows = {}
    for shape in ((1, 8192), (32, 4096), (4, 8, 4096), (4096, 4096), (7, 5120)):
        x, residual = (torch.randn(shape, device="cuda").half() for _ in range(2))
        weight = torch.randn(shape[-1], device="cuda").half()
        y, h = greenfast.rms_norm(x, weight, residual, 1e-5)
        theirs = torch.nn.functional.rms_norm(x + residual, shape[-1:], weight, 1e-5)
        explanation = greenfast.explain(greenfast.rms_norm, x, weight, residual, 1e-5)
        rows[str(shape)] = [_difference(y, theirs), _difference(h, x + residual), str(explanation)]
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
