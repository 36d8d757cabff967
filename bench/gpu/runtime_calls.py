"""greenfast.attention on a GPU: 500 random calls beside PyTorch, and 60 shapes beside its peers.

    python -m bench.gpu.runtime_calls OUT.json [--calls 500] [--pool] [--seconds 240] [--dtype fp16]

Every random call has a shape, mask, layout, type, scale and head grouping of its own; half of them
lie inside the rules of the shipped set. Its output is compared with float64 attention on the same
inputs, and its error with that of PyTorch's own. The table times calls inside CUDA graphs. A peer
that is not installed, or does not serve a shape, is named in the row with the reason.

--pool also times other kernels on each shape (the recorded winners and the presets of mma and
wgmma), compiled here, from which bench.gpu.measured_set makes the next set.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import random
import time
from functools import cache
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.gpu.graph_times import times_us
from bench.gpu.random_calls import random_call
from bench.gpu.runtime_pool import Pool
from bench.gpu.runtime_shapes import Shape, shapes
from bench.results import Row, write_json

LARGEST_ERROR = 2.0  # in errors of PyTorch's own operation on the same inputs


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pool", action="store_true")
    parser.add_argument("--seconds", type=float, default=240.0, help="for the table")
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16", help="of the table")
    options = parser.parse_args()
    require_gpu()
    result: Row = {"environment": environment(), "calls": calls(options.calls, options.seed)}
    write_json(options.out, result)
    print(json.dumps({"calls": result["calls"]["counts"]}), flush=True)
    result["table"] = table(options.seconds, pool=options.pool, dtype=options.dtype)
    result["summary"] = summary(result["table"])
    write_json(options.out, result)
    print(json.dumps(result["summary"]), flush=True)
    return 1 if result["calls"]["wrong"] or result["calls"]["faults"] else 0


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


# ---- random calls ----


def calls(count: int, seed: int) -> Row:
    import torch

    import greenfast

    random.seed(seed)
    torch.manual_seed(seed)
    wrong, kernels, faults, refused = [], 0, [], []
    gpu = torch.cuda.get_device_name()
    worst = 0.0
    for number in range(count):
        q, k, v, settings = random_call(gpu)
        with torch.no_grad():
            explanation = greenfast.explain(greenfast.attention, q, k, v, **settings)
            kernels += explanation.kernel is not None
            try:
                got = greenfast.attention(q, k, v, **settings)
            except Exception as error:  # what a call raises is the finding
                kind = refused if torch_refuses(q, k, v, settings) else faults
                kind.append(
                    {"call": number, "error": str(error)[:300], **described(q, k, settings)}
                )
                continue
        for problem in problems(q, k, v, settings, got):
            wrong.append(
                {
                    "call": number,
                    "why": problem,
                    "said": str(explanation),
                    **described(q, k, settings),
                }
            )
        worst = max(worst, last_ratio())
    counts = {
        "calls": count,
        "kernels": kernels,
        "fallbacks": count - kernels,
        "wrong": len(wrong),
        "refused_by_torch": len(refused),
        "faults": len(faults),
        "worst_error_ratio": worst,
    }
    return {
        "counts": counts,
        "wrong": wrong[:20],
        "faults": faults[:20],
        "refused_by_torch": refused[:20],
        "seed": seed,
    }


def described(q: Any, k: Any, settings: Row) -> Row:
    return {
        "q": [list(q.shape), list(q.stride()), str(q.dtype)],
        "k": [list(k.shape), list(k.stride())],
        "settings": {name: str(value)[:40] for name, value in settings.items()},
    }


def torch_refuses(q: Any, k: Any, v: Any, settings: Row) -> bool:
    """Whether PyTorch's own operation raises on these inputs, too."""
    from greenfast.runtime.fallbacks import torch_attention

    mask = settings.get("mask") or ("causal_top_left" if settings.get("is_causal") else "none")
    try:
        torch_attention(q, k, v, mask, settings.get("scale"), lse=False, grouped=True)
    except RuntimeError:
        return True
    return False


_RATIO = [0.0]


def last_ratio() -> float:
    return _RATIO[0]


