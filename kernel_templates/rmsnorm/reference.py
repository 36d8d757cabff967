"""RMSNorm's hard inputs, its float64 reference, and the error that a right kernel may have.

x, residual, h, y [M, N], weight [N]; h = x + residual, y = h * row_scale * weight, row_scale = 1 / sqrt(mean(h^2) + eps).

The bounds count what a right kernel does in float32, in any order:
    h           one rounding to the storage type, u |h| + eta, and one of float32 before it
    the sum     of h as it is or as it was rounded, n squares and additions: (n + 4) 2^-24 of it, since no term is negative
    row_scale   half of that, and 2^-21 for the division by n, the addition of eps, and a reciprocal root (2 ulp)
    y           h's own rounding, if y was made of rounded h; two products; and two roundings to the storage type,
                since many models round h * row_scale before they multiply it by the weight
u and eta are the largest relative and absolute errors of rounding to nearest. What rounding does to h is known, so the
bound takes |rounded h - h| itself, not its largest value. The source of the first-order sums is Higham, Accuracy and
Stability of Numerical Algorithms, section 4.2.
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
FLOAT32_ROUNDOFF = 2.0**-24
EPS = 1e-6


# ---- inputs: each recipe bends plain normal x, residual and weight in place (float64) ----

def normal(x: np.ndarray, residual: np.ndarray, weight: np.ndarray) -> None:
    """Plain normal inputs; weights about 1."""


def large(x: np.ndarray, residual: np.ndarray, weight: np.ndarray) -> None:
    """|h| from 20,000 to 60,000, near the end of fp16: its square is infinite there, and so is a sum of halves."""
    for array in (x, residual):
        array[...] = 10_000.0 + 20_000.0 * (np.abs(array) % 1.0)
    sign = np.where(np.arange(x.shape[1]) % 3 == 1, -1.0, 1.0)
    x *= sign
    residual *= sign


def zeros(x: np.ndarray, residual: np.ndarray, weight: np.ndarray) -> None:
    """Even rows hold nothing, every fourth one because x and residual cancel; without eps they are 0 times infinity."""
    x[::4] = residual[::4] = 0.0
    residual[2::4] = -x[2::4]


def tiny(x: np.ndarray, residual: np.ndarray, weight: np.ndarray) -> None:
    """A mean square of about eps, so that eps is half of what is under the root."""
    x *= EPS**0.5
    residual *= EPS**0.5 / 8.0


def spike(x: np.ndarray, residual: np.ndarray, weight: np.ndarray) -> None:
    """One element of a row is 1000 times the others: the last, the first or the middle one."""
    columns = x.shape[1]
    rows = np.arange(x.shape[0])
    x[rows, np.resize([columns - 1, 0, columns // 2], rows.size)] = 1000.0


def cancellation(x: np.ndarray, residual: np.ndarray, weight: np.ndarray) -> None:
    """x and residual are about 1000 and nearly cancel: h is what their last bits leave."""
    x *= 1000.0
    residual[...] = residual - x


def weight_scales(x: np.ndarray, residual: np.ndarray, weight: np.ndarray) -> None:
    """The weights of neighbouring columns are 100x apart, so a wrong column shows; every other three are negative, and
    every eleventh is zero."""
    column = np.arange(weight.size)
    weight *= 100.0 ** (column % 3 - 1.0) * np.where(column // 3 % 2 == 1, -1.0, 1.0)
    weight[10::11] = 0.0


def row_scales(x: np.ndarray, residual: np.ndarray, weight: np.ndarray) -> None:
    """Neighbouring rows are 100x apart: a row that was scaled, or summed, with its neighbour shows."""
    for array in (x, residual):
        array *= (100.0 ** (np.arange(x.shape[0]) % 3 - 1.0))[:, None]


_RECIPES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], None]] = {
    recipe.__name__: recipe for recipe in (normal, large, zeros, tiny, spike, cancellation, weight_scales, row_scales)}
RECIPES = tuple(_RECIPES)


def make_inputs(dims: Dims, options: Mapping[str, str], recipe: str, seed: int, tiles: Mapping[str, int]) -> Arrays:
    """x, residual and weight in the storage type of options["dtype"]; the same arguments give the same bits.

    ValueError: an unknown recipe.
    """
    if recipe not in _RECIPES:
        raise ValueError(f"unknown inputs {recipe!r}; known: " + ", ".join(RECIPES))
    random = np.random.default_rng([seed, RECIPES.index(recipe)])
    rows = (dims["M"], dims["N"])
    x, residual, weight = (random.standard_normal(shape) for shape in (rows, rows, dims["N"]))
    weight[...] = 1.0 + 0.25 * weight
    _RECIPES[recipe](x, residual, weight)
    storage = STORAGE[options["dtype"]]
    return {"x": x.astype(storage), "residual": residual.astype(storage), "weight": weight.astype(storage)}


# ---- the reference ----

def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """To the storage type and back."""
    return values.astype(STORAGE[dtype]).astype(np.float64)


def exact_rows(inputs: Arrays) -> np.ndarray:
    return inputs["x"].astype(np.float64) + inputs["residual"].astype(np.float64)


def sums_of_squares(h: np.ndarray) -> np.ndarray:
    return np.einsum("mn,mn->m", h, h)


def eps_of(dims: Dims) -> float:
    """The usual one, unless the check has its own."""
    return dims.get("eps", EPS)


def row_scales_of(sums: np.ndarray, dims: Dims) -> np.ndarray:
    return 1.0 / np.sqrt(sums / dims["N"] + eps_of(dims))


def sum_error(h: np.ndarray, h_rounded: np.ndarray) -> np.ndarray:
    """The largest error of a row's sum of squares: of h as it is or as it was rounded, added up in float32."""
    exact, of_rounded = sums_of_squares(h), sums_of_squares(h_rounded)
    return np.abs(of_rounded - exact) + (h.shape[1] + 4) * FLOAT32_ROUNDOFF * np.maximum(exact, of_rounded)


