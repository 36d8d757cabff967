"""Random calls of attention: half inside the rules of the shipped set, half anywhere."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from bench.results import Row
from greenfast.runtime.kernel_set import LIBRARY, Group, KernelSet, Rule
from greenfast.runtime.tuned import set_for

MOST_NUMBERS = 16_000_000  # scores or keys of a call: its float64 reference holds them all
DRAWS = 400  # until a call is small enough; then it lies anywhere
KINDS = ("bhsd", "bhsd", "bshd", "qkv", "padded", "slice", "expanded", "odd")
ODD = ("odd",)  # misaligned, and strides of no 8: attention copies such tensors
MASKS = ("none", "is_causal", "causal_top_left", "causal_bottom_right")
Sizes = tuple[int, int, int, int, int, int]  # B, H, H_kv, S_q, S_kv, D


def random_call(gpu: str) -> tuple[Any, Any, Any, Row]:
    """Inputs and settings; every second call is one that the set of this GPU serves."""
    kernels = set_for("attention", gpu)
    if isinstance(kernels, KernelSet) and random.random() < 0.5:
        return _call_inside(kernels)
    return _call_anywhere()


def _call_inside(kernels: KernelSet) -> tuple[Any, Any, Any, Row]:
    sizes, compiled = served_sizes(kernels)
    kinds = [kind for kind in KINDS if kind not in ODD]
    mask = str(compiled["mask"])
    settings: Row = {"is_causal": True} if mask == "causal_top_left" else {"mask": mask}
    return _call(sizes, _dtype(str(compiled["dtype"])), kinds, settings)


def served_sizes(kernels: KernelSet) -> tuple[Sizes, Mapping[str, Any]]:
    """Sizes that a rule of the set gives to a kernel, and the compile-time values."""
    rules = [
        (group, rule) for group in kernels.groups for rule in group.rules if rule.use != LIBRARY
    ]
    for _ in range(DRAWS):
        group, rule = random.choice(rules)
        sizes = _sizes_of(rule, group)
        batch, heads, _, queries, keys, width = sizes
        if batch * heads * keys * max(queries, width) > MOST_NUMBERS:
            continue
        names = ("B", "H", "H_kv", "S_q", "S_kv")
        values = {**dict(zip(names, sizes[:5], strict=True)), **group.compiled}
        if kernels.choose(values, {}).program is not None:
            return sizes, group.compiled
    raise SystemExit(f"no rule of {kernels.origin} has sizes of {MOST_NUMBERS} scores or fewer")


def _sizes_of(rule: Rule, group: Group) -> Sizes:
    """Drawn within the rule's limits, which are on dims, on B * H or on H // H_kv."""
    limits = {
        condition.value.text: (int(condition.above or 0), int(condition.at_most or 1))
        for condition in rule.conditions
    }

    def drawn(name: str) -> int:
        above, at_most = limits[name]
        return random.randint(above + 1, max(at_most, above + 1))

    queries, keys = drawn("S_q"), drawn("S_kv")
    if limits["S_q"] == limits["S_kv"] and random.random() < 0.8:
        keys = queries  # self-attention
    width = int(group.compiled["D"])
    if "H" in limits:
        return drawn("B"), drawn("H"), drawn("H_kv"), queries, keys, width
    ratio = drawn("H // H_kv")
    heads = max(drawn("B * H") // ratio, 1)
    batch = random.choice([count for count in range(1, heads + 1) if heads % count == 0])
    return batch, heads // batch * ratio, heads // batch, queries, keys, width


def _call_anywhere() -> tuple[Any, Any, Any, Row]:
    dtype = _dtype(random.choice(("bf16", "fp16")) if random.random() > 0.04 else "fp32")
    batch, heads = random.choice((1, 2)), random.choice((4, 8))
    grouped = heads // random.choice((1, 2, 4)) if random.random() < 0.3 else heads
    width = random.choice((32, 64, 96, 128, 256, 40))
    rows = random.randint(1, 700)
    keys = rows if random.random() < 0.5 else random.randint(1, 700)
    settings: Row = {}
    mask = random.choice(MASKS)
    if mask == "is_causal":
        settings["is_causal"] = True
    elif random.random() < 0.9:
        settings["mask"] = mask
    return _call((batch, heads, grouped, rows, keys, width), dtype, KINDS, settings)


def _call(sizes: Sizes, dtype: Any, kinds: Any, settings: Row) -> tuple[Any, Any, Any, Row]:
    batch, heads, grouped, rows, keys, width = sizes
    settings = {"enable_gqa": grouped != heads, **settings}
    if random.random() < 0.3:
        settings["scale"] = random.choice((0.05, 0.125, 1.0))
    if random.random() < 0.3:
        settings["return_lse"] = True
    q = laid_out(random.choice(kinds), (batch, heads, rows, width), dtype)
    k, v = (laid_out(random.choice(kinds), (batch, grouped, keys, width), dtype) for _ in range(2))
    return q, k, v, settings


def _dtype(name: str) -> Any:
    import torch

    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[name]


def laid_out(kind: str, shape: tuple[int, int, int, int], dtype: Any) -> Any:
    """[B, H, S, D] in one of the layouts that models use, and some odd ones."""
    import torch

    batch, heads, rows, width = shape

    def new(*sizes: int) -> Any:
        return torch.randn(sizes, device="cuda").to(dtype)

    if kind == "bshd":
        return new(batch, rows, heads, width).transpose(1, 2)
    if kind == "qkv":
        return new(batch, rows, 3, heads, width)[:, :, 1].transpose(1, 2)
    if kind == "padded":
        return new(batch, heads, rows, width + 8)[..., :width]
    if kind == "slice":
        return new(batch, heads, rows + 3, width)[:, :, 3:]
    if kind == "expanded":
        return new(1, heads, rows, width).expand(batch, heads, rows, width)
    if kind == "odd":
        return new(batch, heads, rows, width + 1)[..., 1:]
    return new(batch, heads, rows, width)
