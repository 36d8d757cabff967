"""Attention in float64 and the error of a correct kernel, written from the definition alone.

It imports nothing of greenfast or of the kernel's reference.py. Both bounds differ from the gate's:

- Elementwise, by perturbing the quotient O = sum_j p_j v_j / sum_j p_j. With a relative error e_j
  of each p_j in the numerator and f_j in the denominator,
  |O' - O| <= sum_j w_j e_j |v_j| + |O| sum_j w_j f_j, where w_j = p_j / sum p. e_j consists of the
  rounding of P, the float32 error of this score (by its own sum of |q k|, not the row's
  largest) and the exponential's error. f_j is the same, without the rounding where P is summed
  before it. The errors of float32 sums and the rounding of O are added.
- In the mean: roundings are independent and uniform, so their variances add up. The root mean
  square error of a whole tensor may be at most twice the sum's root.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.correctness.independent.memory import (
    STEP,
    TINY,
    UNIT,
    Case,
    Images,
    beyond,
    drawn_rows,
    filled,
    mean_ratio,
    numbers,
    packed,
    touched,
)

EXP_ERROR = 2.0**-17  # of an exponential; the worst in use is a polynomial of degree 4
RMS_FACTOR = 2.0
KINDS = ("plain", "sharp", "offset", "ramp", "grid", "spikes", "huge")
OUTPUTS = ("o", "lse")


# ---- cases ----


def draw_cases(
    rng: np.random.Generator, tiles: dict[str, int], compiled: dict[str, Any], offsets: bool = True
) -> list[Case]:
    return [
        {
            **sizes,
            "D": compiled["D"],
            "dtype": compiled["dtype"],
            "mask": compiled["mask"],
            "kind": str(rng.choice(KINDS)),
            "seed": int(rng.integers(0, 2**31)),
            "tensors": places(rng, sizes, compiled, compiled["dtype"], 8, offsets),
        }
        for sizes in drawn_sizes(rng, tiles)
    ]


def drawn_sizes(rng: np.random.Generator, tiles: dict[str, int]) -> list[dict[str, int]]:
    """Lengths around a candidate's own edges, and one anywhere."""
    rows, keys, depth = tiles.get("tile_q", 16), tiles.get("tile_kv", 16), tiles.get("depth", 1)

    def some(low: int, high: int) -> int:
        return int(rng.integers(low, max(high, low + 1)))

    sizes = [
        (2, 2, 2, rows + some(1, 8), depth * keys + some(1, keys)),
        (1, 4, 2, max(2 * rows - 1, 1), max(keys - 1, 1)),
        (1, 2, 1, some(1, rows), 3 * keys + some(0, keys)),
        (1, 3, 3, rows, keys),
        (2, 1, 1, some(1, 2 * rows), 2 * depth * keys + 1),
        (1, 2, 2, some(1, 2 * rows), some(1, 4 * keys)),
        (2, 2, 2, 1, depth * keys + 1),
        (1, 2, 2, rows + 1, 1),
        (1, 1, 1, rows, 0),
    ]
    return [dict(zip(("B", "H", "H_kv", "S_q", "S_kv"), size, strict=True)) for size in sizes]


def places(
    rng: np.random.Generator,
    sizes: dict[str, int],
    compiled: dict[str, Any],
    input_type: str,
    unit: int,
    offsets: bool,
) -> dict[str, Any]:
    """q, k, v, o, lse. Each of the first four has its own strides and offset."""
    batches, heads, kv_heads, rows, keys = sizes.values()
    shapes = {"q": (heads, rows), "k": (kv_heads, keys), "v": (kv_heads, keys), "o": (heads, rows)}
    drawn = {
        name: drawn_rows(
            rng,
            compiled["dtype"] if name == "o" else input_type,
            (batches, *shape, compiled["D"]),
            unit,
            offsets,
        )
        for name, shape in shapes.items()
    }
    return {**drawn, "lse": packed("float32", (batches, heads, rows))}


def arguments(case: Case) -> list[tuple[str, Any]]:
    """The kernel's arguments in the order that kernel.toml defines, without workspaces."""
    return [*(("tensor", name) for name in ("q", "k", "v", "o", "lse")), *scalars(case)]


def scalars(case: Case) -> list[tuple[str, Any]]:
    return [
        *(("int32", case[name]) for name in ("H", "H_kv", "S_q", "S_kv")),
        ("float32", case["D"] ** -0.5),
        *(
            ("int64", int(stride))
            for name in "qkvo"
            for stride in case["tensors"][name]["strides"][:3]
        ),
    ]


def images(case: Case) -> Images:
    rng = np.random.default_rng(case["seed"])
    return filled(case, dict(zip("qkv", bent(drawn(case, rng), case["kind"]), strict=True)))


def drawn(case: Case, rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.standard_normal(case["tensors"][name]["shape"]) for name in "qkv"]


