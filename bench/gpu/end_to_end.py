"""A vision transformer and a decoder block with random weights, before and after greenfast.

    python -m bench.gpu.end_to_end OUT.json

Each model runs with torch's scaled_dot_product_attention, and with greenfast.attention in its
place: eagerly, in a CUDA graph, and under torch.compile. Outputs are compared with a float32 run
of the same weights. The shapes are public: ViT-B/16 at 224 pixels and Llama-3.2-1B's block.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.gpu.graph_times import times_us
from bench.gpu.runtime_calls import environment
from bench.results import Row, write_json


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--without-compile", action="store_true")
    options = parser.parse_args()
    require_gpu()
    result: Row = {"environment": environment(), "rows": []}
    for case in cases():
        result["rows"].append(measured(case, compiled=not options.without_compile))
        write_json(options.out, result)
        print(json.dumps(result["rows"][-1]), flush=True)
    return 0


def cases() -> list[Row]:
    vit = {"width": 768, "heads": 12, "kv_heads": 12, "layers": 12, "causal": False}
    llama = {"width": 2048, "heads": 32, "kv_heads": 8, "layers": 4, "causal": True}
    return [
        {"name": "ViT-B/16, 1 image", "unit": "images", "batch": 1, "tokens": 197, **vit},
        {"name": "ViT-B/16, 8 images", "unit": "images", "batch": 8, "tokens": 197, **vit},
        {
            "name": "Llama-3.2-1B block, 256 tokens",
            "unit": "tokens",
            "batch": 1,
            "tokens": 256,
            **llama,
        },
        {
            "name": "Llama-3.2-1B block, 1024 tokens",
            "unit": "tokens",
            "batch": 1,
            "tokens": 1024,
            **llama,
        },
    ]


def model(case: Row, attend: Callable[..., Any]) -> Any:
    """Pre-norm blocks of attention and an MLP; weights follow from a seed."""
    import torch
    from torch import nn

    width, heads, kv_heads = case["width"], case["heads"], case["kv_heads"]
    head = width // heads

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
            self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * head, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.up = nn.Linear(width, 4 * width, bias=False)
            self.down = nn.Linear(4 * width, width, bias=False)

        def forward(self, x: Any) -> Any:
            batch, tokens, _ = x.shape
            mixed = self.qkv(self.first(x)).view(batch, tokens, heads + 2 * kv_heads, head)
            q, k, v = mixed.transpose(1, 2).split((heads, kv_heads, kv_heads), dim=1)
            o = attend(q, k, v, is_causal=case["causal"], enable_gqa=heads != kv_heads)
            x = x + self.out(o.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.down(nn.functional.gelu(self.up(self.second(x))))

    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(case["layers"]))).cuda().bfloat16().eval()


def measured(case: Row, *, compiled: bool) -> Row:
    import torch

    import greenfast

    sdpa = torch.nn.functional.scaled_dot_product_attention
    torch.manual_seed(1)
    x = torch.randn(case["batch"], case["tokens"], case["width"], device="cuda").bfloat16()
    with torch.no_grad():
        models = {"torch": model(case, sdpa), "greenfast": model(case, greenfast.attention)}
        exact = model(case, sdpa).float()(x.float())
        outputs = {name: run(x) for name, run in models.items()}
        q = (
            torch.empty(
                case["batch"],
                case["tokens"],
                case["heads"] + 2 * case["kv_heads"],
                case["width"] // case["heads"],
                device="cuda",
            )
            .bfloat16()
            .transpose(1, 2)
        )
        parts = q.split((case["heads"], case["kv_heads"], case["kv_heads"]), dim=1)
        explanation = greenfast.explain(
            greenfast.attention,
            *parts,
            is_causal=case["causal"],
            enable_gqa=case["heads"] != case["kv_heads"],
        )
        row: Row = {
            "model": case["name"],
            "kernel": explanation.kernel,
            "why": explanation.why,
            "error": {
                name: ((output.float() - exact).norm() / exact.norm()).item()
                for name, output in outputs.items()
            },
            "difference": relative(outputs["greenfast"], outputs["torch"]),
            "eager_us": {name: eager_us(lambda run=run: run(x)) for name, run in models.items()},
            "graph_us": {
                name: item["us"]
                for name, item in times_us(
                    {name: lambda run=run: run(x) for name, run in models.items()},
                    drop_above=10.0,
                ).items()
            },
        }
        if compiled:
            row["compiled"] = compiled_row(models, x, outputs["torch"])
    count = case["batch"] * (1 if case["unit"] == "images" else case["tokens"])
    row[f"{case['unit']}_per_second"] = {
        name: count / time_us * 1e6 for name, time_us in row["graph_us"].items()
    }
    return row


def compiled_row(models: dict[str, Any], x: Any, expected: Any) -> Row:
    import torch

    try:
        runs = {name: torch.compile(run, fullgraph=True) for name, run in models.items()}
        outputs = {name: run(x) for name, run in runs.items()}
        return {
            "difference": relative(outputs["greenfast"], expected),
            "graph_us": {
                name: item["us"]
                for name, item in times_us(
                    {name: lambda run=run: run(x) for name, run in runs.items()}, drop_above=10.0
                ).items()
            },
        }
    except Exception as error:  # Inductor needs a working Triton; the row says what it lacked
        return {"error": f"{type(error).__name__}: {error}"[:600]}


def relative(ours: Any, theirs: Any) -> float:
    return float(((ours.float() - theirs.float()).norm() / theirs.float().norm()).item())


def eager_us(function: Callable[[], Any]) -> float:
    import torch

    samples = []
    for _ in range(12):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(5):
            function()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - begin) / 5 * 1e6)
    return statistics.median(samples[2:])


if __name__ == "__main__":
    raise SystemExit(main())
