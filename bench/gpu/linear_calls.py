"""greenfast.linear as called on a GPU: random calls beside float64, and real layers beside PyTorch.

    python -m bench.gpu.linear_calls OUT.json [--calls 300] [--seconds 120]

Every random call has sizes, a form, a type and a layout of its own; half of them lie inside the
rules of the shipped set. Its error is compared with that of PyTorch's operations. The table times
calls inside CUDA graphs, in turns: PyTorch's operations one after another, the same under
torch.compile, and for bias with GELU cuBLASLt's epilogue (torch._addmm_activation). Half of its
shapes are no points of the grid that the set was made from.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from math import exp, log
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.gpu.graph_times import times_us
from bench.gpu.linear_pool import FORMS, PRODUCT, Form, inputs, library
from bench.gpu.runtime_calls import environment
from bench.results import Row, write_json
from greenfast.runtime.fallbacks import torch_linear
from greenfast.runtime.kernel_set import LIBRARY, KernelSet
from greenfast.runtime.tuned import set_for

LARGEST_ERROR = 1.5  # in errors of PyTorch's operations, which round more often
MOST_PRODUCTS = 2**33
KEPT = 20
EAGER, COMPILED, EPILOGUE = "torch", "torch.compile", "torch._addmm_activation"
BIAS, ADD = Form(bias=True), Form(bias=True, residual=True)
GELU, SILU = Form("gelu_tanh", bias=True), Form("silu")
# Layers of public models at numbers of tokens that are, or are not, on the grid of linear_times.
LAYERS: tuple[tuple[str, int, int, int, Form], ...] = (
    ("ViT-L up, 8 images of 577 tokens", 4616, 4096, 1024, GELU),
    ("ViT-L down, 8 images of 577 tokens", 4616, 1024, 4096, ADD),
    ("ViT-L qkv, 8 images of 577 tokens", 4616, 3072, 1024, BIAS),
    ("ViT-L out, 8 images of 577 tokens", 4616, 1024, 1024, ADD),
    ("ViT-B up, 32 images of 197 tokens", 6304, 3072, 768, GELU),
    ("ViT-B down, 32 images of 197 tokens", 6304, 768, 3072, ADD),
    ("BERT-base up, 32 x 128 tokens", 4096, 3072, 768, GELU),
    ("BERT-base down, 32 x 128 tokens", 4096, 768, 3072, ADD),
    ("BERT-base out, 32 x 128 tokens", 4096, 768, 768, ADD),
    ("GPT-2 XL up, 2048 tokens", 2048, 6400, 1600, GELU),
    ("GPT-2 XL down, 2048 tokens", 2048, 1600, 6400, ADD),
    ("GPT-2 XL up, 16 tokens", 16, 6400, 1600, GELU),
    ("Llama-3 8B out, 2048 tokens", 2048, 4096, 4096, Form(residual=True)),
    ("Llama-3 8B down, 2048 tokens", 2048, 4096, 14336, Form(residual=True)),
    ("Llama-3 8B down, 700 tokens", 700, 4096, 14336, Form(residual=True)),
    ("Llama-3 8B gate, 1024 tokens", 1024, 14336, 4096, SILU),
    ("Llama-3 8B gate, 300 tokens", 300, 14336, 4096, SILU),
    ("Llama-3 8B out, 64 tokens", 64, 4096, 4096, Form(residual=True)),
    ("Llama-3 8B down, 64 tokens", 64, 4096, 14336, Form(residual=True)),
    ("Llama-3 8B down, 8 tokens", 8, 4096, 14336, Form(residual=True)),
    ("Llama-3 8B qkv, 512 tokens", 512, 6144, 4096, PRODUCT),
    ("Llama-3 8B qkv, 16 tokens", 16, 6144, 4096, PRODUCT),
    ("Qwen2.5 7B qkv, 1024 tokens", 1024, 4608, 3584, BIAS),
    ("Qwen2.5 7B down, 1024 tokens", 1024, 3584, 18944, Form(residual=True)),
)


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120.0, help="for the table")
    options = parser.parse_args()
    require_gpu()
    result: Row = {"environment": environment(), "calls": calls(options.calls, options.seed)}
    print(json.dumps(result["calls"]["counts"]), flush=True)
    write_json(options.out, result)
    result["rows"] = []
    ends = time.perf_counter() + options.seconds
    for dtype in ("bf16", "fp16"):
        for layer in LAYERS:
            if time.perf_counter() < ends:
                result["rows"].append(measured(*layer, dtype))
                print(json.dumps(brief(result["rows"][-1])), flush=True)
    result["summary"] = summary(result["rows"])
    write_json(options.out, result)
    print(json.dumps(result["summary"]), flush=True)
    return 1 if result["calls"]["counts"]["wrong"] else 0


# ---- random calls ----


def calls(count: int, seed: int) -> Row:
    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    kernels = set_for("gemm", torch.cuda.get_device_name())
    wrong: list[Row] = []
    by_kernel, worst = 0, 0.0
    for number in range(count):
        form, dtype, m, n, k = _drawn(kernels)
        tensors = _laid_out(inputs(form, m, n, k, dtype))
        with torch.no_grad():
            kernel, ratio = checked(form, tensors)
        by_kernel += kernel is not None
        worst = max(worst, ratio)
        if not ratio <= LARGEST_ERROR:
            row = {"call": number, "kernel": kernel, "ratio": ratio, "form": form.name}
            strides = {name: [*item.shape, *item.stride()] for name, item in tensors.items()}
            wrong.append({**row, "dtype": dtype, "tensors": strides})
    counts = {"calls": count, "kernels": by_kernel, "wrong": len(wrong), "worst": worst}
    return {"counts": counts, "wrong": wrong[:KEPT], "seed": seed}


def _drawn(kernels: KernelSet | str) -> tuple[Form, str, int, int, int]:
    if isinstance(kernels, KernelSet) and random.random() < 0.5:
        choices = [(g, r) for g in kernels.groups for r in g.rules if r.use != LIBRARY]
        while choices:
            group, rule = random.choice(choices)
            limits = {
                condition.value.text: (int(condition.above or 0), int(condition.at_most or 1))
                for condition in rule.conditions
            }
            m = random.randint(limits["M"][0] + 1, limits["M"][1])
            n, k = (
                random.randint(limits[name][0] // 8 + 1, limits[name][1] // 8) * 8 for name in "NK"
            )
            values = {**group.compiled, "M": m, "N": n, "K": k}
            if m * n * k <= MOST_PRODUCTS and kernels.choose(values, {}).program is not None:
                form = next(
                    each
                    for each in FORMS
                    if each.compiled(group.compiled["dtype"]) == dict(group.compiled)  # type: ignore[arg-type]
                )
                return form, str(group.compiled["dtype"]), m, n, k
    dtype = random.choice(("bf16", "fp16"))
    m, n, k = random.randint(1, 3000), random.randint(1, 3000), random.randint(1, 3000)
    if random.random() < 0.8:
        n, k = -(-n // 8) * 8, -(-k // 8) * 8
    return random.choice(FORMS), dtype, m, n, k


def _laid_out(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Some as parts of wider matrices, some beginning at an odd element."""
    import torch

    result = dict(tensors)
    for name, tensor in tensors.items():
        gap = random.choice((0, 0, 0, 8, 1)) if tensor.dim() == 2 else 0
        if gap:
            wide = torch.empty(
                tensor.shape[0], tensor.shape[1] + gap, dtype=tensor.dtype, device=tensor.device
            )
            result[name] = wide[:, :-gap].copy_(tensor)
    return result


