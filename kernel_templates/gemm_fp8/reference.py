"""A linear layer on 8-bit codes: hard inputs, the float64 reference on what the codes stand for, and the error that a
right kernel may have. What was lost when the codes were made is not its error.

a [M, K], b [N, K] codes, a_scale and b_scale [1] or [M] and [N], bias [N], residual, c [M, N]; with the numbers that the
codes stand for, decode(code) times a scale, c = activation(a b^T + bias) + residual. What codes do not change is gemm's.

The bounds are gemm's, and one more: what a tensor core may lose of a sum each time it adds 32 products. PTX leaves it
open. Hopper is said to keep about 14 bits (DeepSeek-V3, arXiv 2412.19437, section 3.3.2) and Ada's adder 13 fraction
bits (Zhang et al., SageAttention2, arXiv 2411.10958); an H200's wgmma loses more than 2^-13 (bench.gpu.fp8). Each addition
may therefore lose 2^-12 of the largest sum on the way. That is taken to be |a b^T| + 6 sqrt(sum (a b)^2) at most, which
terms with random signs do not exceed, and never more than sum |a b|. With sums = float32 the sums that tensor cores make
have 128 products; those of all blocks of 128 lose no more together than one of sqrt(blocks) times that size
(Cauchy and Schwarz).
"""

from __future__ import annotations

from collections.abc import Mapping

import gemm_reference as plain
import ml_dtypes
import numpy as np
from gemm_reference import Arrays, Dims

