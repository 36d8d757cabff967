"""A linear layer: c = activation(a b^T + bias) + residual, sums in float32.

A sum may be off by K + 16 roundings of float32 of what it adds up, in any order; an activation
multiplies that by its slope, and GELU may take tanh from hardware, off by 2^-10.9. The result is
rounded once. The mean error is bounded as that of one rounding and of what tanh loses.
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
    filled,
    mean_ratio,
    numbers,
    packed,
    touched,
)

RMS_FACTOR = 2.0
KINDS = ("plain", "rows", "columns", "depth", "blank", "near", "large")
OUTPUTS = ("c",)
TANH = 2.0**-10.9


# ---- cases ----


def draw_cases(
    rng: np.random.Generator, tiles: dict[str, int], compiled: dict[str, Any], offsets: bool = True
) -> list[Case]:
    """Sizes around a candidate's own edges, and some anywhere; N and K are multiples of 8."""
    rows, columns, depth, stages = (
        tiles[name] for name in ("tile_rows", "tile_columns", "tile_depth", "depth")
    )

    def some(low: int, high: int) -> int:
        return int(rng.integers(low, max(high, low + 1)))

    def eights(low: int, high: int) -> int:
        return 8 * some(-(-low // 8), high // 8)

    sizes = [
        (rows + some(1, 9), columns + eights(8, 40), depth + eights(8, 40)),
        (max(rows - 1, 1), max(columns - 8, 8), max(depth - 8, 8)),
        (some(1, 20), 16, depth * (stages + 1) + 8),
        (7, columns, 2 * stages * depth),
        (2 * rows + 3, 24, eights(8, depth)),
        (5, 2 * columns + 8, eights(8, 2 * depth)),
        (some(1, rows), eights(8, columns), eights(8, 3 * depth)),
        (1, 8, 8),
    ]
    turned_a, turned_b = compiled.get("turned_a", 0), compiled.get("turned_b", 0)
    if turned_a:  # whose rows then hold M elements
        sizes = [(8 * -(-m // 8), n, k) for m, n, k in sizes]
    return [
        {
            "M": m,
            "N": n,
            "K": k,
            "turned_a": turned_a,
            "turned_b": turned_b,
            **dict(zip(("A_rows", "A_columns"), (k, m) if turned_a else (m, k), strict=True)),
            **dict(zip(("B_rows", "B_columns"), (k, n) if turned_b else (n, k), strict=True)),
            **{name: compiled[name] for name in ("dtype", "activation", "bias", "residual")},
            "kind": str(rng.choice(KINDS)),
            "seed": some(0, 2**31),
            "tensors": places(
                rng,
                {
                    "a": (k, m) if turned_a else (m, k),
                    "b": (k, n) if turned_b else (n, k),
                    "residual": (m, n),
                    "c": (m, n),
                },
                compiled["dtype"],
                offsets,
            ),
        }
        for m, n, k in sizes
    ]


def places(
    rng: np.random.Generator, shapes: dict[str, tuple[int, int]], type_: str, offsets: bool
) -> dict[str, Any]:
    """Contiguous rows in all tensors, or each tensor's own stride, a multiple of 8."""
    contiguous, drawn = bool(rng.integers(0, 2)), {}
    for name, shape in shapes.items():
        stride = shape[1] if contiguous else 8 * (-(-shape[1] // 8) + int(rng.integers(0, 4)))
        offset = 8 * int(rng.integers(0, 5)) if offsets else 0
        drawn[name] = {
            "type": type_,
            "shape": shape,
            "strides": (stride, 1),
            "offset": offset,
            "elements": offset + shape[0] * stride + 64,
        }
    return {**drawn, "bias": packed(type_, (shapes["c"][1],))}


def arguments(case: Case) -> list[tuple[str, Any]]:
    return [
        *(("tensor", name) for name in ("a", "b", "bias", "residual", "c")),
        *(("int32", case[name]) for name in ("M", "N", "K")),
        *(
            ("int64", int(case["tensors"][name]["strides"][0]))
            for name in ("a", "b", "residual", "c")
        ),
    ]


def images(case: Case) -> Images:
    rng, kind = np.random.default_rng(case["seed"]), case["kind"]
    m, n, k = case["M"], case["N"], case["K"]
    a, b = rng.standard_normal((m, k)), rng.standard_normal((n, k)) / np.sqrt(k)
    bias, residual = rng.standard_normal(n), rng.standard_normal((m, n))
    if kind == "rows":
        a *= 50.0 ** (np.arange(m) % 3 - 1.0)[:, None]
    elif kind == "columns":
        factor = 50.0 ** (np.arange(n) % 3 - 1.0)
        b, bias = b * factor[:, None], bias * factor
    elif kind == "depth":
        a *= 40.0 ** rng.integers(-1, 2, k)
    elif kind == "blank":
        a[rng.random(m) < 0.5] = 0.0
        b[rng.random(n) < 0.3] = 0.0
    elif kind == "near":  # the second half takes away what the first added
        half = k // 2
        a[:, half : 2 * half], b[:, half : 2 * half] = a[:, :half], -b[:, :half]
        b[:, half] += 0.5
    elif kind == "large":
        a *= 100.0
    a, b = a.T if case["turned_a"] else a, b.T if case["turned_b"] else b
    return filled(case, {"a": a, "b": b, "bias": bias, "residual": residual})


# ---- the definition, and its bounds ----


def activated(x: np.ndarray, activation: str) -> np.ndarray:
    if activation == "gelu":
        return x * 0.5 * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    if activation == "silu":
        return x * 0.5 * (1.0 + np.tanh(x / 2.0))
    return x


def expected(case: Case, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """c with its bound, and the variance of its error."""
    type_, activation = case["dtype"], case["activation"]
    terms = ("km" if case["turned_a"] else "mk") + "," + ("kn" if case["turned_b"] else "nk")
    total = np.einsum(f"{terms}->mn", values["a"], values["b"])
    size = np.einsum(f"{terms}->mn", np.abs(values["a"]), np.abs(values["b"]))
    if case["bias"] == "yes":
        total, size = total + values["bias"], size + np.abs(values["bias"])
    off = (case["K"] + 16) * STEP * size
    lost = np.abs(total) * (TANH / 2.0 if activation == "gelu" else 2.0**-20)
    c = activated(total, activation)
    if case["residual"] == "yes":
        c = c + values["residual"]
    bound = 1.2 * off + (lost if activation != "none" else 0.0) + np.abs(c) * 2.0 * STEP
    bound = bound + 1.01 * UNIT[type_] * (np.abs(c) + bound) + TINY[type_]
    variance = (UNIT[type_] * np.abs(c)) ** 2 / 3.0 + TINY[type_] ** 2
    if activation == "gelu":
        variance = variance + lost * lost / 3.0
    # Where terms cancel, the sum's own error is no longer small beside one rounding.
    variance = variance + (8.0 * STEP * size) ** 2
    return {"c": c, "bound": bound, "variance": variance}


# ---- the judgement ----


def judged(case: Case, before: Images, after: Images) -> tuple[str, float]:
    """Why the output is wrong, empty if correct; rms error of c over the expected one."""
    if why := touched(case, before, after, OUTPUTS):
        return why, np.inf
    inputs = {
        name: numbers(before[name], case["tensors"][name])
        for name in ("a", "b", "bias", "residual")
    }
    reference = expected(case, inputs)
    c = numbers(after["c"], case["tensors"]["c"])
    if why := beyond("c", c, reference["c"], reference["bound"]):
        return why, np.inf
    ratio = mean_ratio(c, reference["c"], reference["variance"])
    if ratio > RMS_FACTOR:
        return f"the root mean square error of c is {ratio:.2f} times the expected one", ratio
    return "", ratio