def checked(form: Form, tensors: Mapping[str, Any]) -> tuple[str | None, float]:
    """The kernel of a call, and the ratio of its error to PyTorch's."""
    import torch

    import greenfast

    given = (tensors["a"], tensors["b"], tensors.get("bias"), form.activation)
    residual = tensors.get("residual")
    kernel = greenfast.explain(greenfast.linear, *given, residual).kernel
    got = greenfast.linear(*given, residual)
    torch.cuda.synchronize()
    theirs = library(form, tensors)()
    exact = torch_linear(
        *(None if item is None else item.double() for item in given[:3]),
        form.activation,
        None if residual is None else residual.double(),
    )
    if got.shape != exact.shape or got.dtype != tensors["a"].dtype:
        return kernel, float("inf")
    floor = 1e-4 * exact.norm().item()
    error = (got.double() - exact).norm().item()
    return kernel, error / max((theirs.double() - exact).norm().item(), floor)


# ---- the table ----

_COMPILED: dict[str, Callable[..., Any]] = {}


def measured(name: str, m: int, n: int, k: int, form: Form, dtype: str) -> Row:
    import torch

    import greenfast

    notes: Row = {}
    with torch.no_grad():
        tensors = inputs(form, m, n, k, dtype)
        given = (tensors["a"], tensors["b"], tensors.get("bias"), form.activation)
        residual = tensors.get("residual")
        functions = {
            "greenfast": lambda: greenfast.linear(*given, residual),
            EAGER: library(form, tensors),
        }
        functions |= _others(form, tensors, notes)
        times = times_us(functions)
        explanation = greenfast.explain(greenfast.linear, *given, residual)
    return {
        "layer": name,
        "dims": {"M": m, "N": n, "K": k},
        "form": form.name,
        "dtype": dtype,
        "kernel": explanation.kernel,
        "times": times,
        "unavailable": notes,
    }


