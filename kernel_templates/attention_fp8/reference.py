"""Attention on 8-bit codes: hard inputs, the float64 reference on what the codes stand for, and the error that a right
kernel may have. What was lost when the codes were made is not its error.

Everything is in logical order: q, o [B, H, S_q, D], k, v [B, H_kv, S_kv, D], lse [B, H, S_q]; q_scale [B, H],
k_scale, v_scale [B, H_kv]. A number is decode(code) times its head's scale. What codes do not change is attention's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import attention_reference as plain
import ml_dtypes
import numpy as np
from attention_reference import (FLOAT32_STEP, STORAGE, Arrays, Dims, HeadScores, KeyHead, Rows, _state, _stored, blocks,
                                 constant_v, dominant_key, equal_keys, falling, far_apart, lost_with_the_maximum, normal,
                                 rising, row_code, row_largest, softmax_scale, to_numpy, visible_keys)

FP8 = {"e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2)}
LARGEST = {"sim": 127.0, "e4m3": 448.0, "e5m2": 57344.0}         # what a head's largest number becomes
MIDPOINT = 128                                                   # sim's code of zero
# The largest, the smallest, zero (both, if there are two), and the neighbours of zero.
END_CODES = {"sim": (0, 255, 128, 127, 129), "e4m3": (0x7E, 0xFE, 0x00, 0x80, 0x01, 0x81),
             "e5m2": (0x7B, 0xFB, 0x00, 0x80, 0x01, 0x81)}

# Largest relative error of rounding to nearest, and largest absolute one below the smallest normal number.
UNIT_ROUNDOFF = {**plain.UNIT_ROUNDOFF, "e4m3": 2.0**-4, "e5m2": 2.0**-3}
SUBNORMAL_ROUNDOFF = {**plain.SUBNORMAL_ROUNDOFF, "e4m3": 2.0**-10, "e5m2": 2.0**-17}
# P is held times a power of two, so that it uses the format's range: the usual one, and the least that is right.
P_SCALE = {"e4m3": 2.0**8, "e5m2": 2.0**15}
LEAST_P_SCALE = {"e4m3": 2.0**6, "e5m2": 2.0**8}
# What an fp8 tensor core may lose of its sums each time it adds 32 products, as a share of the sum of their sizes. PTX
# leaves it open. Ada's adder is said to keep 13 fraction bits (Zhang et al., SageAttention2, arXiv 2411.10958), below the
# largest of all addends; each of them is cut there. An H200's mma.sync keeps all 23 (bench/results/h200/fp8.json): sm_90
# has no fp8 mma.sync, and its assembler makes two f16 ones of it, whose sums are float32's. Its wgmma lost up to 2^-12.6
# of a score's sum a step, and 2^-11.6 of O's: twice this value, which `rounded` counts and the Frobenius bound doubles.
ACCUMULATOR_STEP = {"sim": 0.0, "e4m3": 2.0**-12, "e5m2": 2.0**-12}
ACCUMULATED_AT_ONCE = 32
ADDER_BITS = 13                                                  # below the largest addend, of those sums
SMALL_WEIGHT_DROP = {"sim": 6.0, "e4m3": 8.0, "e5m2": 12.0}      # of a score: e^-8 is 2^-11.5, e4m3's last step 2^-9


# ---- codes ----

def quantise(numbers: np.ndarray, form: str) -> tuple[np.ndarray, np.ndarray]:
    """(codes, scales) of numbers [B, heads, rows, D]: uint8, and float32 [B, heads].

    A head's largest number gets the format's largest code. A head of zeros has scale 1 and zero's code.
    """
    largest = np.abs(numbers).max(axis=(2, 3), initial=0.0)
    scales = np.where(largest > 0.0, largest / LARGEST[form], 1.0).astype(np.float32)
    units = numbers / scales.astype(np.float64)[..., None, None]
    return encode(np.clip(units, -LARGEST[form], LARGEST[form]), form), scales


def encode(units: np.ndarray, form: str) -> np.ndarray:
    """The nearest codes of values within the format's range: uint8."""
    if form == "sim":
        return (np.rint(units) + MIDPOINT).astype(np.uint8)
    return units.astype(np.float32).astype(FP8[form]).view(np.uint8)


