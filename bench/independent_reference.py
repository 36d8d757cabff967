"""Attention in float64 and what a right kernel may differ by: written apart from the gate, from the definition alone.

Nothing of search/ or of the kernel's reference.py is imported. `xp` is NumPy, or what works like it. Two bounds, both other than
the gate's:

- elementwise, by perturbing the quotient O = sum_j p_j v_j / sum_j p_j: with each p_j off by a relative e_j of its own,
  |O' - O| <= sum_j w_j e_j |v_j| + |O| sum_j w_j e_j, w_j = p_j / sum p. e_j: the rounding of P, the float32 error of this
  very score (of its own sum of |q k|, not the row's largest), the exponential. Beside it what float32 sums lose and the rounding of O.
- in the mean: roundings are independent and uniform, so their variances add up; the root mean square error of a whole
  tensor is held to 2 times what that gives.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

UNIT = {"fp16": 2.0**-11, "bf16": 2.0**-8}
TINY = {"fp16": 2.0**-25, "bf16": 2.0**-134}
STEP = 2.0**-23
EXP_ERROR = 2.0**-17                 # of an exponential; the worst that a template uses is a polynomial of degree 4
SENTINEL = {"fp16": 0x7E5B, "bf16": 0x7FDB}      # a NaN that no computation gives
LSE_SENTINEL = 0x7FC5A5C5
RMS_FACTOR = 2.0
KINDS = ("plain", "sharp", "offset", "ramp", "grid", "spikes", "huge")
Case = dict[str, Any]


# ---- storage ----

def encoded(values, dtype: str, xp):
    """float64 -> bits of the storage type, rounded to nearest even."""
    if dtype == "fp16":
        return values.astype(xp.float16).view(xp.uint16)
    bits = values.astype(xp.float32).view(xp.uint32).astype(xp.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(xp.uint16)


def decoded(bits, dtype: str, xp):
    if dtype == "fp16":
        return bits.view(xp.float16).astype(xp.float64)
    return (bits.astype(xp.uint32) << 16).view(xp.float32).astype(xp.float64)


def strided(image, case: Case, name: str, xp):
    """The elements of a tensor of four dims inside its image."""
    place = case["tensors"][name]
    steps = [one * image.itemsize for one in place["strides"]]
    return xp.lib.stride_tricks.as_strided(image[place["offset"]:], tuple(place["shape"]), steps)


# ---- cases ----

def draw_cases(rng: np.random.Generator, tiles: dict[str, int], dim: int, dtype: str, mask: str,
               offsets: bool = True) -> list[Case]:
    """Lengths around a candidate's own edges, and one anywhere; layouts, kinds of data and seeds are drawn."""
    rows, keys, depth = tiles.get("tile_q", 16), tiles.get("tile_kv", 16), tiles.get("depth", 1)
    some = lambda low, high: int(rng.integers(low, max(high, low + 1)))
    sizes = [(2, 2, 2, rows + some(1, 8), depth * keys + some(1, keys)), (1, 4, 2, max(2 * rows - 1, 1), max(keys - 1, 1)),
             (1, 2, 1, some(1, rows), 3 * keys + some(0, keys)), (1, 3, 3, rows, keys),
             (2, 1, 1, some(1, 2 * rows), 2 * depth * keys + 1), (1, 2, 2, some(1, 2 * rows), some(1, 4 * keys)),
             (2, 2, 2, 1, depth * keys + 1), (1, 2, 2, rows + 1, 1), (1, 1, 1, rows, 0)]
    return [{"B": b, "H": h, "H_kv": h_kv, "S_q": s_q, "S_kv": s_kv, "D": dim, "dtype": dtype, "mask": mask,
             "kind": str(rng.choice(KINDS)), "seed": some(0, 2**31),
             "tensors": layouts(rng, b, h, h_kv, s_q, s_kv, dim, offsets)} for b, h, h_kv, s_q, s_kv in sizes]


