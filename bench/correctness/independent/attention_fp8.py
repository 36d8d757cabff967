"""Attention on 8-bit codes: codes, scales and data; definition and bounds are attention.py's.

A number is its code's value (memory.NUMBERS) times its head's scale, so that the codes are
exact. P is rounded to the codes' format times a power of two (at least 2^6 in e4m3, 2^8 in
e5m2, as the templates document), or in `sim` to O's type; its sum is taken before. Sums of
products have to be as exact as float32, as they are on an H200 (bench/results/h200/fp8.json).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.correctness.independent.attention import (
    OUTPUTS,
    Held,
    bent,
    drawn,
    drawn_sizes,
    expected,
    places,
    scalars,
    verdict,
)
from bench.correctness.independent.memory import (
    NUMBERS,
    TINY,
    UNIT,
    Case,
    Images,
    encoded,
    filled,
    numbers,
    packed,
)

LARGEST = {name: float(np.nanmax(values)) for name, values in NUMBERS.items()}
LEAST_P_SCALE = {"e4m3": 2.0**6, "e5m2": 2.0**8}
SINK = {"sim": 6.0, "e4m3": 8.0, "e5m2": 12.0}  # one key's score above the others'
KINDS = ("plain", "sharp", "offset", "ramp", "spikes", "huge", "codes", "heads", "zeros", "sink")

__all__ = ["OUTPUTS", "arguments", "draw_cases", "images", "judged"]


def draw_cases(
    rng: np.random.Generator, tiles: dict[str, int], compiled: dict[str, Any], offsets: bool = True
) -> list[Case]:
    cases = []
    for sizes in drawn_sizes(rng, tiles):
        tensors = places(rng, sizes, compiled, compiled["format"], 16, offsets)
        heads, kv_heads = (sizes["B"], sizes["H"]), (sizes["B"], sizes["H_kv"])
        scales = {
            f"{name}_scale": packed("float32", heads if name == "q" else kv_heads) for name in "qkv"
        }
        cases.append(
            {
                **sizes,
                "D": compiled["D"],
                "dtype": compiled["dtype"],
                "format": compiled["format"],
                "mask": compiled["mask"],
                "kind": str(rng.choice(KINDS)),
                "seed": int(rng.integers(0, 2**31)),
                "tensors": {**tensors, **scales},
            }
        )
    return cases


def arguments(case: Case) -> list[tuple[str, Any]]:
    return [
        *(
            ("tensor", name)
            for name in ("q", "k", "v", "q_scale", "k_scale", "v_scale", "o", "lse")
        ),
        *scalars(case),
    ]


# ---- data ----


def images(case: Case) -> Images:
    rng, form = np.random.default_rng(case["seed"]), case["format"]
    values = {}
    for name, tensor in zip("qkv", shaped(case, rng), strict=True):
        codes, scales = (
            any_codes(rng, tensor.shape, form)
            if case["kind"] == "codes"
            else quantised(rng, tensor, form)
        )
        values |= {name: codes, f"{name}_scale": scales}
    return filled(case, values)


def shaped(case: Case, rng: np.random.Generator) -> list[np.ndarray]:
    q, k, v = bent(drawn(case, rng), case["kind"])
    if case["kind"] == "heads":  # neighbours' scales are far apart, scores are not
        far = 64.0 ** rng.integers(-1, 2, (case["B"], case["H_kv"], 1, 1))
        k *= far
        q /= np.repeat(far, case["H"] // case["H_kv"], axis=1)
        v *= 64.0 ** rng.integers(-1, 2, v.shape[:2])[..., None, None]
    elif case["kind"] == "zeros":  # whole heads of q, of k, of v
        for tensor in (q, k, v):
            tensor[rng.random(tensor.shape[:2]) < 0.4] = 0.0
    elif case["kind"] == "sink" and case["S_kv"]:
        # One key has nearly all the weight and V = 0 there: O is a sum over small weights.
        key = int(rng.integers(0, case["S_kv"]))
        q[..., 0], k[..., 0] = 1.0, 0.0
        k[:, :, key] = 0.0
        k[:, :, key, 0] = SINK[case["format"]] * case["D"] ** 0.5
        v[:, :, key] = 0.0
    return [q, k, v]


def quantised(
    rng: np.random.Generator, tensor: np.ndarray, form: str
) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scales: a head's largest number is a drawn share of the format's largest."""
    largest = np.abs(tensor).max(axis=(2, 3), initial=0.0)
    share = rng.uniform(0.25, 1.0, largest.shape)
    scales = (
        np.where(largest > 0.0, largest / (share * LARGEST[form]), 1.0)
        .astype(np.float32)
        .astype(np.float64)
    )
    return encoded(tensor / scales[..., None, None], form), scales


def any_codes(
    rng: np.random.Generator, shape: tuple[int, ...], form: str
) -> tuple[np.ndarray, np.ndarray]:
    """Uniform finite codes; a head's numbers have a root mean square from 0.25 to 1."""
    known = np.flatnonzero(np.isfinite(NUMBERS[form]))
    size = np.sqrt(np.mean(NUMBERS[form][known] ** 2))
    return rng.choice(known, shape).astype(np.uint8), rng.uniform(0.25, 1.0, shape[:2]) / size


# ---- the judgement ----


def judged(case: Case, before: Images, after: Images) -> tuple[str, float]:
    form, type_ = case["format"], case["dtype"]
    unit_p, tiny_p = (
        (UNIT[type_], TINY[type_])
        if form == "sim"
        else (UNIT[form], TINY[form] / LEAST_P_SCALE[form])
    )
    q, k, v = (
        numbers(before[name], case["tensors"][name])
        * numbers(before[f"{name}_scale"], case["tensors"][f"{name}_scale"])[..., None, None]
        for name in "qkv"
    )
    return verdict(
        case,
        before,
        after,
        expected(case, q, k, v, Held(unit_p, tiny_p, 0.0, 0.0, UNIT[type_], TINY[type_])),
    )
