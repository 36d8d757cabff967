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
    drawn,
    drawn_sizes,
    places,
    scalars,
    verdict,
)
from bench.correctness.independent.memory import (
    NUMBERS,
    Case,
    Images,
    encoded,
    filled,
    numbers,
    packed,
)

KINDS = ("plain", "rows", "columns", "depth", "blank", "near", "codes", "small")
UNIT = 16  # of lengths, offsets and strides, in elements

__all__ = ["OUTPUTS", "arguments", "draw_cases", "images", "judged"]


# ---- cases ----


def draw_cases(
    rng: np.random.Generator, tiles: dict[str, int], compiled: dict[str, Any], offsets: bool = True
) -> list[Case]:
    """N and K are multiples of 16."""
    form, type_, by_row = compiled["format"], compiled["dtype"], compiled["row_scales"]
    cases = []
    for m, n, k in drawn_sizes(rng, tiles, UNIT):
        codes = {"a": ((m, k), form), "b": ((n, k), form)}
        a_scales, b_scales = (m, n) if by_row else (1, 1)
        cases.append(
            {
                "M": m,
                "N": n,
                "K": k,
                "turned_a": 0,
                "turned_b": 0,
                "row_scales": by_row,
                "A_scales": a_scales,
                "B_scales": b_scales,
                **{
                    name: compiled[name]
                    for name in ("format", "sums", "dtype", "activation", "bias", "residual")
                },
                "kind": str(rng.choice(KINDS)),
                "seed": int(rng.integers(0, 2**31)),
                "tensors": {
                    **places(
                        rng,
                        {**codes, "residual": ((m, n), type_), "c": ((m, n), type_)},
                        UNIT,
                        offsets,
                    ),
                    "bias": packed(type_, (n,)),
                    "a_scale": packed("float32", (a_scales,)),
                    "b_scale": packed("float32", (b_scales,)),
                },
            }
        )
    return cases


def arguments(case: Case) -> list[tuple[str, Any]]:
    tensors = ("a", "b", "a_scale", "b_scale", "bias", "residual", "c")
    return [*(("tensor", name) for name in tensors), *scalars(case)]


# ---- data ----


def images(case: Case) -> Images:
    rng, kind = np.random.default_rng(case["seed"]), case["kind"]
    values = drawn(case, rng, 16.0)
    if kind == "small":
        values["b"] /= 1000.0
    for name in ("a", "b"):
        codes, scales = (
            any_codes(rng, values[name].shape, case, name)
            if kind == "codes"
            else quantised(rng, values[name], case)
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
    names = ("a", "b", "a_scale", "b_scale", "bias", "residual")
    inputs = {name: numbers(before[name], case["tensors"][name]) for name in names}
    for name in ("a", "b"):
        inputs[name] = inputs[name] * inputs[f"{name}_scale"][:, None]
    return verdict(case, before, after, inputs)
