"""A linear layer on 8-bit codes: codes, scales and data; definition and bounds are gemm.py's.

A number is its code's value (memory.NUMBERS) times its scale, of the tensor or of its row, so that
the codes are exact. Sums have to be as exact as float32, which the emulator's are; tensor cores of
a GPU may keep fewer bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.correctness.independent.gemm import (
    OUTPUTS,
    RMS_FACTOR,
    expected,
)
from bench.correctness.independent.memory import (
    NUMBERS,
    Case,
    Images,
    beyond,
    encoded,
    filled,
    mean_ratio,
    numbers,
    packed,
    touched,
)

KINDS = ("plain", "rows", "columns", "depth", "blank", "near", "codes", "small")
UNIT = 16  # of lengths, offsets and strides, in elements

__all__ = ["OUTPUTS", "arguments", "draw_cases", "images", "judged"]


# ---- cases ----


def draw_cases(
    rng: np.random.Generator, tiles: dict[str, int], compiled: dict[str, Any], offsets: bool = True
) -> list[Case]:
    """Sizes around a candidate's own edges, and some anywhere; N and K are multiples of 16."""
    rows, columns, depth, stages = (
        tiles[name] for name in ("tile_rows", "tile_columns", "tile_depth", "depth")
    )

    def some(low: int, high: int) -> int:
        return int(rng.integers(low, max(high, low + 1)))

    def units(low: int, high: int) -> int:
        return UNIT * some(-(-low // UNIT), high // UNIT)

    sizes = [
        (rows + some(1, 9), columns + units(16, 80), depth + units(16, 80)),
        (max(rows - 1, 1), max(columns - 16, 16), max(depth - 16, 16)),
        (some(1, 20), 32, depth * (stages + 1) + 16),
        (7, columns, 2 * stages * depth),
        (2 * rows + 3, 48, units(16, depth)),
        (5, 2 * columns + 16, units(16, 2 * depth)),
        (some(1, rows), units(16, columns), units(16, 3 * depth)),
        (1, 16, 16),
    ]
    return [
        {
            "M": m,
            "N": n,
            "K": k,
            "turned_a": 0,
            "turned_b": 0,
            "row_scales": compiled["row_scales"],
            "A_scales": m if compiled["row_scales"] else 1,
            "B_scales": n if compiled["row_scales"] else 1,
            **{
                name: compiled[name]
                for name in ("format", "sums", "dtype", "activation", "bias", "residual")
            },
            "kind": str(rng.choice(KINDS)),
            "seed": some(0, 2**31),
            "tensors": places(rng, (m, n, k), compiled, offsets),
        }
        for m, n, k in sizes
    ]


def places(
    rng: np.random.Generator, size: tuple[int, int, int], compiled: dict[str, Any], offsets: bool
) -> dict[str, Any]:
    """Contiguous rows in all tensors, or each tensor's own stride."""
    (m, n, k), form, type_ = size, compiled["format"], compiled["dtype"]
    contiguous, drawn = bool(rng.integers(0, 2)), {}
    for name, shape, stored in (
        ("a", (m, k), form),
        ("b", (n, k), form),
        ("residual", (m, n), type_),
        ("c", (m, n), type_),
    ):
        stride = shape[1] if contiguous else shape[1] + UNIT * int(rng.integers(0, 4))
        offset = UNIT * int(rng.integers(0, 5)) if offsets else 0
        drawn[name] = {
            "type": stored,
            "shape": shape,
            "strides": (stride, 1),
            "offset": offset,
            "elements": offset + shape[0] * stride + 64,
        }
    by_row = compiled["row_scales"]
    return {
        **drawn,
        "bias": packed(type_, (n,)),
        "a_scale": packed("float32", (m if by_row else 1,)),
        "b_scale": packed("float32", (n if by_row else 1,)),
    }


def arguments(case: Case) -> list[tuple[str, Any]]:
    tensors = ("a", "b", "a_scale", "b_scale", "bias", "residual", "c")
    return [
        *(("tensor", name) for name in tensors),
        *(("int32", case[name]) for name in ("M", "N", "K")),
        *(
            ("int64", int(case["tensors"][name]["strides"][0]))
            for name in ("a", "b", "residual", "c")
        ),
    ]


# ---- data ----


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
        a *= 16.0 ** rng.integers(-1, 2, k)
    elif kind == "blank":
        a[rng.random(m) < 0.5] = 0.0
        b[rng.random(n) < 0.3] = 0.0
    elif kind == "near":  # the second half takes away what the first added
        half = k // 2
        a[:, half : 2 * half], b[:, half : 2 * half] = a[:, :half], -b[:, :half]
        b[:, half] += 0.5
    elif kind == "small":
        b /= 1000.0
    values = {"bias": bias, "residual": residual}
    for name, tensor in (("a", a), ("b", b)):
        codes, scales = (
            any_codes(rng, tensor.shape, case, name)
            if kind == "codes"
            else quantised(rng, tensor, case)
        )
        values |= {name: codes, f"{name}_scale": scales}
    return filled(case, values)


def quantised(
    rng: np.random.Generator, tensor: np.ndarray, case: Case
) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scales: a scale's largest number is a drawn share of the format's largest."""
    most = float(np.nanmax(NUMBERS[case["format"]]))
    largest = np.abs(tensor).max(axis=1) if case["row_scales"] else np.abs(tensor).max()[None]
    share = rng.uniform(0.25, 1.0, largest.shape)
    scales = np.where(largest > 0.0, largest / (share * most), 1.0)
    scales = scales.astype(np.float32).astype(np.float64)
    return encoded(tensor / scales[:, None], case["format"]), scales


def any_codes(
    rng: np.random.Generator, shape: tuple[int, ...], case: Case, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Uniform finite codes; numbers of a scale have a root mean square from 0.25 to 1, or that of
    b's divided by the root of K."""
    known = np.flatnonzero(np.isfinite(NUMBERS[case["format"]]))
    size = np.sqrt(np.mean(NUMBERS[case["format"]][known] ** 2))
    size *= np.sqrt(case["K"]) if name == "b" else 1.0
    scales = rng.uniform(0.25, 1.0, shape[0] if case["row_scales"] else 1) / size
    return rng.choice(known, shape).astype(np.uint8), scales


# ---- the judgement ----


def judged(case: Case, before: Images, after: Images) -> tuple[str, float]:
    """Why the output is wrong, empty if correct; rms error of c over the expected one."""
    if why := touched(case, before, after, OUTPUTS):
        return why, np.inf
    inputs = {
        name: numbers(before[name], case["tensors"][name])
        for name in ("a", "b", "a_scale", "b_scale", "bias", "residual")
    }
    for name in ("a", "b"):
        inputs[name] = inputs[name] * inputs[f"{name}_scale"][:, None]
    reference = expected(case, inputs)
    c = numbers(after["c"], case["tensors"]["c"])
    if why := beyond("c", c, reference["c"], reference["bound"]):
        return why, np.inf
    ratio = mean_ratio(c, reference["c"], reference["variance"])
    if ratio > RMS_FACTOR:
        return f"the root mean square error of c is {ratio:.2f} times the expected one", ratio
    return "", ratio