def layouts(rng, b: int, h: int, h_kv: int, s_q: int, s_kv: int, dim: int, offsets: bool) -> dict[str, Any]:
    """Strides and offsets in elements, multiples of 8, each tensor's own."""
    found = {}
    for name, (heads, rows) in {"q": (h, s_q), "k": (h_kv, s_kv), "v": (h_kv, s_kv), "o": (h, s_q)}.items():
        row = dim + 8 * int(rng.integers(0, 4))
        if rng.integers(0, 2):                   # [B, H, S, D] in memory, or [B, S, H, D]
            head = row * max(rows, 1) + 8 * int(rng.integers(0, 4))
            strides, size = (head * heads + 8 * int(rng.integers(0, 4)), head, row, 1), head * heads
        else:
            strides, size = (row * heads * max(rows, 1), row, row * heads, 1), row * heads * max(rows, 1)
        offset = 8 * int(rng.integers(0, 5)) if offsets else 0
        found[name] = {"shape": (b, heads, rows, dim), "strides": strides, "offset": offset,
                       "elements": offset + strides[0] * (b - 1) + size + 64}
    return found


def images(case: Case, xp) -> dict[str, Any]:
    """The bits of q, k, v, o and lse as a kernel finds them; every element that is none is a NaN of our own."""
    dtype, found = case["dtype"], {}
    for name, values in zip("qkv", _data(case, xp)):
        image = xp.full(case["tensors"][name]["elements"], SENTINEL[dtype], xp.uint16)
        if values.size:
            strided(image, case, name, xp)[...] = encoded(values, dtype, xp)
        found[name] = image
    found["o"] = xp.full(case["tensors"]["o"]["elements"], SENTINEL[dtype], xp.uint16)
    found["lse"] = xp.full(case["B"] * case["H"] * case["S_q"] + 64, LSE_SENTINEL, xp.uint32)
    return found


def _data(case: Case, xp):
    rng = xp.random.default_rng(case["seed"])
    shapes = [case["tensors"][name]["shape"] for name in "qkv"]
    q, k, v = (rng.standard_normal((*shape[:2], max(shape[2], 1), shape[3]), dtype=xp.float64)[:, :, :shape[2]]
               for shape in shapes)
    kind, keys = case["kind"], xp.arange(case["S_kv"], dtype=xp.float64)
    if kind == "sharp":
        q *= 3.0
    elif kind == "offset":
        v += 2.0
    elif kind == "ramp":                         # the running maximum moves from tile to tile, up or down by head
        q[..., 3] = 2.0
        k[..., 3] = (1.0 - 2.0 * (xp.arange(shapes[1][1]) % 2))[:, None] * keys * (6.0 / max(case["S_kv"], 1))
    elif kind == "grid":
        q, k, v = (xp.round(one * 2.0) / 2.0 for one in (q, k, v))
    elif kind == "huge":                         # scores that 16 bits do not hold
        q, k = xp.round(q * 2.0) * 32.0, xp.round(k * 2.0) * 32.0
    elif kind == "spikes":
        k[:, :, ::11] *= 4.0
        v[:, :, ::7] *= 16.0
    return q, k, v


# ---- the definition, and what may differ ----

