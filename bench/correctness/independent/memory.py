"""The independent checker's types and memory, written from the formats' definitions alone.

Each tensor lies in its own image, at a random offset and with random strides (in elements).
Elements of an image outside the tensor hold a marker that no computation gives. A case holds
its tensors' places as plain data: {"type", "shape", "strides", "offset", "elements"} by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

Case = dict[str, Any]
Place = dict[str, Any]
Images = dict[str, np.ndarray]

# The stored type of elements, and the marker: a NaN of every format but sim, and sim's largest.
STORED = {
    "fp16": (np.uint16, 0x7E5B),
    "bf16": (np.uint16, 0x7FDB),
    "float32": (np.uint32, 0x7FC5A5C5),
    "sim": (np.uint8, 0xFF),
    "e4m3": (np.uint8, 0xFF),
    "e5m2": (np.uint8, 0xFF),
}
# Rounding to nearest: the largest relative error, and the largest absolute error below the smallest
# normal number. bf16 has float32's exponents, and float32 operations may flush subnormal numbers.
UNIT = {"fp16": 2.0**-11, "bf16": 2.0**-8, "e4m3": 2.0**-4, "e5m2": 2.0**-3}
TINY = {"fp16": 2.0**-25, "bf16": 2.0**-126, "e4m3": 2.0**-10, "e5m2": 2.0**-17}
STEP = 2.0**-23  # of float32; twice what one rounding loses


def eight_bits(exponent_bits: int, fraction_bits: int, last_finite: int) -> np.ndarray:
    """The values of an 8-bit format's 256 codes (OCP OFP8, section 5), NaN past the last finite."""
    code, bias = np.arange(256), 2 ** (exponent_bits - 1) - 1
    exponent, fraction = (
        (code & 0x7F) >> fraction_bits,
        (code & 2**fraction_bits - 1) / 2.0**fraction_bits,
    )
    size = np.where(
        exponent == 0, fraction * 2.0 ** (1 - bias), (1.0 + fraction) * 2.0 ** (exponent - bias)
    )
    return np.where((code & 0x7F) > last_finite, np.nan, np.where(code < 0x80, size, -size))


NUMBERS = {
    "sim": np.arange(256) - 128.0,
    "e4m3": eight_bits(4, 3, 0x7E),
    "e5m2": eight_bits(5, 2, 0x7B),
}


def encoded(values: np.ndarray, type_: str) -> np.ndarray:
    """float64 -> bits of the type, rounded to nearest; of an 8-bit type the nearest code."""
    if type_ == "fp16":
        return values.astype(np.float16).view(np.uint16)
    if type_ == "float32":
        return values.astype(np.float32).view(np.uint32)
    if type_ == "bf16":
        bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    numbers = NUMBERS[type_]
    # NaN is sorted to the end.
    codes = np.argsort(numbers, kind="stable")[: np.isfinite(numbers).sum()]
    ladder = numbers[codes]
    above = np.clip(np.searchsorted(ladder, values), 1, len(ladder) - 1)
    return codes[
        np.where(values - ladder[above - 1] < ladder[above] - values, above - 1, above)
    ].astype(np.uint8)


def decoded(bits: np.ndarray, type_: str) -> np.ndarray:
    if type_ == "fp16":
        return bits.view(np.float16).astype(np.float64)
    if type_ == "float32":
        return bits.view(np.float32).astype(np.float64)
    if type_ == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return NUMBERS[type_][bits]


# ---- places ----


def packed(type_: str, shape: tuple[int, ...]) -> Place:
    """C order, from the image's first element on."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return {
        "type": type_,
        "shape": shape,
        "strides": strides,
        "offset": 0,
        "elements": math.prod(shape) + 64,
    }


def drawn_rows(
    rng: np.random.Generator, type_: str, shape: tuple[int, int, int, int], unit: int, offsets: bool
) -> Place:
    """A tensor [batch, heads, rows, columns] with random strides, by heads or by rows in memory.

    Strides and the offset are multiples of `unit`.
    """
    batches, heads, rows, columns = shape

    def gap() -> int:
        return unit * int(rng.integers(0, 4))

    row = columns + gap()
    if rng.integers(0, 2):
        head = row * max(rows, 1) + gap()
        strides, size = (head * heads + gap(), head, row, 1), head * heads
    else:
        strides, size = (
            (row * heads * max(rows, 1), row, row * heads, 1),
            row * heads * max(rows, 1),
        )
    offset = unit * int(rng.integers(0, 5)) if offsets else 0
    return {
        "type": type_,
        "shape": shape,
        "strides": strides,
        "offset": offset,
        "elements": offset + strides[0] * (batches - 1) + size + 64,
    }


def marked(place: Place) -> np.ndarray:
    storage, marker = STORED[place["type"]]
    return np.full(place["elements"], marker, storage)


def elements(image: np.ndarray, place: Place) -> np.ndarray:
    """The tensor's elements inside its image, in logical order."""
    steps = [stride * image.itemsize for stride in place["strides"]]
    return np.lib.stride_tricks.as_strided(image[place["offset"] :], tuple(place["shape"]), steps)


def numbers(image: np.ndarray, place: Place) -> np.ndarray:
    """The tensor's values as float64."""
    return decoded(np.ascontiguousarray(elements(image, place)), place["type"])


def filled(case: Case, values: Mapping[str, np.ndarray]) -> Images:
    """All images of a case before a run; `values` are the inputs' elements, or their codes."""
    images = {}
    for name, place in case["tensors"].items():
        image = marked(place)
        if name in values and values[name].size:
            given = values[name]
            elements(image, place)[...] = (
                given if given.dtype == np.uint8 else encoded(given, place["type"])
            )
        images[name] = image
    return images


def touched(case: Case, before: Images, after: Images, outputs: tuple[str, ...]) -> str:
    """A write outside the outputs; empty if there was none."""
    for name, place in case["tensors"].items():
        left = after[name].copy()
        if name in outputs and math.prod(place["shape"]):
            elements(left, place)[...] = STORED[place["type"]][1]
        if not (left == before[name]).all():
            return (
                f"something beside {name} was written" if name in outputs else f"{name} was changed"
            )
    return ""


# ---- the judgement of one output ----


def beyond(name: str, values: np.ndarray, reference: np.ndarray, bound: np.ndarray) -> str:
    """How many elements exceed their bound; empty if none. Infinities must be equal."""
    finite = np.isfinite(reference)
    error = np.abs(np.where(finite, values, 0.0) - np.where(finite, reference, 0.0))
    inside = np.where(finite, error <= bound, values == reference)  # NaN is never inside
    if inside.all():
        return ""
    worst = np.where(inside | ~np.isfinite(error), 0.0, error / (bound + 1e-300)).max()
    count = (~inside).sum()
    return (
        f"{count} of {values.size} elements of {name} are beyond their bound, "
        f"up to {worst:.3g} times"
    )


def mean_ratio(values: np.ndarray, reference: np.ndarray, variance: np.ndarray) -> float:
    """The root mean square error over that of independent roundings; 0 if they have none."""
    expected = float(variance.sum())
    return math.sqrt(float(((values - reference) ** 2).sum()) / expected) if expected > 0.0 else 0.0
