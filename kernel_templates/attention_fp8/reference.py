"""Attention on 8-bit codes: hard inputs, the float64 reference on what the codes stand for, and the error that a right
kernel may have. What was lost when the codes were made is not its error.

Everything is in logical order: q, o [B, H, S_q, D], k, v [B, H_kv, S_kv, D], lse [B, H, S_q]; q_scale [B, H],
k_scale, v_scale [B, H_kv]. A number is decode(code) times its head's scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Dims = Mapping[str, int]
Arrays = dict[str, np.ndarray]

STORAGE = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
FP8 = {"e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2)}
LARGEST = {"sim": 127.0, "e4m3": 448.0, "e5m2": 57344.0}         # what a head's largest number becomes
MIDPOINT = 128                                                   # sim's code of zero
# The largest, the smallest, zero (both, if there are two), and the neighbours of zero.
END_CODES = {"sim": (0, 255, 128, 127, 129), "e4m3": (0x7E, 0xFE, 0x00, 0x80, 0x01, 0x81),
             "e5m2": (0x7B, 0xFB, 0x00, 0x80, 0x01, 0x81)}

# Largest relative error of rounding to nearest, and largest absolute one below the smallest normal number.
UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8, "e4m3": 2.0**-4, "e5m2": 2.0**-3}
SUBNORMAL_ROUNDOFF = {"fp16": 2.0**-25, "bf16": 2.0**-134, "e4m3": 2.0**-10, "e5m2": 2.0**-17}
# P is held times a power of two, so that it uses the format's range: the usual one, and the least that is right.
P_SCALE = {"e4m3": 2.0**8, "e5m2": 2.0**15}
LEAST_P_SCALE = {"e4m3": 2.0**6, "e5m2": 2.0**8}
FLOAT32_STEP = 2.0**-23
# What an fp8 tensor core may lose of its sums each time it adds 32 products. PTX leaves it open. Ada's adder is said to
# keep 13 fraction bits (Zhang et al., SageAttention2, arXiv 2411.10958), and nobody measured it here: so much is allowed
# everywhere. An H200 keeps all 23 (bench/results/h200/fp8.json): sm_90 has no fp8 mma.sync, and its assembler makes two
# f16 ones of it, whose sums are float32's.
ACCUMULATOR_STEP = {"sim": 0.0, "e4m3": 2.0**-13, "e5m2": 2.0**-13}
ACCUMULATED_AT_ONCE = 32
SMALL_WEIGHT_DROP = {"sim": 6.0, "e4m3": 8.0, "e5m2": 12.0}      # of a score: e^-8 is 2^-11.5, e4m3's last step 2^-9
BLOCK_ROWS = 256                     # scores of so many rows are held at once: 4 MB at 2048 keys


def softmax_scale(dims: Dims) -> float:
    return dims["D"] ** -0.5


def visible_keys(dims: Dims, mask: str) -> np.ndarray:
    """How many leading keys each query row sees: int64 [S_q]."""
    rows, keys = np.arange(dims["S_q"], dtype=np.int64), dims["S_kv"]
    if mask == "none":
        return np.full_like(rows, keys)
    if mask == "causal_top_left":
        return np.minimum(rows + 1, keys)
    if mask == "causal_bottom_right":
        return np.maximum(rows + 1 + keys - dims["S_q"], 0)
    raise ValueError(f"unknown mask {mask!r}; known: none, causal_top_left, causal_bottom_right")


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
class Draft:
    """Inputs before they become codes."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    scale: float
    tile_kv: int
    form: str

    @property
    def keys(self) -> np.ndarray:
        return np.arange(self.k.shape[2], dtype=np.float64)

    def add_to_scores(self, per_key: np.ndarray) -> None:
        """Raise the score of key j by about per_key[..., j], for every query, through the first column."""
        self.q[..., 0] = 4.0
        self.k[..., 0] = per_key / (4.0 * self.scale)

    def one_key_a_head(self) -> np.ndarray:
        """The last, the first or the middle key, by head: bool [H_kv, S_kv]; empty without keys."""
        heads, keys = self.k.shape[1:3]
        chosen = np.zeros((heads, keys), bool)
        if keys:
            chosen[np.arange(heads), np.resize([keys - 1, 0, keys // 2], heads)] = True
        return chosen


def normal(draft: Draft) -> None:
    """Plain normal inputs: scores of about one."""


def rising(draft: Draft) -> None:
    """Every KV tile has a larger row maximum than the one before, so every tile rescales what is there."""
    draft.add_to_scores(3.0 * draft.keys / draft.tile_kv)


def falling(draft: Draft) -> None:
    """The first KV tile has the maximum; later ones must not move it."""
    draft.add_to_scores(-3.0 * draft.keys / draft.tile_kv)


def equal_keys(draft: Draft) -> None:
    """All keys are the same, so P is exact in any format, O is the plain mean of V, and one key too many shows."""
    draft.k[...] = draft.k[:, :, :1]


def dominant_key(draft: Draft) -> None:
    """One key takes nearly all the weight."""
    draft.add_to_scores(np.where(draft.one_key_a_head(), 8.0, 0.0))


def small_weights(draft: Draft) -> None:
    """One key takes nearly all the weight and its value is 0, so O is made of weights far below 1."""
    chosen = draft.one_key_a_head()
    draft.add_to_scores(np.where(chosen, SMALL_WEIGHT_DROP[draft.form], 0.0))
    draft.v[...] *= np.where(chosen, 0.0, 1.0)[..., None]


def constant_v(draft: Draft) -> None:
    """On even heads all rows of V are the same and O must be that row. Odd heads stay normal: a tensor of
    nothing but exactly representable results would leave the rounded model no error to compare with."""
    draft.v[:, ::2] = draft.v[:, ::2, :1]


def row_code(draft: Draft) -> None:
    """Row j of V spells j: a ramp in the even columns, its bits as +-1 in the odd ones. Swapped rows show."""
    columns = np.arange(draft.v.shape[3])
    bits = (draft.keys.astype(np.int64)[:, None] >> (columns // 2 % 12)) & 1
    ramp = (draft.keys[:, None] + 1.0) / max(draft.keys.size, 1)
    draft.v[...] = np.where(columns % 2, 2.0 * bits - 1.0, ramp)


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
                                           row_code, head_scales, zero_heads, extreme_codes)}
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


@dataclass(frozen=True)
class Rows:
    """Float64 results of a block of query rows of one head; `l` is the sum of exp(score - max)."""

    value: np.ndarray                # [rows, D]
    rounded: np.ndarray              # [rows, D]: P and O rounded as they are stored, all else exact
    mean_abs_v: np.ndarray           # [rows, D]: A = sum_j p_j |v_j|
    row_max: np.ndarray              # [rows]
    l: np.ndarray                    # [rows]; 0 in a row that sees no key
    abs_score: np.ndarray            # [rows]: scale * max_j sum_d |q_d k_jd|


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, visible: np.ndarray, scale: float,
           stored: Held, xp: Any = np) -> Rows:
    """Attention of q [rows, D] over k, v [keys, D], all float64, row r seeing the first visible[r] keys.

    The two sums that only feed the bound are taken in float32: a bound needs two digits. What is as large as the
    scores is worked on by `xp`, which is NumPy or CuPy; arrays go in and come out as NumPy's.
    """
    exact = [xp.asarray(array) for array in (q, k, v)]
    size = [xp.abs(array.astype(np.float32)) for array in exact]
    seen = xp.asarray(visible)
    hidden = xp.arange(len(k)) >= seen[:, None]
    score = (exact[0] * scale) @ exact[1].T
    abs_score = size[0] @ size[1].T
    if hidden.any():
        score[hidden], abs_score[hidden] = -np.inf, 0.0
    # One more column, so that no keys at all have a maximum, too.
    row_max = xp.concatenate([score, xp.full((len(q), 1), -np.inf)], axis=1).max(axis=1)
    score -= xp.where(seen > 0, row_max, 0.0)[:, None]
    p = xp.exp(score, out=score)
    l = p.sum(axis=1)
    divisor = xp.where(seen > 0, l, 1.0)[:, None]
    rounded = (_stored(p * stored.p_scale, stored.p_dtype, xp) @ exact[2]) / (divisor * stored.p_scale)
    found = dict(value=(p @ exact[2]) / divisor, rounded=rounded,
                 mean_abs_v=(p.astype(np.float32) @ size[2]).astype(np.float64) / divisor, row_max=row_max, l=l,
                 abs_score=scale * xp.concatenate([abs_score, xp.zeros((len(q), 1), np.float32)], axis=1)
                 .max(axis=1).astype(np.float64))
    if xp is not np:
        found = {name: xp.asnumpy(array) for name, array in found.items()}
    return Rows(**{**found, "rounded": found["rounded"].astype(stored.o_dtype).astype(np.float64)})


def _stored(p: np.ndarray, storage: np.dtype, xp: Any) -> np.ndarray:
    """p rounded to the storage type (to nearest, ties to even); CuPy need not know that type."""
    if xp is np:
        return p.astype(storage).astype(np.float64)
    info = ml_dtypes.finfo(storage)
    _, exponent = xp.frexp(p)
    step = xp.ldexp(xp.ones_like(p), xp.maximum(exponent - 1 - info.nmant, info.minexp - info.nmant))
    return xp.rint(p / step) * step


def score_error(rows: Rows, head_dim: int, stored: Held) -> np.ndarray:
    """d: what may be lost in a score: by float32 in a sum of D terms and a few roundings after it, and by the adder."""
    return product_error(head_dim, stored) * rows.abs_score


def product_error(head_dim: int, stored: Held) -> float:
    """The same as a share of sum |q k|."""
    return (head_dim + 8) * FLOAT32_STEP + -(-head_dim // ACCUMULATED_AT_ONCE) * stored.step


def output_bound(rows: Rows, visible: np.ndarray, v: np.ndarray, stored: Held) -> np.ndarray:
    """|O - R| <= u_o |R| + 2 (u_p + d + s) A + n eta max|v| / l + eta_o, for each element.

    n is the number of visible keys, A = sum_j p_j |v_j|. O is rounded once (u_o). Each p carries its rounding
    (u_p) and its score's error (d), in the sum over V and, of d, in l; s is what the adder may lose of n terms. Below
    the smallest normal number rounding is absolute (eta): of p, where l divides it, and of O.
    """
    unit, eta_o = UNIT_ROUNDOFF[stored.o_type], SUBNORMAL_ROUNDOFF[stored.o_type]
    largest = float(np.abs(v).max(initial=0.0))
    divisor = np.where(visible > 0, rows.l, 1.0)
    subnormal = np.where(visible > 0, visible * stored.eta * largest / divisor + eta_o, 0.0)
    adder = -(-visible // ACCUMULATED_AT_ONCE) * stored.step
    of_p = UNIT_ROUNDOFF[stored.p_type] + score_error(rows, v.shape[1], stored) + adder
    return unit * np.abs(rows.value) + 2.0 * of_p[:, None] * rows.mean_abs_v + subnormal[:, None]


def lse_bound(rows: Rows, lse: np.ndarray, visible: np.ndarray, head_dim: int, stored: Held) -> np.ndarray:
    """|LSE - R| for LSE = max + ln l in float32, l being the sum of p before it is rounded.

    A relative error of l is an absolute one of ln l, so: d of the scores; n + 8 steps for summing n of them and for
    exp; four roundings at the size of max and of LSE, and at that of P's scale.
    """
    finite = visible > 0
    size = np.abs(np.where(finite, lse, 0.0)) + np.abs(np.where(finite, rows.row_max, 0.0)) + np.log(stored.p_scale)
    bound = score_error(rows, head_dim, stored) + (visible + 8) * FLOAT32_STEP + 4.0 * FLOAT32_STEP * size
    return np.where(finite, bound, 0.0)


def reference(dims: Dims, options: Mapping[str, str],
              inputs: Arrays, xp: Any = np) -> dict[str, dict[str, np.ndarray | None]]:
    """For o and lse: "value", the pointwise "bound" on |output - value|, and "rounded"; float64, their shape.

    `rounded` is O of a model in which only P and O are rounded. LSE has None: nothing of it is stored in less
    than float32, and a kernel's own float32 steps are many times that rounding. A row that sees no key has
    O = 0, LSE = -inf and bound 0: nothing else is right there.
    """
    return attention(dims, options, inputs, visible_keys(dims, options["mask"]), xp)


def attention(dims: Dims, options: Mapping[str, str], inputs: Arrays, visible: np.ndarray,
              xp: Any = np) -> dict[str, dict[str, np.ndarray | None]]:
    """The same with row r of each head seeing the first visible[r] keys."""
    stored, scale = held(options), softmax_scale(dims)
    q, k, v = (dequantised(inputs, name, options["format"]) for name in "qkv")
    shape = (dims["B"], dims["H"], dims["S_q"])
    o = {name: np.zeros((*shape, dims["D"])) for name in ("value", "bound", "rounded")}
    lse = {name: np.zeros(shape) for name in ("value", "bound")}
    for b, h, block in _blocks(shape):
        head = h * dims["H_kv"] // dims["H"]
        seen, at = visible[block], (b, h, block)
        rows = attend(q[at], k[b, head], v[b, head], seen, scale, stored, xp)
        o["value"][at], o["rounded"][at] = rows.value, rows.rounded
        o["bound"][at] = output_bound(rows, seen, v[b, head], stored)
        with np.errstate(divide="ignore"):
            lse["value"][at] = rows.row_max + np.log(rows.l)
        lse["bound"][at] = lse_bound(rows, lse["value"][at], seen, dims["D"], stored)
    return {"o": o, "lse": {**lse, "rounded": None}}


def _blocks(shape: tuple[int, int, int]) -> Iterator[tuple[int, int, slice]]:
    for b in range(shape[0]):
        for h in range(shape[1]):
            for first in range(0, shape[2], BLOCK_ROWS):
                yield b, h, slice(first, min(first + BLOCK_ROWS, shape[2]))


# ---- probes: what a stage of a template wrote, beside what it should be (docs/probes.md) ----
#
# Each is given `values` (tile_q, tile_kv, and those of kernel.toml's [probes]) and `got`, in float64: NaN where nothing
# was written, and infinity for a NaN that was. "value", "bound" and "got" have one shape; "compared" marks what counts.

@dataclass(frozen=True)
class HeadScores:
    """Scores of one head, float64 [S_q, S_kv], of the numbers that the codes stand for."""

    product: np.ndarray              # q . k
    size: np.ndarray                 # sum |q k|
    lost: np.ndarray                 # what may be lost in a product
    error: np.ndarray                # and in a scaled score
    scaled: np.ndarray
    seen: np.ndarray                 # bool


def heads(dims: Dims, options: Mapping[str, str], inputs: Arrays) -> Iterator[tuple[tuple[int, int], HeadScores]]:
    """((batch, head), its scores)."""
    seen = np.arange(dims["S_kv"]) < visible_keys(dims, options["mask"])[:, None]
    scale, share = softmax_scale(dims), product_error(dims["D"], held(options))
    numbers = {name: dequantised(inputs, name, options["format"]) for name in "qk"}
    for b in range(dims["B"]):
        for h in range(dims["H"]):
            q, k = numbers["q"][b, h], numbers["k"][b, h * dims["H_kv"] // dims["H"]]
            product, size = q @ k.T, np.abs(q) @ np.abs(k).T
            yield (b, h), HeadScores(product, size, share * size, share * scale * size, scale * product, seen)


def probe_qk(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
             got: np.ndarray) -> Arrays:
    """q . k before scale and mask; hidden keys are not compared."""
    found = {"value": np.zeros(got.shape), "bound": np.zeros(got.shape), "compared": np.zeros(got.shape, bool)}
    for at, head in heads(dims, options, inputs):
        found["value"][at], found["compared"][at] = head.product, head.seen
        found["bound"][at] = head.lost
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
                value, bound, compared = _state(head, since, record, before, float(values["slack"]))
                value[:, 3] = begin
                compared[:, 2] &= ~fresh
                written = ~np.isnan(record).all(axis=1)
                compared &= (written | head.seen[:, keys].any(axis=1))[:, None]
                for name, array in (("value", value), ("bound", bound), ("compared", compared)):
                    found[name][at][:, step, part] = array
    return found


def _state(head: HeadScores, since: np.ndarray, record: np.ndarray, before: np.ndarray,
           slack: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What (m, l, rescale) should be when the keys `since` [S_q, S_kv] have been taken in, all but begin: value, bound,
    compared, each [S_q, 4]. `before` is the m of the record before, as it was written."""
    value, bound, compared = record.copy(), np.zeros(record.shape), np.ones(record.shape, bool)
    scores = np.where(since, head.scaled, -np.inf)
    largest = scores.max(axis=1, initial=-np.inf)
    error = np.where(since, head.error, 0.0).max(axis=1, initial=0.0)
    some, count = np.isfinite(largest), since.sum(axis=1)
    m = np.where(np.isfinite(record[:, 0]) & some, record[:, 0], np.where(some, largest, 0.0))
    size = np.where(some, np.abs(largest), 0.0) + np.abs(m)
    value[:, 0] = np.where(some, np.clip(m, largest - slack, largest), -np.inf)
    bound[:, 0] = np.where(some, error + 4.0 * FLOAT32_STEP * size, 0.0)
    value[:, 1] = np.where(since, np.exp(np.clip(scores - m[:, None], -1e4, 80.0)), 0.0).sum(axis=1)
    bound[:, 1] = value[:, 1] * (2.0 * error + FLOAT32_STEP * (count + 8.0 + 8.0 * size))
    known = np.isfinite(before) & some
    value[:, 2] = np.where(known, np.exp(np.clip(np.where(known, before, 0.0) - m, -1e4, 80.0)), 0.0)
    bound[:, 2] = value[:, 2] * 8.0 * FLOAT32_STEP * (2.0 + size + np.where(known, np.abs(before), 0.0)) + 1e-37
    compared[:, 2] = known
    return value, bound, compared


def probe_weight(row: np.ndarray, key: np.ndarray) -> np.ndarray:
    """gf::probe_weight of gf/probe.cuh: the known P."""
    hashed = row.astype(np.uint32) * np.uint32(0x85EBCA6B) + key.astype(np.uint32) * np.uint32(0x9E3779B1)
    hashed = (hashed ^ (hashed >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    return (1 + (hashed >> np.uint32(29))) / 8.0


def probe_pv(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
             got: np.ndarray) -> Arrays:
    """sum_key P V with P = probe_weight where the row sees the key; the parts, which are the first axis, added up."""
    visible = visible_keys(dims, options["mask"])
    rows, keys = np.arange(dims["S_q"])[:, None], np.arange(dims["S_kv"])[None]
    weight = np.where(keys < visible[:, None], probe_weight(rows, keys), 0.0)
    total = np.where(np.isnan(got), 0.0, got).sum(axis=0)
    due, numbers = (visible > 0)[:, None], dequantised(inputs, "v", options["format"])
    share = (visible + 8) * FLOAT32_STEP + -(-visible // ACCUMULATED_AT_ONCE) * held(options).step
    found = {"value": np.zeros(total.shape), "bound": np.zeros(total.shape),
             "got": np.where(np.isnan(got).all(axis=0) & due, np.nan, total)}
    for b in range(dims["B"]):
        for h in range(dims["H"]):
            v = numbers[b, h * dims["H_kv"] // dims["H"]]
            found["value"][b, h] = weight @ v
            found["bound"][b, h] = share[:, None] * (weight @ np.abs(v))
    return found


def probe_single_tile(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
                      got: np.ndarray) -> Arrays:
    """O over the first KV tile's keys alone."""
    visible = np.minimum(visible_keys(dims, options["mask"]), int(values["tile_kv"]))
    o = attention(dims, options, inputs, visible)["o"]
    return {"value": o["value"], "bound": o["bound"]}