def problems(q: Any, k: Any, v: Any, settings: Row, got: Any) -> list[str]:
    """What is wrong with a result: shape, type, NaN, or an error beyond PyTorch's."""
    import torch

    from greenfast.runtime.fallbacks import torch_attention

    mask = settings.get("mask") or ("causal_top_left" if settings.get("is_causal") else "none")
    exact, exact_lse = exact_attention(q, k, v, mask, settings.get("scale"))
    lse = settings.get("return_lse", False)
    o = got[0] if lse else got
    with torch.no_grad():
        torchs = torch_attention(q, k, v, mask, settings.get("scale"), lse=False, grouped=True)["o"]
    faults_seen = []
    if o.shape != q.shape or o.dtype != q.dtype:
        faults_seen.append(f"o is {o.dtype} {tuple(o.shape)}")
        return faults_seen
    error = (o.double() - exact).norm().item()
    own = (torchs.double() - exact).norm().item()
    floor = 1e-3 * exact.norm().item() * (1e-3 if q.dtype == torch.float32 else 1.0)
    _RATIO[0] = error / max(own, floor, 1e-12)
    if not error <= LARGEST_ERROR * max(own, floor):
        faults_seen.append(f"error {error:.3g}; PyTorch's {own:.3g}")
    if lse:
        finite = torch.isfinite(exact_lse)
        same = torch.isclose(got[1].double(), exact_lse, rtol=1e-3, atol=2e-2)
        if not bool((same | (~finite & (got[1].double() == exact_lse))).all()):
            faults_seen.append("lse differs")
    return faults_seen


def exact_attention(q: Any, k: Any, v: Any, mask: str, scale: float | None) -> tuple[Any, Any]:
    """Attention in float64; rows without keys give 0 and -inf."""
    import torch

    repeats = q.shape[1] // k.shape[1]
    keys, values = (tensor.double().repeat_interleave(repeats, 1) for tensor in (k, v))
    scores = q.double() @ keys.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if mask != "none":
        diagonal = k.shape[2] - q.shape[2] if mask == "causal_bottom_right" else 0
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(diagonal)
        scores = scores.masked_fill(~seen, float("-inf"))
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse.masked_fill(torch.isneginf(lse), 0.0)[..., None])
    return weights @ values, lse


# ---- the table ----


def table(seconds: float, *, pool: bool, dtype: str = "bf16") -> list[Row]:
    import torch

    kernels = Pool(dtype=dtype) if pool else None
    rows, began = [], time.perf_counter()
    for shape in shapes():
        if time.perf_counter() - began > seconds:
            rows.append({"shape": shape.name, "skipped": "no time was left"})
            continue
        with torch.no_grad():
            rows.append(measured(shape, kernels, dtype))
        print(json.dumps(brief(rows[-1])), flush=True)
    return rows


def inputs(shape: Shape, dtype: str = "bf16") -> tuple[Any, Any, Any]:
    import torch

    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]

    def new(heads: int, rows: int) -> Any:
        return torch.randn(shape.B, heads, rows, shape.D, device="cuda", dtype=kind)

    return new(shape.H, shape.S_q), new(shape.H_kv, shape.S_kv), new(shape.H_kv, shape.S_kv)


def measured(shape: Shape, pool: Pool | None, dtype: str = "bf16") -> Row:
    import torch

    import greenfast

    q, k, v = inputs(shape, dtype)
    settings = {"is_causal": shape.is_causal, "enable_gqa": shape.H_kv != shape.H}
    functions = {"greenfast": lambda: greenfast.attention(q, k, v, **settings)}
    notes: Row = {}
    for name, function in peers(shape, q, k, v, notes).items():
        try:
            o = function()
            torch.cuda.synchronize()
            if why := differs(o, q, k, v, shape):
                raise ValueError(why)
        except Exception as error:  # a peer that does not serve the shape
            notes[name] = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
            continue
        functions[name] = function
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


@cache
def flash_attention_4() -> tuple[Any, str]:
    """FlashAttention-4's function, or None and why it cannot be called here."""
    try:
        return importlib.import_module("flash_attn.cute").flash_attn_func, ""
    except Exception as error:  # its own imports fail in many ways beside other releases
        return None, f"flash_attn.cute cannot be imported: {type(error).__name__}: {error}"[:200]


def flash_attention_4_version() -> str | None:
    if flash_attention_4()[0] is None:
        return None
    try:
        return importlib.metadata.version("flash-attn-4")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def differs(o: Any, q: Any, k: Any, v: Any, shape: Shape) -> str:
    """Why an output is not attention of these inputs; empty when it is close to PyTorch's."""
    import torch

    theirs = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=shape.is_causal, enable_gqa=shape.H_kv != shape.H
    )
    error = (o.float() - theirs.float()).norm() / theirs.float().norm()
    return "" if error.item() < 0.02 else f"wrong: relative error {error.item():.3g}"


FLASH_4 = "flash-attention-4"
PEERS = ("torch-default", "torch-cudnn", "torch-flash", FLASH_4)


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
