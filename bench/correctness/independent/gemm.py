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
    """N and K are multiples of 8, as is M where A is turned, whose rows then hold M elements."""
    turned_a, turned_b = compiled.get("turned_a", 0), compiled.get("turned_b", 0)
    type_, cases = compiled["dtype"], []
    for drawn_m, n, k in drawn_sizes(rng, tiles, 8):
        m = 8 * -(-drawn_m // 8) if turned_a else drawn_m
        a, b = (k, m) if turned_a else (m, k), (k, n) if turned_b else (n, k)
        shapes = {"a": (a, type_), "b": (b, type_), "residual": ((m, n), type_)}
        cases.append(
            {
                "M": m,
                "N": n,
                "K": k,
                "turned_a": turned_a,
                "turned_b": turned_b,
                **dict(zip(("A_rows", "A_columns"), a, strict=True)),
                **dict(zip(("B_rows", "B_columns"), b, strict=True)),
                **{name: compiled[name] for name in ("dtype", "activation", "bias", "residual")},
                "kind": str(rng.choice(KINDS)),
                "seed": int(rng.integers(0, 2**31)),
                "tensors": {
                    **places(rng, {**shapes, "c": ((m, n), type_)}, 8, offsets),
                    "bias": packed(type_, (n,)),
                },
            }
        )
    return cases


def drawn_sizes(
    rng: np.random.Generator, tiles: dict[str, int], unit: int
) -> list[tuple[int, int, int]]:
    """(M, N, K) around a candidate's own edges, and some anywhere; N and K in steps of `unit`."""
    rows, columns, depth, stages = (
        tiles[name] for name in ("tile_rows", "tile_columns", "tile_depth", "depth")
    )

    def some(low: int, high: int) -> int:
        return int(rng.integers(low, max(high, low + 1)))

    def units(low: int, high: int) -> int:
        return unit * some(low, high // unit)

    return [
        (rows + some(1, 9), columns + units(1, 5 * unit), depth + units(1, 5 * unit)),
        (max(rows - 1, 1), max(columns - unit, unit), max(depth - unit, unit)),
        (some(1, 20), 2 * unit, depth * (stages + 1) + unit),
        (7, columns, 2 * stages * depth),
        (2 * rows + 3, 3 * unit, units(1, depth)),
        (5, 2 * columns + unit, units(1, 2 * depth)),
        (some(1, rows), units(1, columns), units(1, 3 * depth)),
        (1, unit, unit),
    ]


def places(
    rng: np.random.Generator,
    stored: dict[str, tuple[tuple[int, int], str]],
    unit: int,
    offsets: bool,
) -> dict[str, Any]:
    """Contiguous rows in all tensors, or each tensor's own stride; `stored`: shapes and types.

    Strides and offsets are multiples of `unit`, as rows are.
    """
    contiguous, drawn = bool(rng.integers(0, 2)), {}
    for name, (shape, type_) in stored.items():
        stride = shape[1] if contiguous else shape[1] + unit * int(rng.integers(0, 4))
        offset = unit * int(rng.integers(0, 5)) if offsets else 0
        drawn[name] = {
            "type": type_,
            "shape": shape,
            "strides": (stride, 1),
            "offset": offset,
            "elements": offset + shape[0] * stride + 64,
        }
    return drawn


def arguments(case: Case) -> list[tuple[str, Any]]:
    return [*(("tensor", name) for name in ("a", "b", "bias", "residual", "c")), *scalars(case)]


def scalars(case: Case) -> list[tuple[str, Any]]:
    """The lengths, then the strides of rows."""
    return [
        *(("int32", case[name]) for name in ("M", "N", "K")),
        *(
            ("int64", int(case["tensors"][name]["strides"][0]))
            for name in ("a", "b", "residual", "c")
        ),
    ]


# ---- data ----


def images(case: Case) -> Images:
    rng = np.random.default_rng(case["seed"])
    values = drawn(case, rng, 40.0)
    if case["kind"] == "large":
        values["a"] *= 100.0
    for name in ("a", "b"):
        if case[f"turned_{name}"]:
            values[name] = values[name].T
    return filled(case, values)


def drawn(case: Case, rng: np.random.Generator, spread: float) -> dict[str, np.ndarray]:
    """The inputs, not turned, by the case's kind; `depth` sets terms of a sum `spread` apart."""
    kind, m, n, k = case["kind"], case["M"], case["N"], case["K"]
    a, b = rng.standard_normal((m, k)), rng.standard_normal((n, k)) / np.sqrt(k)
    bias, residual = rng.standard_normal(n), rng.standard_normal((m, n))
    if kind == "rows":
        a *= 50.0 ** (np.arange(m) % 3 - 1.0)[:, None]
    elif kind == "columns":
        factor = 50.0 ** (np.arange(n) % 3 - 1.0)
        b, bias = b * factor[:, None], bias * factor
    elif kind == "depth":
        a *= spread ** rng.integers(-1, 2, k)
    elif kind == "blank":
        a[rng.random(m) < 0.5] = 0.0
        b[rng.random(n) < 0.3] = 0.0
    elif kind == "near":  # the second half takes away what the first added
        half = k // 2
        a[:, half : 2 * half], b[:, half : 2 * half] = a[:, :half], -b[:, :half]
        b[:, half] += 0.5
    return {"a": a, "b": b, "bias": bias, "residual": residual}


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
    names = ("a", "b", "bias", "residual")
    inputs = {name: numbers(before[name], case["tensors"][name]) for name in names}
    return verdict(case, before, after, inputs)


def verdict(
    case: Case, before: Images, after: Images, inputs: dict[str, np.ndarray]
) -> tuple[str, float]:
    if why := touched(case, before, after, OUTPUTS):
        return why, np.inf
    reference = expected(case, inputs)
    c = numbers(after["c"], case["tensors"]["c"])
    if why := beyond("c", c, reference["c"], reference["bound"]):
        return why, np.inf
    ratio = mean_ratio(c, reference["c"], reference["variance"])
    if ratio > RMS_FACTOR:
        return f"the root mean square error of c is {ratio:.2f} times the expected one", ratio
    return "", ratio