def scale_error(h: np.ndarray, h_rounded: np.ndarray, dims: Dims) -> np.ndarray:
    """The largest relative error of a row's scale."""
    columns = dims["N"]
    under_root = sums_of_squares(h) / columns + eps_of(dims)
    # d (s^-1/2) / s^-1/2 = -ds / 2s, and more where ds is no longer small beside s.
    return sum_error(h, h_rounded) / columns / (2.0 * under_root) * 1.01 + 2.0**-21


def reference(dims: Dims, options: Mapping[str, str], inputs: Arrays) -> dict[str, dict[str, np.ndarray | None]]:
    """For h and y: "value", the pointwise "bound" on |output - value|, and "rounded": only h and y are rounded."""
    dtype = options["dtype"]
    unit, step = UNIT_ROUNDOFF[dtype], SUBNORMAL_ROUNDOFF[dtype]
    h, weight = exact_rows(inputs), inputs["weight"].astype(np.float64)
    h_rounded = rounded(h, dtype)
    scale = row_scales_of(sums_of_squares(h), dims)[:, None]
    y = h * scale * weight
    scale_off = scale_error(h, h_rounded, dims)[:, None]
    bound = np.abs(h_rounded - h) * scale * np.abs(weight)
    bound += np.abs(y) * (2.0 * unit + scale_off + 4.0 * FLOAT32_ROUNDOFF)
    bound *= 1.0 + 2.0 * unit + scale_off                                    # one error on top of another
    bound += step * (1.0 + np.abs(weight))
    y_rounded = rounded(h_rounded * row_scales_of(sums_of_squares(h_rounded), dims)[:, None] * weight, dtype)
    return {"h": {"value": h, "bound": (unit + 2.0 * FLOAT32_ROUNDOFF) * np.abs(h) + step, "rounded": h_rounded},
            "y": {"value": y, "bound": bound, "rounded": y_rounded}}


# ---- the stages, as probes see them ----

def probe_residual(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
                   got: np.ndarray) -> dict[str, np.ndarray]:
    h = reference(dims, options, inputs)["h"]
    return {"value": h["value"], "bound": h["bound"]}


def probe_sum_of_squares(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
                         got: np.ndarray) -> dict[str, np.ndarray]:
    h = exact_rows(inputs)
    return {"value": sums_of_squares(h), "bound": sum_error(h, rounded(h, options["dtype"]))}


def probe_row_scale(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
                    got: np.ndarray) -> dict[str, np.ndarray]:
    h = exact_rows(inputs)
    value = row_scales_of(sums_of_squares(h), dims)
    return {"value": value, "bound": value * scale_error(h, rounded(h, options["dtype"]), dims)}