FP8 = {"e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2)}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}                       # what the largest number of a scale becomes
# The largest, the smallest, zero (both), and the neighbours of zero.
END_CODES = {"e4m3": (0x7E, 0xFE, 0x00, 0x80, 0x01, 0x81), "e5m2": (0x7B, 0xFB, 0x00, 0x80, 0x01, 0x81)}
ADDER_STEP = 2.0**-12
ADDED_AT_ONCE = 32
LONGEST_SUM = 128                                                # of tensor cores, with sums = float32
SIZE_OF_SUMS = 6.0

RECIPES = (*plain.RECIPES, "extreme_codes")


# ---- codes ----


def quantise(numbers: np.ndarray, form: str, by_row: bool) -> tuple[np.ndarray, np.ndarray]:
    """(codes, scales) of numbers [rows, K]: uint8, and float32 [rows] or [1].

    The largest number of a scale gets the format's largest code. Zeros alone have scale 1 and zero's code.
    """
    largest = np.abs(numbers).max(axis=1, initial=0.0) if by_row else np.abs(numbers).max(initial=0.0)[None]
    scales = np.where(largest > 0.0, largest / LARGEST[form], 1.0).astype(np.float32)
    units = numbers / scales.astype(np.float64)[:, None]
    return np.clip(units, -LARGEST[form], LARGEST[form]).astype(np.float32).astype(FP8[form]).view(np.uint8), scales


def dequantised(inputs: Arrays, name: str, form: str) -> np.ndarray:
    """What codes and scales stand for, exactly: float64."""
    return inputs[name].view(FP8[form]).astype(np.float64) * inputs[f"{name}_scale"].astype(np.float64)[:, None]


def numbers_of(options: Mapping[str, str], inputs: Arrays) -> Arrays:
    """The inputs that gemm's reference takes."""
    return {**inputs, **{name: dequantised(inputs, name, options["format"]) for name in "ab"}}


# ---- inputs: gemm's recipes, made into codes ----


def make_inputs(
    dims: Dims, options: Mapping[str, str], recipe: str, seed: int, tiles: Mapping[str, int]
) -> Arrays:
    """Codes of a and b with their scales, bias and residual; the same arguments give the same bits.

    ValueError: an unknown recipe, or numbers of scales that do not follow from M, N and row_scales.
    """
    m, n, k, form, by_row = dims["M"], dims["N"], dims["K"], options["format"], bool(dims["row_scales"])
    scales = (dims.get("A_scales", m if by_row else 1), dims.get("B_scales", n if by_row else 1))
    if scales != ((m, n) if by_row else (1, 1)):
        raise ValueError(f"{scales} scales do not follow from M={m}, N={n}, row_scales={int(by_row)}")
    if recipe not in RECIPES:
        raise ValueError(f"unknown inputs {recipe!r}; known: " + ", ".join(RECIPES))
    random = np.random.default_rng([seed, RECIPES.index(recipe)])
    a = random.standard_normal((m, k), np.float32).astype(np.float64)
    b = random.standard_normal((n, k), np.float32).astype(np.float64) / np.sqrt(max(k, 1))
    bias = random.standard_normal(n)
    residual = random.standard_normal((m, n), np.float32) if options["residual"] == "yes" else np.tile(bias, (m, 1))
    if recipe == "extreme_codes":
        codes = [_at_the_ends(random, rows, k, form, count) for rows, count in zip((m, n), scales, strict=True)]
    else:
        plain._RECIPES[recipe](a, b, bias, residual)
        codes = [quantise(array, form, by_row) for array in (a, b)]
    storage = plain.STORAGE[options["dtype"]]
    return {"a": codes[0][0], "b": codes[1][0], "a_scale": codes[0][1], "b_scale": codes[1][1],
            "bias": bias.astype(storage), "residual": residual.astype(storage)}


def _at_the_ends(
    random: np.random.Generator, rows: int, k: int, form: str, scales: int
) -> tuple[np.ndarray, np.ndarray]:
    values = random.uniform(0.5, 2.0, scales) / (LARGEST[form] * max(k, 1) ** 0.25)
    return random.choice(np.array(END_CODES[form], np.uint8), (rows, k)), values.astype(np.float32)


# ---- the reference ----


def adder(dims: Dims, options: Mapping[str, str], numbers: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """What tensor cores may lose of the sums at most, and about what they lose."""
    a, b = numbers["a"].astype(np.float32), numbers["b"].astype(np.float32)
    walk = np.sqrt((a * a) @ (b * b).T).astype(np.float64)       # of terms with random signs
    if options["sums"] == "float32":
        additions = -(-min(dims["K"], LONGEST_SUM) // ADDED_AT_ONCE)
        walk = walk * np.sqrt(-(-dims["K"] // LONGEST_SUM))
        sums = walk                                              # of a block, taken to be as large as its walk
    else:
        additions, sums = -(-dims["K"] // ADDED_AT_ONCE), np.abs(a @ b.T).astype(np.float64)
    largest = np.minimum(plain.sizes_of(a, b), sums + SIZE_OF_SUMS * walk)
    return additions * ADDER_STEP * largest, additions * ADDER_STEP / 8.0 * (sums + walk)


def products(dims: Dims, options: Mapping[str, str], inputs: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """The sums over K times their scales, and what may be lost in them."""
    numbers = numbers_of(options, inputs)
    value, off = plain.products(dims, numbers)
    return value, off + adder(dims, options, numbers)[0]


def finished(
    dims: Dims, options: Mapping[str, str], inputs: Arrays
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """c before it is rounded, with its bound, and about what the adder loses of it."""
    numbers = numbers_of(options, inputs)
    value, off = plain.finished(dims, options, numbers)
    most, about = (plain.SLOPE[options["activation"]] * lost for lost in adder(dims, options, numbers))
    return value, off + most, about


def reference(
    dims: Dims, options: Mapping[str, str], inputs: Arrays
) -> dict[str, dict[str, np.ndarray | None]]:
    """For c: "value", the pointwise "bound" on |output - value|, and "rounded"."""
    dtype = options["dtype"]
    value, bound, about = finished(dims, options, inputs)
    unit, step = plain.UNIT_ROUNDOFF[dtype], plain.SUBNORMAL_ROUNDOFF[dtype]
    bound = bound * (1.0 + unit) + unit * np.abs(value) + step
    return {"c": {"value": value, "bound": bound, "rounded": plain.rounded(value + about, dtype)}}


# ---- probes: what a stage of a template wrote, beside what it should be (docs/probes.md) ----


def probe_products(
    dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float], got: np.ndarray
) -> Arrays:
    value, bound = products(dims, options, inputs)
    return {"value": value, "bound": bound}


def probe_finished(
    dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float], got: np.ndarray
) -> Arrays:
    value, bound, _ = finished(dims, options, inputs)
    return {"value": value, "bound": bound}
