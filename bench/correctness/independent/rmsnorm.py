"""RMSNorm after a residual add: h = x + residual, y = h / sqrt(mean(h^2) + eps) * weight.

h has one correct value: the nearest to x + residual, up to float32's rounding before it. y may
use h before or after it was rounded, in the sum and in the product. These are four values, and
y has to lie in their hull, widened by float32's errors and by two roundings (many models round
h / root before they multiply it by the weight). The mean error is bounded as that of
independent roundings.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.correctness.independent.memory import (
    STEP,
    TINY,
    UNIT,
    Case,
    Images,
    beyond,
    decoded,
    encoded,
    filled,
    mean_ratio,
    numbers,
    packed,
    touched,
)

EPS = 1e-6
RMS_FACTOR = 2.0
KINDS = ("plain", "offset", "small", "spike", "rows", "columns", "blank", "huge", "near")
OUTPUTS = ("h", "y")


# ---- cases ----


def draw_cases(
    rng: np.random.Generator, tiles: dict[str, int], compiled: dict[str, Any], offsets: bool = True
) -> list[Case]:
    """Sizes around a candidate's own edges, and some anywhere; rows of whole vectors and others."""
    rows, columns, kept = (tiles[name] for name in ("tile_rows", "tile_columns", "kept_columns"))

    def some(low: int, high: int) -> int:
        return int(rng.integers(low, max(high, low + 1)))

    def whole(low: int, high: int) -> int:
        return 8 * some(-(-low // 8), high // 8)

    sizes = [
        (rows + some(1, 4), columns + whole(8, 64)),
        (max(2 * rows - 1, 1), max(columns - 1, 1)),
        (2, kept),
        (3, kept + whole(8, columns)),
        (2, kept + columns + some(1, 40)),
        (2 * rows + 1, some(1, 64)),
        (some(1, 2 * rows + 2), whole(8, columns)),
        (3 * rows, 8),
        (some(1, 8), some(1, columns)),
        (1, 1),
    ]
    return [
        {
            "M": m,
            "N": n,
            "dtype": compiled["dtype"],
            "kind": str(rng.choice(KINDS)),
            "seed": some(0, 2**31),
            "tensors": places(rng, m, n, compiled["dtype"], offsets),
        }
        for m, n in sizes
    ]


def places(rng: np.random.Generator, m: int, n: int, type_: str, offsets: bool) -> dict[str, Any]:
    """Contiguous rows in all tensors, or each tensor's own stride, a multiple of 8."""
    contiguous, drawn = bool(rng.integers(0, 2)), {}
    for name in ("x", "residual", "h", "y"):
        stride = n if contiguous else 8 * (-(-n // 8) + int(rng.integers(0, 4)))
        offset = 8 * int(rng.integers(0, 5)) if offsets else 0
        drawn[name] = {
            "type": type_,
            "shape": (m, n),
            "strides": (stride, 1),
            "offset": offset,
            "elements": offset + m * stride + 64,
        }
    return {**drawn, "weight": packed(type_, (n,))}


def arguments(case: Case) -> list[tuple[str, Any]]:
    return [
        *(("tensor", name) for name in ("x", "residual", "weight", "h", "y")),
        ("int32", case["M"]),
        ("int32", case["N"]),
        ("float32", EPS),
        *(
            ("int64", int(case["tensors"][name]["strides"][0]))
            for name in ("x", "residual", "h", "y")
        ),
    ]


def images(case: Case) -> Images:
    rng, shape, kind = np.random.default_rng(case["seed"]), (case["M"], case["N"]), case["kind"]
    x, residual, weight = (
        rng.standard_normal(shape),
        rng.standard_normal(shape),
        rng.uniform(0.5, 2.0, shape[1]),
    )
    if kind == "offset":
        x += 3.0
    elif kind == "small":  # eps dominates under the root, or does not
        x *= 1e-4 * 30.0 ** rng.random((shape[0], 1))
        residual *= 1e-4
    elif kind == "spike":
        x[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = 500.0
    elif kind == "rows":
        factor = 50.0 ** (np.arange(shape[0]) % 3 - 1.0)[:, None]
        x, residual = x * factor, residual * factor
    elif kind == "columns":
        weight *= 40.0 ** rng.integers(-1, 2, shape[1]) * rng.choice([-1.0, 1.0], shape[1])
    elif kind == "blank":
        x[rng.random(shape[0]) < 0.5] = 0.0
        residual[(x == 0.0).all(axis=1)] = 0.0
    elif kind == "huge":  # sums beyond fp16's 65504 but for the tensors themselves
        x, residual = 12_000.0 * np.tanh(x), 12_000.0 * np.tanh(residual)
    elif kind == "near":  # cancellation
        x *= 100.0
        residual = residual * 0.5 - x
    return filled(case, {"x": x, "residual": residual, "weight": weight})


# ---- the definition, and its bounds ----


def expected(
    case: Case, x: np.ndarray, residual: np.ndarray, weight: np.ndarray
) -> dict[str, np.ndarray]:
    """h and the middle of the correct values of y, with bounds, and the variance of y."""
    type_, n = case["dtype"], case["N"]
    h = x + residual
    kept = decoded(encoded(h, type_), type_)
    roots = [1.0 / np.sqrt((v * v).sum(axis=1, keepdims=True) / n + EPS) for v in (h, kept)]
    values = np.stack([v * root * weight for v in (h, kept) for root in roots])
    low, high = values.min(axis=0), values.max(axis=0)
    size = np.abs(values).max(axis=0)
    of_float = (0.5 * n + 16) * STEP / 2  # half of the sum's error, the root, products
    bound = (
        (high - low) / 2
        + size * (of_float + 2.02 * UNIT[type_])
        + TINY[type_] * (1.0 + np.abs(weight))
    )
    variance = (3.0 * UNIT[type_] ** 2 / 3.0 + of_float**2) * size * size + (
        TINY[type_] * (1.0 + np.abs(weight))
    ) ** 2
    step = np.abs(h) * STEP  # of the sum in float32, before it is rounded
    rounded_down, rounded_up = (
        decoded(encoded(h + sign * step, type_), type_) for sign in (-1.0, 1.0)
    )
    return {
        "h": (rounded_down + rounded_up) / 2,
        "h_bound": (rounded_up - rounded_down) / 2,
        "y": (low + high) / 2,
        "bound": bound,
        "variance": variance,
    }


# ---- the judgement ----


def judged(case: Case, before: Images, after: Images) -> tuple[str, float]:
    """Why the output is wrong, empty if correct; rms error of y over the expected one."""
    if why := touched(case, before, after, OUTPUTS):
        return why, np.inf
    reference = expected(
        case,
        *(numbers(before[name], case["tensors"][name]) for name in ("x", "residual", "weight")),
    )
    h, y = (numbers(after[name], case["tensors"][name]) for name in OUTPUTS)
    if why := beyond("h", h, reference["h"], reference["h_bound"]) or beyond(
        "y", y, reference["y"], reference["bound"]
    ):
        return why, np.inf
    ratio = mean_ratio(y, reference["y"], reference["variance"])
    if ratio > RMS_FACTOR:
        return f"the root mean square error of y is {ratio:.2f} times the expected one", ratio
    return "", ratio
