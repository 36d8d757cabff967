"""A linear layer's hard inputs, its float64 reference, and the error that a right kernel may have.

a [M, K], b [N, K], bias [N], residual, c [M, N]; c = activation(a b^T + bias) + residual. A turned a is [K, M], a turned b
[K, N].

The bounds count what a right kernel does:
    the sum     K products and additions in float32 or by tensor cores, which may cut off instead of
                rounding, in any order: (K + 8) 2^-23 of the sum of |a b|, and the bias's addition
    activation  its slope is at most 1.13 (GELU) or 1.1 (SiLU); tanh by its approximation is off by
                2^-11 (PTX ISA, tanh.approx.f32), which GELU multiplies by x / 2
    c           the residual's addition and one rounding to the storage type, u |c| + eta
The source of the first-order sums is Higham, Accuracy and Stability of Numerical Algorithms,
section 4.2; of GELU's tanh form Hendrycks and Gimpel, arXiv 1606.08415.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np

Dims = Mapping[str, int]
Arrays = dict[str, np.ndarray]

STORAGE = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8}
SUBNORMAL_ROUNDOFF = {"fp16": 2.0**-25, "bf16": 2.0**-134}
SLOPE = {"none": 1.0, "gelu": 1.13, "silu": 1.1}


# ---- inputs: each recipe bends plain normal values in place ----


def normal(a: np.ndarray, b: np.ndarray, bias: np.ndarray, residual: np.ndarray) -> None:
    """Plain normal inputs; sums are of size 1."""


def scales(length: int) -> np.ndarray:
    """Factors of neighbours that are 100 apart."""
    return 100.0 ** (np.arange(length) % 3 - 1.0)


def depth_scales(a: np.ndarray, b: np.ndarray, bias: np.ndarray, residual: np.ndarray) -> None:
    """Neighbouring terms of a sum are 100x apart: a term that is left out or taken twice shows."""
    a *= scales(a.shape[1])


def row_scales(a: np.ndarray, b: np.ndarray, bias: np.ndarray, residual: np.ndarray) -> None:
    """Neighbouring rows of C are 100x apart: a row in another's place shows."""
    a *= scales(a.shape[0])[:, None]


def column_scales(a: np.ndarray, b: np.ndarray, bias: np.ndarray, residual: np.ndarray) -> None:
    """Neighbouring columns of C are 100x apart, and so are their biases."""
    b *= scales(b.shape[0])[:, None]
    bias *= scales(bias.size)


def cancellation(a: np.ndarray, b: np.ndarray, bias: np.ndarray, residual: np.ndarray) -> None:
    """The second half of K takes away what the first half added, but for its last term."""
    half = a.shape[1] // 2
    a[:, half : 2 * half] = a[:, :half]
    b[:, half : 2 * half] = -b[:, :half]
    b[:, half] += 0.25


def zeros(a: np.ndarray, b: np.ndarray, bias: np.ndarray, residual: np.ndarray) -> None:
    """Every other row of A and the last columns of B hold nothing."""
    a[::2] = 0.0
    b[-2:] = 0.0


_RECIPES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], None]] = {
    recipe.__name__: recipe
    for recipe in (normal, depth_scales, row_scales, column_scales, cancellation, zeros)
}
RECIPES = tuple(_RECIPES)