def decode(codes: np.ndarray, form: str) -> np.ndarray:
    """What codes stand for, before the scale, exactly: float64."""
    if form == "sim":
        return codes.astype(np.float64) - MIDPOINT
    return codes.view(FP8[form]).astype(np.float64)


def dequantised(inputs: Arrays, name: str, form: str) -> np.ndarray:
    return decode(inputs[name], form) * inputs[f"{name}_scale"].astype(np.float64)[..., None, None]


# ---- inputs: each recipe bends plain normal q, k, v in place (float64) ----

@dataclass(frozen=True)
class Draft(plain.Draft):
    """Inputs before they become codes."""

    form: str

    def one_key_a_head(self) -> np.ndarray:
        """The key that dominant_key raises: bool [H_kv, S_kv]; empty without keys."""
        heads, keys = self.k.shape[1:3]
        chosen = np.zeros((heads, keys), bool)
        if keys:
            chosen[np.arange(heads), np.resize([keys - 1, 0, keys // 2], heads)] = True
        return chosen


def small_weights(draft: Draft) -> None:
    """One key takes nearly all the weight and its value is 0, so O is made of weights far below 1."""
    chosen = draft.one_key_a_head()
    draft.add_to_scores(np.where(chosen, SMALL_WEIGHT_DROP[draft.form], 0.0))
    draft.v[...] *= np.where(chosen, 0.0, 1.0)[..., None]


def head_scales(draft: Draft) -> None:
    """Scales of neighbouring heads, and of one head in two batches, are 100x apart; scores stay between 0.3 and 3."""
    (batches, heads), kv_heads = draft.q.shape[:2], draft.k.shape[1]
    batch, head, kv_head = np.arange(batches)[:, None], np.arange(heads), np.arange(kv_heads)
    k_factor = 100.0 ** ((kv_head + batch) % 3 - 1.0)
    draft.k[...] *= k_factor[..., None, None]
    draft.v[...] *= (100.0 ** ((kv_head + 2 * batch) % 3 - 1.0))[..., None, None]
    q_factor = np.where((head + batch) % 2, 0.3, 3.0) / k_factor[:, head * kv_heads // heads]
    draft.q[...] *= q_factor[..., None, None]


def zero_heads(draft: Draft) -> None:
    """All of q is zero in the first head, of k in the second, of v in the third; in the fourth, q and k are so small that
    the product of their scales is no float32."""
    for array, head in ((draft.q, 0), (draft.k, 1), (draft.v, 2)):
        array[:, head % array.shape[1]] = 0.0
    for array in (draft.q, draft.k):
        array[:, 3:4] *= 1e-22


def extreme_codes(draft: Draft) -> None:
    """Made in make_inputs: codes at the ends of the format's range, drawn as codes."""


_RECIPES: dict[str, Callable[[Draft], None]] = {
    recipe.__name__: recipe for recipe in (normal, rising, falling, equal_keys, dominant_key, small_weights, constant_v,
                                           row_code, head_scales, zero_heads, extreme_codes, far_apart)}
RECIPES = tuple(_RECIPES)


def make_inputs(dims: Dims, options: Mapping[str, str], recipe: str, seed: int,
                tiles: Mapping[str, int]) -> Arrays:
    """q, k, v as codes of options["format"], and their scales; the same arguments give the same bits.

    `tiles` are the candidate's (tile_q, tile_kv, depth); recipes that change from tile to tile follow them.
    ValueError: an unknown recipe.
    """
    if recipe not in _RECIPES:
        raise ValueError(f"unknown inputs {recipe!r}; known: " + ", ".join(RECIPES))
    if dims["H"] % dims["H_kv"]:
        raise ValueError(f"H={dims['H']} is not a multiple of H_kv={dims['H_kv']}")
    form = options["format"]
    random = np.random.default_rng([seed, RECIPES.index(recipe)])
    queries = (dims["B"], dims["H"], dims["S_q"], dims["D"])
    keys = (dims["B"], dims["H_kv"], dims["S_kv"], dims["D"])
    if recipe == "extreme_codes":
        found = {name: _at_the_ends(random, shape, form) for name, shape in (("q", queries), ("k", keys), ("v", keys))}
    else:
        draft = Draft(random.standard_normal(queries), random.standard_normal(keys), random.standard_normal(keys),
                      softmax_scale(dims), tiles.get("tile_kv", 64), form)
        _RECIPES[recipe](draft)
        found = {name: quantise(getattr(draft, name), form) for name in "qkv"}
    return {**{name: codes for name, (codes, _) in found.items()},
            **{f"{name}_scale": scales for name, (_, scales) in found.items()}}


def _at_the_ends(random: np.random.Generator, shape: tuple[int, ...], form: str) -> tuple[np.ndarray, np.ndarray]:
    scales = random.uniform(0.5, 2.0, shape[:2]) / LARGEST[form]
    return random.choice(np.array(END_CODES[form], np.uint8), shape), scales.astype(np.float32)


# ---- the reference ----

@dataclass(frozen=True)
class Held:
    """How P and O are stored, and what sums may lose."""

    p_type: str                      # of UNIT_ROUNDOFF
    p_dtype: np.dtype
    p_scale: float
    eta: float                       # absolute error of a p below the smallest normal number
    o_type: str
    step: float                      # of a tensor core's sum, for each ACCUMULATED_AT_ONCE products

    @property
    def o_dtype(self) -> np.dtype:
        return STORAGE[self.o_type]


def held(options: Mapping[str, str]) -> Held:
    form, dtype = options["format"], options["dtype"]
    if form == "sim":
        return Held(dtype, STORAGE[dtype], 1.0, SUBNORMAL_ROUNDOFF[dtype], dtype, ACCUMULATOR_STEP[form])
    return Held(form, FP8[form], P_SCALE[form], SUBNORMAL_ROUNDOFF[form] / LEAST_P_SCALE[form], dtype,
                ACCUMULATOR_STEP[form])


def key_head(k: np.ndarray, v: np.ndarray, xp: Any = np) -> KeyHead:
    """K and V [keys, D] of a head, both float64, for `attend`."""
    exact = [xp.asarray(array) for array in (k, v)]
    size = [xp.abs(array.astype(np.float32)) for array in exact]
    return KeyHead(*exact, *size, largest_v=float(np.abs(v).max(initial=0.0)))


def attend(q: np.ndarray, head: KeyHead, visible: Any, scale: float,
           stored: Held, xp: Any = np) -> Rows:
    """Attention of q [rows, D], float64, over a head's keys, row r seeing the first visible[r], an array of `xp`."""
    rows = xp.asarray(q)
    hidden = xp.arange(len(head.k)) >= visible[:, None]
    score = (rows * scale) @ head.k.T
    abs_score = xp.abs(rows.astype(np.float32)) @ head.k_size.T
    if hidden.any():
        score[hidden], abs_score[hidden] = -np.inf, 0.0
    row_max = row_largest(score, -np.inf, xp)
    score -= xp.where(visible > 0, row_max, 0.0)[:, None]
    p = xp.exp(score, out=score)
    l = p.sum(axis=1)
    divisor = xp.where(visible > 0, l, 1.0)[:, None]
    off = lost_with_the_maximum(row_max, UNIT_ROUNDOFF[stored.p_type], xp)[:, None]
    rounded = (_stored(p * stored.p_scale, stored.p_dtype, xp) @ head.v) / (divisor * stored.p_scale) * (1.0 + off)
    value = (p @ head.v) / divisor
    mean_abs_v = (p.astype(np.float32) @ head.v_size).astype(np.float64) / divisor
    cut = rounded - xp.sign(value) * adder_loss(visible, stored)[:, None] * mean_abs_v
    return Rows(value, cut, mean_abs_v, row_max, l, scale * row_largest(abs_score, 0.0, xp).astype(np.float64))


def adder_loss(visible: Any, stored: Held) -> Any:
    """What the adder may lose of each row's sum over its visible keys, as a share of the sum of the terms' sizes."""
    return -(-visible // ACCUMULATED_AT_ONCE) * stored.step


def score_error(rows: Rows, head_dim: int, stored: Held) -> Any:
    """d: what may be lost in a score: by float32 in a sum of D terms and a few roundings after it, and by the adder."""
    return product_error(head_dim, stored) * rows.abs_score


def product_error(head_dim: int, stored: Held) -> float:
    """The same as a share of sum |q k|."""
    return (head_dim + 8) * FLOAT32_STEP + -(-head_dim // ACCUMULATED_AT_ONCE) * stored.step


def output_bound(rows: Rows, visible: Any, head: KeyHead, stored: Held, xp: Any) -> Any:
    """|O - R| <= u_o |R| + 2 (u_p + d + s) A + n eta max|v| / l + eta_o, for each element.

    n is the number of visible keys, A = sum_j p_j |v_j|. O is rounded once (u_o). Each p carries its rounding
    (u_p) and its score's error (d), in the sum over V and, of d, in l; s is what the adder may lose of n terms. Below
    the smallest normal number rounding is absolute (eta): of p, where l divides it, and of O.
    """
    unit, eta_o = UNIT_ROUNDOFF[stored.o_type], SUBNORMAL_ROUNDOFF[stored.o_type]
    divisor = xp.where(visible > 0, rows.l, 1.0)
    subnormal = xp.where(visible > 0, visible * stored.eta * head.largest_v / divisor + eta_o, 0.0)
    of_p = UNIT_ROUNDOFF[stored.p_type] + score_error(rows, head.v.shape[1], stored) + adder_loss(visible, stored)
    return unit * xp.abs(rows.value) + 2.0 * of_p[:, None] * rows.mean_abs_v + subnormal[:, None]


def lse_bound(rows: Rows, lse: Any, visible: Any, head_dim: int, stored: Held, xp: Any) -> Any:
    """|LSE - R| for LSE = max + ln l in float32, l being the sum of p before it is rounded.

    A relative error of l is an absolute one of ln l, so: d of the scores; n + 8 steps for summing n of them and for
    exp; four roundings at the size of max and of LSE, and at that of P's scale.
    """
    finite = visible > 0
    size = xp.abs(xp.where(finite, lse, 0.0)) + xp.abs(xp.where(finite, rows.row_max, 0.0)) + np.log(stored.p_scale)
    bound = score_error(rows, head_dim, stored) + (visible + 8) * FLOAT32_STEP + 4.0 * FLOAT32_STEP * size
    return xp.where(finite, bound, 0.0)


def reference(dims: Dims, options: Mapping[str, str],
              inputs: Arrays, xp: Any = np) -> dict[str, dict[str, np.ndarray | None]]:
    """What attention's gives for o and lse, of the numbers that the codes stand for: "value", "bound" and "rounded"."""
    return attention(dims, options, inputs, visible_keys(dims, options["mask"]), xp)


def attention(dims: Dims, options: Mapping[str, str], inputs: Arrays, visible: np.ndarray,
              xp: Any = np) -> dict[str, dict[str, np.ndarray | None]]:
    """The same with row r of each head seeing the first visible[r] keys."""
    stored, scale = held(options), softmax_scale(dims)
    q, k, v = (dequantised(inputs, name, options["format"]) for name in "qkv")
    shape, host = (dims["B"], dims["H"], dims["S_q"]), to_numpy(xp)
    o = {name: np.zeros((*shape, dims["D"])) for name in ("value", "bound", "rounded")}
    lse = {name: np.zeros(shape) for name in ("value", "bound")}
    made, head = (-1, -1), None
    for b, h, block in blocks(shape, dims["S_kv"], xp):
        if made != (b, own := h * dims["H_kv"] // dims["H"]):
            made, head = (b, own), key_head(k[b, own], v[b, own], xp)
        at, seen = (b, h, block), xp.asarray(visible[block])
        rows = attend(q[at], head, seen, scale, stored, xp)
        o["value"][at], o["bound"][at] = host(rows.value), host(output_bound(rows, seen, head, stored, xp))
        o["rounded"][at] = host(rows.rounded).astype(stored.o_dtype)
        with np.errstate(divide="ignore"):
            logarithm = rows.row_max + xp.log(rows.l)
        lse["value"][at] = host(logarithm)
        lse["bound"][at] = host(lse_bound(rows, logarithm, seen, dims["D"], stored, xp))
    return {"o": o, "lse": {**lse, "rounded": None}}


# ---- probes: what a stage of a template wrote, beside what it should be (docs/probes.md) ----
#
# Each is given `values` (tile_q, tile_kv, and those of kernel.toml's [probes]) and `got`, in float64: NaN where nothing
# was written, and infinity for a NaN that was. "value", "bound" and "got" have one shape; "compared" marks what counts.

def adder_error(left: np.ndarray, right: np.ndarray, stored: Held) -> np.ndarray:
    """What the adder may lose of left [rows, n] times right [columns, n], which are what codes stand for, without scales.

    A step adds 32 products to the sum so far. Each of these 33 addends is cut ADDER_BITS below the largest of them, and
    the new sum below itself: chains of such steps on random codes lose what an H200's wgmma does, to 0.2 bits of the
    mean (bench/results/h200/fp8.json). Most products have few bits and lose nothing. The sum so far is taken to be as
    large as that of any steps in a row, so that it does not matter with which step a walk begins and ends. Twice the
    loss, because PTX leaves the adder open.
    """
    lost = np.zeros((len(left), len(right)))
    if not stored.step:
        return lost
    total, least, most = lost, lost, lost
    steps = [slice(first, first + ACCUMULATED_AT_ONCE) for first in range(0, left.shape[1], ACCUMULATED_AT_ONCE)]
    for step in steps:
        total = total + left[:, step] @ right[:, step].T
        least, most = np.minimum(least, total), np.maximum(most, total)
    for step in steps:
        products = [np.abs(np.multiply.outer(*pair)) for pair in zip(left[:, step].T, right[:, step].T, strict=True)]
        sums = most - least + lost                              # and what they have lost so far
        unit = last_place(np.maximum.reduce([sums, *products]))
        cut_sums = unit + 2.0 * last_place(sums + ACCUMULATED_AT_ONCE * unit)
        lost = lost + 2.0 * (cut_sums + np.add.reduce([np.fmod(product, unit) for product in products]))
    return lost


def last_place(largest: np.ndarray) -> np.ndarray:
    """The unit of the adder's last place below the largest addend."""
    return np.exp2(np.frexp(largest)[1] - 1.0 - ADDER_BITS)


def heads(dims: Dims, options: Mapping[str, str], inputs: Arrays) -> Iterator[tuple[tuple[int, int], HeadScores]]:
    """((batch, head), its scores), of the numbers that the codes stand for."""
    form = options["format"]
    codes, scales = ({name: read(name) for name in "qk"} for read in (
        lambda name: decode(inputs[name], form), lambda name: inputs[f"{name}_scale"].astype(np.float64)))
    numbers = {name: codes[name] * scales[name][..., None, None] for name in "qk"}
    for (b, h), head in plain.heads(dims, options, numbers):
        key_head = h * dims["H_kv"] // dims["H"]
        lost = adder_error(codes["q"][b, h], codes["k"][b, key_head], held(options))
        scale = softmax_scale(dims) * scales["q"][b, h] * scales["k"][b, key_head]
        yield (b, h), replace(head, error=head.error + scale * lost)


def probe_qk(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
             got: np.ndarray) -> Arrays:
    """q . k before scale and mask; hidden keys are not compared."""
    found = {"value": np.zeros(got.shape), "bound": np.zeros(got.shape), "compared": np.zeros(got.shape, bool)}
    for at, head in heads(dims, options, inputs):
        found["value"][at], found["compared"][at] = head.product, head.seen
        found["bound"][at] = head.error / softmax_scale(dims)
    return found


def probe_softmax(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
                  got: np.ndarray) -> Arrays:
    """p = exp(score - shift) by the shift that was written beside it; a hidden key has p = 0 or nothing."""
    p, shift, stored = got[..., 0], got[..., 1], held(options)
    found = {"value": np.zeros(p.shape), "bound": np.zeros(p.shape), "got": p.copy()}
    for at, head in heads(dims, options, inputs):
        exponent = np.clip(head.scaled - np.where(np.isfinite(shift[at]), shift[at], 0.0), -1e4, 80.0)
        right = np.where(head.seen, np.exp(exponent), 0.0)
        lost = head.error + 4.0 * FLOAT32_STEP * (2.0 + np.abs(head.scaled) + np.abs(head.scaled - exponent))
        found["value"][at] = right
        found["bound"][at] = np.where(head.seen, right * (np.expm1(lost) + UNIT_ROUNDOFF[stored.p_type])
                                      + stored.eta, 0.0)
        found["got"][at][~head.seen & np.isnan(p[at])] = 0.0
        found["got"][at][head.seen & ~np.isfinite(shift[at])] = np.nan
    return found


def probe_state(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
                got: np.ndarray) -> Arrays:
    """(m, l, rescale, begin) after each tile: m against the maximum of all scores since `begin`, or up to `slack` below
    it; l and rescale by the m that were written. A record is due where the row sees a key of that part of the tile."""
    found = {"value": got.copy(), "bound": np.zeros(got.shape), "compared": np.zeros(got.shape, bool), "got": got.copy()}
    found["got"][..., 0][got[..., 0] < -1e30] = -np.inf
    tile, parts = int(values["tile"]), int(values["parts"])
    for at, head in heads(dims, options, inputs):
        for part in range(parts):
            begin, since = np.zeros(len(head.seen)), np.zeros(head.seen.shape, bool)
            for step in range(got.shape[3]):
                first = step * tile + part * tile // parts
                keys = slice(first, min(step * tile + (part + 1) * tile // parts, head.seen.shape[1]))
                record = found["got"][at][:, step, part]                            # [S_q, 4]
                fresh = (record[:, 3] == step * tile) | (step == 0)
                begin = np.where(fresh, step * tile, begin)
                since[fresh] = False
                since[:, keys] |= head.seen[:, keys]
                before = found["got"][at][:, step - 1, part, 0] if step else np.full(len(begin), -np.inf)
                value, bound, compared = _state(head, since, record, before, float(values["slack"]), unit=0.0)
                value[:, 3] = begin
                compared[:, 2] &= ~fresh
                written = ~np.isnan(record).all(axis=1)
                compared &= (written | head.seen[:, keys].any(axis=1))[:, None]
                for name, array in (("value", value), ("bound", bound), ("compared", compared)):
                    found[name][at][:, step, part] = array
    return found


def probe_pv(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
             got: np.ndarray) -> Arrays:
    """sum_key P V with P = probe_weight where the row sees the key; the parts, which are the first axis, added up."""
    visible, numbers = visible_keys(dims, options["mask"]), dequantised(inputs, "v", options["format"])
    rows, keys = np.arange(dims["S_q"])[:, None], np.arange(dims["S_kv"])[None]
    weight = np.where(keys < visible[:, None], plain.probe_weight(rows, keys), 0.0)
    found = plain.probe_pv(dims, options, {"v": numbers}, values, got)
    size = plain.probe_pv(dims, options, {"v": np.abs(numbers)}, values, got)["value"]           # sum P |v|
    bound = (visible + 8)[:, None] * FLOAT32_STEP * size
    codes = decode(inputs["v"], options["format"])
    for b in range(dims["B"]):
        for h in range(dims["H"]):
            at = b, h * dims["H_kv"] // dims["H"]
            bound[b, h] += inputs["v_scale"][at] * adder_error(weight, codes[at].T, held(options))
    return {**found, "bound": bound}


def probe_single_tile(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
                      got: np.ndarray) -> Arrays:
    """O over the first KV tile's keys alone."""
    visible = np.minimum(visible_keys(dims, options["mask"]), int(values["tile_kv"]))
    o = attention(dims, options, inputs, visible)["o"]
    return {"value": o["value"], "bound": o["bound"]}