def expected(case: Case, found: dict[str, Any], xp) -> dict[str, Any]:
    """O, LSE, their elementwise bounds, and the variance of O that independent roundings give."""
    dtype, dim, n = case["dtype"], case["D"], case["S_kv"]
    group, rows = case["H"] // case["H_kv"], (case["B"], case["H"], case["S_q"])
    if n == 0:
        nothing, none = xp.zeros((*rows, dim)), xp.zeros(rows)
        return {"o": nothing, "bound": nothing, "variance": nothing, "lse": none - xp.inf, "lse_bound": none}
    q, k, v = (decoded(xp.ascontiguousarray(strided(found[name], case, name, xp)), dtype, xp) for name in "qkv")
    k, v = (xp.repeat(one, group, axis=1) for one in (k, v))
    scale, seen = dim ** -0.5, visible(case, xp)
    scores = xp.where(seen, scale * xp.matmul(q, k.swapaxes(2, 3)), -xp.inf)
    sizes = xp.where(seen, scale * xp.matmul(xp.abs(q), xp.abs(k).swapaxes(2, 3)), 0.0)
    any_seen = seen.any(axis=1)
    top = xp.where(any_seen, scores.max(axis=3), 0.0)
    p = xp.exp(scores - top[..., None])
    total = p.sum(axis=3)
    safe = xp.where(total > 0, total, 1.0)
    w = p / safe[..., None]
    o = xp.matmul(w, v)
    of_score = (dim + 8) * STEP * sizes + EXP_ERROR
    e = w * (UNIT[dtype] + of_score)
    size_v, count = xp.abs(v), seen.sum(axis=1)[:, None]
    bound = xp.matmul(e, size_v) + xp.abs(o) * e.sum(axis=3)[..., None]
    bound += (n + dim) * STEP * xp.matmul(w, size_v)                     # float32 sums over keys
    bound += TINY[dtype] / safe[..., None] * (xp.matmul(seen.astype(xp.float64), size_v) + xp.abs(o) * count)
    bound = 1.02 * bound + UNIT[dtype] * xp.abs(o) + TINY[dtype]
    third, squares = 1.0 / 3.0, w * w
    variance = third * UNIT[dtype]**2 * (xp.matmul(squares, v * v) + o * o * squares.sum(axis=3)[..., None] + o * o)
    variance += third * (TINY[dtype] / safe[..., None])**2 * xp.matmul(seen.astype(xp.float64), v * v)
    variance += xp.matmul(w * of_score, size_v)**2 + TINY[dtype]**2
    row = any_seen[None, None, :, None]
    lse = xp.where(any_seen, top + xp.log(safe), -xp.inf)
    lse_bound = e.sum(axis=3) + (n + 8) * STEP + 8 * STEP * (xp.abs(top) + xp.abs(xp.where(any_seen, lse, 0.0)))
    return {"o": xp.where(row, o, 0.0), "bound": xp.where(row, bound, 0.0), "variance": xp.where(row, variance, 0.0),
            "lse": lse, "lse_bound": lse_bound}


def visible(case: Case, xp):
    """[S_q, S_kv]: whether the row sees the key."""
    row, key = xp.arange(case["S_q"])[:, None], xp.arange(case["S_kv"])[None, :]
    if case["mask"] == "none":
        return xp.ones((case["S_q"], case["S_kv"]), bool)
    shift = case["S_kv"] - case["S_q"] if case["mask"] == "causal_bottom_right" else 0
    return key <= row + shift


# ---- the judgement ----

def judged(case: Case, before: dict[str, Any], after: dict[str, Any], xp) -> tuple[str, float]:
    """(why it is wrong, empty when right; root mean square error over what roundings give)."""
    for name in "qkv":
        if not bool((before[name] == after[name]).all()):
            return f"{name} was changed", math.inf
    gaps = after["o"].copy()
    if case["S_q"]:
        strided(gaps, case, "o", xp)[...] = SENTINEL[case["dtype"]]
    rows = case["B"] * case["H"] * case["S_q"]
    if not bool((gaps == before["o"]).all()) or not bool((after["lse"][rows:] == LSE_SENTINEL).all()):
        return "something beside the outputs was written", math.inf
    right = expected(case, before, xp)
    o = decoded(xp.ascontiguousarray(strided(after["o"], case, "o", xp)), case["dtype"], xp)
    lse = after["lse"][:rows].view(xp.float32).astype(xp.float64).reshape(right["lse"].shape)
    error = xp.abs(o - right["o"])
    inside = error <= right["bound"]             # NaN is never inside
    if not bool(inside.all()):
        worst = float(xp.where(inside | xp.isnan(error), 0.0, error / (right["bound"] + 1e-300)).max())
        return f"{int((~inside).sum())} of {o.size} elements of O are beyond their bound, up to {worst:.3g} times", math.inf
    ratio = 0.0
    if o.size and float(right["variance"].sum()) > 0.0:
        ratio = math.sqrt(float((error * error).sum()) / float(right["variance"].sum()))
        if ratio > RMS_FACTOR:
            return f"the root mean square error of O is {ratio:.2f} times what roundings give", ratio
    finite = right["lse"] > -xp.inf
    difference = xp.abs(xp.where(finite, lse, 0.0) - xp.where(finite, right["lse"], 0.0))
    equal = xp.where(finite, difference <= right["lse_bound"], lse == right["lse"])
    if not bool(equal.all()):
        return f"{int((~equal).sum())} of {lse.size} elements of LSE are beyond their bound", ratio
    return "", ratio
