"""greenfast.attention on a GPU: 500 random calls beside PyTorch, and 60 shapes beside its peers.

    python -m bench.gpu.runtime_calls OUT.json [--calls 500] [--pool] [--seconds 240] [--dtype fp16]
                                       [--heads]

Every random call has a shape, mask, layout, type, scale and head grouping of its own; half of them
lie inside the rules of the shipped set. Its output is compared with float64 attention on the same
inputs, and its error with that of PyTorch's own. The table times calls inside CUDA graphs. A peer
that is not installed, or does not serve a shape, is named in the row with the reason.

--pool also times other kernels on each shape (the recorded winners and the presets of mma and
wgmma), compiled here, from which bench.gpu.measured_set makes the next set. --heads times the
shapes of head_shapes in the place of the sixty.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.command_line import require_gpu, script_parser
from bench.gpu.checked_calls import calls_in_children
from bench.gpu.flash_3 import FLASH_3, flash_attention_3
from bench.gpu.flash_4 import flash_attention_4, flash_attention_4_version
from bench.gpu.graph_times import times_us
from bench.gpu.head_shapes import head_shapes
from bench.gpu.runtime_shapes import Shape, shapes
from bench.results import Row, write_json

if TYPE_CHECKING:
    from bench.gpu.runtime_pool import Pool


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pool", action="store_true")
    parser.add_argument("--seconds", type=float, default=240.0, help="for the table")
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16", help="of the table")
    parser.add_argument("--heads", action="store_true", help="heads of other sizes")
    options = parser.parse_args()
    require_gpu()
    called = calls_in_children(options.calls, options.seed)
    result: Row = {"environment": environment(), "calls": called}
    write_json(options.out, result)
    print(json.dumps({"calls": result["calls"]["counts"]}), flush=True)
    result["table"] = table(
        options.seconds,
        head_shapes() if options.heads else shapes(),
        pool=options.pool,
        dtype=options.dtype,
    )
    result["summary"] = summary(result["table"])
    write_json(options.out, result)
    print(json.dumps(result["summary"]), flush=True)
    return 1 if any(called["counts"][name] for name in ("wrong", "faults", "died")) else 0


def environment() -> Row:
    import torch

    import greenfast

    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "greenfast": greenfast.__version__,
        FLASH_4: flash_attention_4_version(),
    }


# ---- the table ----


def table(seconds: float, some: Sequence[Shape], *, pool: bool, dtype: str = "bf16") -> list[Row]:
    import torch

    kernels = compiled_pool(dtype) if pool else None
    rows, began = [], time.perf_counter()
    for shape in some:
        if time.perf_counter() - began > seconds:
            rows.append({"shape": shape.name, "skipped": "no time was left"})
            continue
        with torch.no_grad():
            rows.append(measured(shape, kernels, dtype))
        print(json.dumps(brief(rows[-1])), flush=True)
    return rows


def compiled_pool(dtype: str) -> Pool:
    """It needs the compiler and the search's packages; the shipped set needs neither."""
    from bench.gpu.runtime_pool import Pool

    return Pool(dtype=dtype)


def inputs(shape: Shape, dtype: str = "bf16") -> tuple[Any, Any, Any]:
    import torch

    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]

    def new(heads: int, rows: int) -> Any:
        return torch.randn(shape.B, heads, rows, shape.D, device="cuda", dtype=kind)

    return new(shape.H, shape.S_q), new(shape.H_kv, shape.S_kv), new(shape.H_kv, shape.S_kv)


def measured(shape: Shape, pool: Pool | None, dtype: str = "bf16") -> Row:
    import greenfast

    q, k, v = inputs(shape, dtype)
    settings = {"is_causal": shape.is_causal, "enable_gqa": shape.H_kv != shape.H}
    functions = {"greenfast": lambda: greenfast.attention(q, k, v, **settings)}
    notes: Row = {}
    functions |= usable_peers(shape, dtype, q, k, v, notes)
    if pool is not None:
        functions |= pool.functions(shape, q, k, v, notes)
    explanation = greenfast.explain(greenfast.attention, q, k, v, **settings)
    times = times_us(functions)
    return {
        "shape": shape.name,
        "dims": {name: getattr(shape, name) for name in ("B", "H", "H_kv", "S_q", "S_kv", "D")},
        "dtype": dtype,
        "mask": shape.mask,
        "tuned": shape.tuned,
        "kernel": explanation.kernel,
        "why": explanation.why,
        "times": times,
        "unavailable": notes,
    }