def _others(form: Form, tensors: Mapping[str, Any], notes: Row) -> dict[str, Callable[[], Any]]:
    import torch

    a, b, bias = tensors["a"], tensors["b"], tensors.get("bias")
    residual = tensors.get("residual")
    if form.name not in _COMPILED:
        _COMPILED[form.name] = torch.compile(torch_linear)
    compiled = _COMPILED[form.name]
    functions = {COMPILED: lambda: compiled(a, b, bias, form.activation, residual)}
    if form == GELU:
        functions[EPILOGUE] = lambda: torch._addmm_activation(bias, a, b.t(), use_gelu=True)
    expected = library(form, tensors)().float()
    usable = {}
    for name, function in functions.items():
        try:
            error = (function().float() - expected).norm() / expected.norm()
            torch.cuda.synchronize()
            if not error.item() < 0.02:
                raise ValueError(f"wrong: relative error {error.item():.3g}")
        except Exception as error:  # a peer that is missing, or computes something else
            notes[name] = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
            continue
        usable[name] = function
    return usable


def best_other(row: Row) -> str:
    times = row["times"]
    return min((name for name in times if name != "greenfast"), key=lambda name: times[name]["us"])


def brief(row: Row) -> Row:
    times, best = row["times"], best_other(row)
    return {
        "layer": row["layer"],
        "dtype": row["dtype"],
        "form": row["form"],
        "kernel": row["kernel"],
        "us": round(times["greenfast"]["us"], 2),
        "torch": round(times["greenfast"]["us"] / times[EAGER]["us"], 3),
        "best": [best, round(times["greenfast"]["us"] / times[best]["us"], 3)],
    }


def summary(rows: list[Row]) -> Row:
    """Geometric means and worst ratios, to PyTorch's operations and to the best of its ways."""
    result: Row = {"rows": len(rows), "by_kernels": sum(row["kernel"] is not None for row in rows)}
    for name, other in (("torch", lambda row: EAGER), ("best", best_other)):
        ratios = [row["times"]["greenfast"]["us"] / row["times"][other(row)]["us"] for row in rows]
        result[name] = {
            "geometric_mean": exp(sum(map(log, ratios)) / max(len(ratios), 1)),
            "worst": max(ratios, default=0.0),
        }
    return result


if __name__ == "__main__":
    raise SystemExit(main())