def bent(tensors: list[np.ndarray], kind: str) -> list[np.ndarray]:
    q, k, v = tensors
    heads, keys = k.shape[1:3]
    if kind == "sharp":
        q *= 3.0
    elif kind == "offset":
        v += 2.0
    elif kind == "ramp":  # the running maximum moves from tile to tile, up or down by head
        q[..., 3] = 2.0
        k[..., 3] = (
            (1.0 - 2.0 * (np.arange(heads) % 2))[:, None] * np.arange(keys) * (6.0 / max(keys, 1))
        )
    elif kind == "grid":
        q, k, v = (np.round(tensor * 2.0) / 2.0 for tensor in (q, k, v))
    elif kind == "huge":  # scores that 16 bits do not hold
        q, k = np.round(q * 2.0) * 32.0, np.round(k * 2.0) * 32.0
    elif kind == "spikes":
        k[:, :, ::11] *= 4.0
        v[:, :, ::7] *= 16.0
    return [q, k, v]


# ---- the definition, and its bounds ----


@dataclass(frozen=True)
class Held:
    """Largest relative and absolute errors of P times V, of P in its sum, and of O."""

    unit_p: float
    tiny_p: float
    unit_sum: float
    tiny_sum: float
    unit_o: float
    tiny_o: float


def expected(
    case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray, held: Held
) -> dict[str, np.ndarray]:
    """O, LSE, their elementwise bounds, and the variance of O that independent roundings give."""
    dim, n, rows = case["D"], case["S_kv"], q.shape[:3]
    if n == 0:
        nothing, none = np.zeros((*rows, dim)), np.zeros(rows)
        return {
            "o": nothing,
            "bound": nothing,
            "variance": nothing,
            "lse": none - np.inf,
            "lse_bound": none,
        }
    k, v = (np.repeat(tensor, case["H"] // case["H_kv"], axis=1) for tensor in (k, v))
    scale, seen = dim**-0.5, visible(case)
    scores = np.where(seen, scale * np.matmul(q, k.swapaxes(2, 3)), -np.inf)
    sizes = np.where(seen, scale * np.matmul(np.abs(q), np.abs(k).swapaxes(2, 3)), 0.0)
    any_seen = seen.any(axis=1)
    top = np.where(any_seen, scores.max(axis=3), 0.0)
    p = np.exp(scores - top[..., None])
    total = p.sum(axis=3)
    safe = np.where(total > 0, total, 1.0)
    w = p / safe[..., None]
    o = np.matmul(w, v)
    of_score = (dim + 8) * STEP * sizes + EXP_ERROR
    above, below = w * (held.unit_p + of_score), (w * (held.unit_sum + of_score)).sum(axis=3)
    size_v, size_o, count = np.abs(v), np.abs(o), seen.sum(axis=1)[:, None]
    any_v = np.matmul(seen.astype(np.float64), size_v)
    bound = np.matmul(above, size_v) + size_o * below[..., None]
    bound += (n + dim) * STEP * np.matmul(w, size_v)  # float32 sums over keys
    bound += (held.tiny_p * any_v + held.tiny_sum * size_o * count) / safe[..., None]
    bound = 1.02 * bound + held.unit_o * size_o + held.tiny_o
    third, squares = 1.0 / 3.0, w * w
    variance = third * (
        held.unit_p**2 * np.matmul(squares, v * v)
        + held.unit_sum**2 * o * o * squares.sum(axis=3)[..., None]
    )
    variance += third * (
        held.unit_o**2 * o * o
        + (held.tiny_p / safe[..., None]) ** 2 * np.matmul(seen.astype(np.float64), v * v)
    )
    variance += np.matmul(w * of_score, size_v) ** 2 + held.tiny_o**2
    row = any_seen[None, None, :, None]
    lse = np.where(any_seen, top + np.log(safe), -np.inf)
    lse_bound = (
        below + (n + 8) * STEP + 8 * STEP * (np.abs(top) + np.abs(np.where(any_seen, lse, 0.0)))
    )
    return {
        "o": np.where(row, o, 0.0),
        "bound": np.where(row, bound, 0.0),
        "variance": np.where(row, variance, 0.0),
        "lse": lse,
        "lse_bound": lse_bound,
    }


def visible(case: Case) -> np.ndarray:
    """[S_q, S_kv]: whether the row sees the key."""
    row, key = np.arange(case["S_q"])[:, None], np.arange(case["S_kv"])[None, :]
    if case["mask"] == "none":
        return np.ones((case["S_q"], case["S_kv"]), bool)
    shift = case["S_kv"] - case["S_q"] if case["mask"] == "causal_bottom_right" else 0
    return key <= row + shift


# ---- the judgement ----


def judged(case: Case, before: Images, after: Images) -> tuple[str, float]:
    """Why the output is wrong, empty if correct; root mean square error over the expected one."""
    type_ = case["dtype"]
    held = Held(UNIT[type_], TINY[type_], UNIT[type_], TINY[type_], UNIT[type_], TINY[type_])
    q, k, v = (numbers(before[name], case["tensors"][name]) for name in "qkv")
    return verdict(case, before, after, expected(case, q, k, v, held))


def verdict(
    case: Case, before: Images, after: Images, reference: dict[str, np.ndarray]
) -> tuple[str, float]:
    if why := touched(case, before, after, OUTPUTS):
        return why, np.inf
    o, lse = (numbers(after[name], case["tensors"][name]) for name in OUTPUTS)
    if why := beyond("O", o, reference["o"], reference["bound"]):
        return why, np.inf
    ratio = mean_ratio(o, reference["o"], reference["variance"])
    if ratio > RMS_FACTOR:
        return f"the root mean square error of O is {ratio:.2f} times the expected one", ratio
    return beyond("LSE", lse, reference["lse"], reference["lse_bound"]), ratio