def make_inputs(
    dims: Dims, options: Mapping[str, str], recipe: str, seed: int, tiles: Mapping[str, int]
) -> Arrays:
    """a, b, bias and residual in the storage type; the same arguments give the same bits.

    ValueError: an unknown recipe, or shapes of a and b that do not follow from M, N and K.
    """
    m, n, k = dims["M"], dims["N"], dims["K"]
    for name, shape in (("a", (m, k)), ("b", (n, k))):
        shape = shape[::-1] if dims.get(f"turned_{name}") else shape
        given = tuple(dims.get(f"{name.upper()}_{axis}", size) for axis, size in zip(("rows", "columns"), shape, strict=True))
        if given != shape:
            raise ValueError(f"{name} is {given}, and {shape} follows from M={m}, N={n}, K={k}")
    if recipe not in _RECIPES:
        raise ValueError(f"unknown inputs {recipe!r}; known: " + ", ".join(RECIPES))
    random = np.random.default_rng([seed, RECIPES.index(recipe)])
    a = random.standard_normal((dims["M"], dims["K"]), np.float32)
    b = random.standard_normal((dims["N"], dims["K"]), np.float32)
    b *= np.float32(1.0 / np.sqrt(max(dims["K"], 1)))
    bias = random.standard_normal(dims["N"])
    if options["residual"] == "yes":
        residual = random.standard_normal((dims["M"], dims["N"]), np.float32)
    else:                                          # nobody may read it, and drawing it takes time where C is large
        residual = np.tile(bias.astype(np.float32), (dims["M"], 1))
    _RECIPES[recipe](a, b, bias, residual)
    storage = STORAGE[options["dtype"]]
    a, b = (array.T if dims.get(turned) else array for array, turned in ((a, "turned_a"), (b, "turned_b")))
    arrays = {"a": np.ascontiguousarray(a), "b": np.ascontiguousarray(b), "bias": bias, "residual": residual}
    return {name: array.astype(storage) for name, array in arrays.items()}


# ---- the reference ----


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """To the storage type and back."""
    return values.astype(STORAGE[dtype]).astype(np.float64)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1.0 + np.exp(np.minimum(-x, 700.0)))


def sizes_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """sum |a b|, from above: in float32 where its own error is small, since a bound needs few digits."""
    with np.errstate(over="ignore"):
        sizes = (np.abs(a).astype(np.float32) @ np.abs(b).astype(np.float32).T).astype(np.float64)
    return sizes * (1.0 + (a.shape[1] + 2) * 2.0**-23)


ACTIVATIONS = {"none": lambda x: x, "gelu": gelu, "silu": silu}


def products(dims: Dims, inputs: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """The sums over K, and what float32 may lose in them."""
    a, b = (inputs[name].astype(np.float64) for name in ("a", "b"))
    a, b = (array.T if dims.get(turned) else array for array, turned in ((a, "turned_a"), (b, "turned_b")))
    return a @ b.T, (dims["K"] + 8) * 2.0**-23 * sizes_of(a, b)


def finished(dims: Dims, options: Mapping[str, str], inputs: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """c before it is rounded, with its bound."""
    activation = options["activation"]
    bias, residual = (inputs[name].astype(np.float64) for name in ("bias", "residual"))
    sums, off = products(dims, inputs)
    if options["bias"] == "yes":
        sums = sums + bias
        off = off + 2.0**-23 * np.abs(sums)
    value = ACTIVATIONS[activation](sums)
    off = SLOPE[activation] * off
    if activation == "gelu":
        off = off + 2.0**-11 * 0.5 * np.abs(sums) + 2.0**-21 * np.abs(sums)
    elif activation == "silu":
        off = off + 2.0**-20 * np.abs(sums)
    if options["residual"] == "yes":
        value = value + residual
    return value, off + 2.0**-23 * np.abs(value)


def reference(
    dims: Dims, options: Mapping[str, str], inputs: Arrays
) -> dict[str, dict[str, np.ndarray | None]]:
    """For c: "value", the pointwise "bound" on |output - value|, and "rounded"."""
    dtype = options["dtype"]
    value, bound = finished(dims, options, inputs)
    unit, step = UNIT_ROUNDOFF[dtype], SUBNORMAL_ROUNDOFF[dtype]
    bound = bound * (1.0 + unit) + unit * np.abs(value) + step
    return {"c": {"value": value, "bound": bound, "rounded": rounded(value, dtype)}}


# ---- probes: what a stage of a template wrote, beside what it should be (docs/probes.md) ----


def probe_products(
    dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float], got: np.ndarray
) -> Arrays:
    value, bound = products(dims, inputs)
    return {"value": value, "bound": bound}


def probe_finished(
    dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float], got: np.ndarray
) -> Arrays:
    value, bound = finished(dims, options, inputs)
    return {"value": value, "bound": bound}