def usable_peers(shape: Shape, dtype: str, q: Any, k: Any, v: Any, notes: Row) -> dict[str, Any]:
    """Peers that serve the shape, and are right on it; `notes` takes the reasons of the others."""
    import torch

    functions = peers(shape, q, k, v, notes)
    function, why = flash_attention_3(shape, dtype, q, k, v)
    if function is None:
        notes[FLASH_3] = why
    else:
        functions[FLASH_3] = function
    usable = {}
    for name, function in functions.items():
        try:
            o = function()
            torch.cuda.synchronize()
            if why := differs(o, q, k, v, shape):
                raise ValueError(why)
        except Exception as error:  # a peer that does not serve the shape
            notes[name] = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
            continue
        usable[name] = function
    return usable


def peers(shape: Shape, q: Any, k: Any, v: Any, notes: Row | None = None) -> dict[str, Any]:
    """Calls of the peers; `notes` takes the reason of one that cannot be called."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    sdpa = torch.nn.functional.scaled_dot_product_attention
    settings = {"is_causal": shape.is_causal, "enable_gqa": shape.H_kv != shape.H}

    def backend(which: Any) -> Any:
        def run() -> Any:
            with sdpa_kernel(which):
                return sdpa(q, k, v, **settings)

        return run

    functions: dict[str, Any] = {
        "torch-default": lambda: sdpa(q, k, v, **settings),
        "torch-cudnn": backend(SDPBackend.CUDNN_ATTENTION),
        "torch-flash": backend(SDPBackend.FLASH_ATTENTION),
    }
    attend, why = flash_attention_4()
    if shape.mask != "none" and shape.S_q != shape.S_kv:
        attend, why = None, "its causal mask is aligned to the bottom right"
    if attend is None:
        if notes is not None:
            notes[FLASH_4] = why
        return functions

    def flash_4() -> Any:
        o = attend(*(tensor.transpose(1, 2) for tensor in (q, k, v)), causal=shape.is_causal)
        return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)

    return {**functions, FLASH_4: flash_4}


def differs(o: Any, q: Any, k: Any, v: Any, shape: Shape) -> str:
    """Why an output is not attention of these inputs; empty when it is close to PyTorch's."""
    import torch

    theirs = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=shape.is_causal, enable_gqa=shape.H_kv != shape.H
    )
    error = (o.float() - theirs.float()).norm() / theirs.float().norm()
    return "" if error.item() < 0.02 else f"wrong: relative error {error.item():.3g}"


FLASH_4 = "flash-attention-4"
PEERS = ("torch-default", "torch-cudnn", "torch-flash", FLASH_3, FLASH_4)


def brief(row: Row) -> Row:
    times = row["times"]
    best_peer = min((name for name in PEERS if name in times), key=lambda name: times[name]["us"])
    own = {name: item["us"] for name, item in times.items() if name not in (*PEERS, "greenfast")}
    best_own = min(own, key=lambda name: own[name], default=None)
    return {
        "shape": row["shape"],
        "us": round(times["greenfast"]["us"], 2),
        "kernel": row["kernel"],
        "peer": best_peer,
        "peer_us": round(times[best_peer]["us"], 2),
        "pool": best_own and best_own[:60],
        "pool_us": best_own and round(own[best_own], 2),
    }


def summary(rows: list[Row]) -> Row:
    """Geometric mean and worst ratio to the best peer, as called, and as the pool could be."""
    from math import exp, log

    timed = [row for row in rows if "times" in row]
    if not timed:
        return {"shapes": 0}
    called, possible = [], []
    for row in timed:
        times = row["times"]
        peer = min(times[name]["us"] for name in PEERS if name in times)
        called.append((times["greenfast"]["us"] / peer, row["shape"]))
        own = [item["us"] for name, item in times.items() if name not in PEERS]
        possible.append(min(*own, peer) / peer if own else 1.0)
    return {
        "shapes": len(timed),
        "geometric_mean": exp(sum(log(ratio) for ratio, _ in called) / len(called)),
        "worst": max(called),
        "possible_geometric_mean": exp(sum(map(log, possible)) / len(possible)),
        "by_kernels": sum(row["kernel"] is not None for row in timed),
    }


if __name__ == "__main__":
    raise SystemExit(main())
