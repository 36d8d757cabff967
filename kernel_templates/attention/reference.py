"""Attention's hard inputs, its float64 reference, and the error that a right kernel may have.

Everything is in logical order: q, o [B, H, S_q, D], k, v [B, H_kv, S_kv, D], lse [B, H, S_q].
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
# Largest relative error of rounding to nearest, and largest absolute one below the smallest normal number.
UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8}
# bf16's own is 2^-134, but P comes from the hardware's 2^x, which gives 0 below float32's last normal number (PTX ISA,
# "ex2.approx.ftz.f32").
SUBNORMAL_ROUNDOFF = {"fp16": 2.0**-25, "bf16": 2.0**-126}
FLOAT32_STEP = 2.0**-23
BLOCK_ROWS = 256                     # scores of so many rows are held at once: 4 MB at 2048 keys
GPU_BLOCK_SCORES = 2**25             # the same on a GPU, for all its rows: 256 MB, and as much for each intermediate


def softmax_scale(dims: Dims) -> float:
    """The usual one, unless the check has its own."""
    return dims.get("scale", dims["D"] ** -0.5)


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


# ---- inputs: each recipe bends plain normal q, k, v in place (float64) ----

@dataclass(frozen=True)
class Draft:
    """Inputs before they are rounded to their storage type."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    scale: float
    tile_kv: int

    @property
    def keys(self) -> np.ndarray:
        return np.arange(self.k.shape[2], dtype=np.float64)

    def add_to_scores(self, per_key: np.ndarray) -> None:
        """Raise the score of key j by about per_key[..., j], for every query, through the first column."""
        self.q[..., 0] = 4.0
        self.k[..., 0] = per_key / (4.0 * self.scale)


def normal(draft: Draft) -> None:
    """Plain normal inputs: scores of about one."""


def rising(draft: Draft) -> None:
    """Every KV tile has a larger row maximum than the one before, so every tile rescales what is there."""
    draft.add_to_scores(3.0 * draft.keys / draft.tile_kv)


def falling(draft: Draft) -> None:
    """The first KV tile has the maximum; later ones must not move it."""
    draft.add_to_scores(-3.0 * draft.keys / draft.tile_kv)


def beyond_fp16(draft: Draft) -> None:
    """q . k is about 69,600 on even heads and -69,600 on odd ones before scaling: infinite if held in fp16.

    All values are on a grid on which float32 holds every partial sum exactly. Otherwise float32's own error,
    which at such scores is as large as fp16's error of P, would decide.
    """
    for array in (draft.q, draft.k):
        array[...] = np.clip(np.round(array * 4.0) / 4.0, -4.0, 4.0)
    sign = np.where(np.arange(draft.q.shape[1]) % 2, -1.0, 1.0)[:, None]
    draft.q[..., 0], draft.k[..., 0] = 256.0 * sign, 256.0
    draft.q[..., 1], draft.k[..., 1] = 64.0 * sign, 64.0


def equal_keys(draft: Draft) -> None:
    """All keys are the same, so O is the plain mean of V and one key too many or too few shows. Keys of odd heads are
    zero: a score of exactly 0 is not that of a hidden key."""
    draft.k[...] = draft.k[:, :, :1]
    draft.k[:, 1::2] = 0.0


def dominant_key(draft: Draft) -> None:
    """One key takes nearly all the weight: the last, the first or the middle one, by head."""
    keys, heads = draft.k.shape[2], draft.k.shape[1]
    per_key = np.zeros((heads, keys))
    if keys:
        per_key[np.arange(heads), np.resize([keys - 1, 0, keys // 2], heads)] = 8.0
    draft.add_to_scores(per_key)


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
    """Scores and values of neighbouring heads are 100x apart."""
    query_heads, key_heads = draft.q.shape[1], draft.v.shape[1]
    head = np.arange(query_heads) * key_heads // query_heads
    draft.q[...] *= (10.0 ** (1.0 - 2.0 * (head % 2)))[:, None, None]
    draft.v[...] *= (100.0 ** (np.arange(key_heads) % 3 - 1.0))[:, None, None]


def far_apart(draft: Draft) -> None:
    """Scores of a row are hundreds apart: the exponential overflows relative to anything but their maximum.

    On a grid, for beyond_fp16's reason.
    """
    for array in (draft.q, draft.k):
        array[...] = 16.0 * np.clip(np.round(array * 2.0) / 2.0, -4.0, 4.0)


_RECIPES: dict[str, Callable[[Draft], None]] = {
    recipe.__name__: recipe for recipe in (normal, rising, falling, beyond_fp16, equal_keys, dominant_key,
                                           constant_v, row_code, head_scales, far_apart)}
RECIPES = tuple(_RECIPES)


def make_inputs(dims: Dims, options: Mapping[str, str], recipe: str, seed: int,
                tiles: Mapping[str, int]) -> Arrays:
    """q, k, v in the storage type of options["dtype"]; the same arguments give the same bits.

    `tiles` are the candidate's (tile_q, tile_kv, depth); recipes that change from tile to tile follow them.
    ValueError: an unknown recipe.
    """
    if recipe not in _RECIPES:
        raise ValueError(f"unknown inputs {recipe!r}; known: " + ", ".join(RECIPES))
    if dims["H"] % dims["H_kv"]:
        raise ValueError(f"H={dims['H']} is not a multiple of H_kv={dims['H_kv']}")
    random = np.random.default_rng([seed, RECIPES.index(recipe)])
    queries = (dims["B"], dims["H"], dims["S_q"], dims["D"])
    keys = (dims["B"], dims["H_kv"], dims["S_kv"], dims["D"])
    draft = Draft(random.standard_normal(queries), random.standard_normal(keys), random.standard_normal(keys),
                  softmax_scale(dims), tiles.get("tile_kv", 64))
    _RECIPES[recipe](draft)
    storage = STORAGE[options["dtype"]]
    return {"q": draft.q.astype(storage), "k": draft.k.astype(storage), "v": draft.v.astype(storage)}


# ---- the reference ----

@dataclass(frozen=True)
class Rows:
    """Float64 results of a block of query rows of one head, as arrays of `xp`; `l` is the sum of exp(score - max)."""

    value: Any                       # [rows, D]
    rounded: Any                     # [rows, D]: P rounded to the storage type, its maximum known as to float32; O is not
    mean_abs_v: Any                  # [rows, D]: A = sum_j p_j |v_j|
    row_max: Any                     # [rows]
    l: Any                           # [rows]; 0 in a row that sees no key
    abs_score: Any                   # [rows]: scale * max_j sum_d |q_d k_jd|


@dataclass(frozen=True)
class KeyHead:
    """K and V [keys, D] of a head as arrays of `xp`, which is NumPy or CuPy: made once for all blocks of rows."""

    k: Any                           # float64, as is v
    v: Any
    k_size: Any                      # |k| in float32, as is v_size: they only feed the bound, which needs two digits
    v_size: Any
    largest_v: float                 # max |v|


def key_head(k: np.ndarray, v: np.ndarray, xp: Any = np) -> KeyHead:
    stored = [xp.asarray(array.astype(np.float32)) for array in (k, v)]
    exact, size = [array.astype(np.float64) for array in stored], [xp.abs(array) for array in stored]
    return KeyHead(*exact, *size, largest_v=float(size[1].max()) if v.size else 0.0)


def attend(q: np.ndarray, head: KeyHead, visible: Any, scale: float,
           storage: np.dtype, xp: Any = np) -> Rows:
    """Attention of q [rows, D] over a head's keys, row r seeing the first visible[r] of them, an array of `xp`."""
    rows = xp.asarray(q.astype(np.float64))
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
    off = lost_with_the_maximum(row_max, float(ml_dtypes.finfo(storage).eps) / 2, xp)[:, None]
    return Rows(value=(p @ head.v) / divisor, rounded=(_stored(p, storage, xp) @ head.v) / divisor * (1.0 + off),
                mean_abs_v=(p.astype(np.float32) @ head.v_size).astype(np.float64) / divisor, row_max=row_max, l=l,
                abs_score=scale * row_largest(abs_score, 0.0, xp).astype(np.float64))


def row_largest(scores: Any, of_none: float, xp: Any) -> Any:
    """Each row's largest score; there may be no key."""
    return scores.max(axis=1) if scores.shape[1] else xp.full(len(scores), of_none, scores.dtype)


def lost_with_the_maximum(row_max: np.ndarray, unit: float, xp: Any) -> np.ndarray:
    """Of P, as a share: a right kernel's P is relative to a maximum that float32 rounds. Where that one is large, not even
    its own P is the 1 that rounds to itself, and P is off by what float32 lost or by a rounding, whichever is less."""
    return xp.minimum(unit, FLOAT32_STEP / 2 * xp.abs(row_max))


def _stored(p: np.ndarray, storage: np.dtype, xp: Any) -> np.ndarray:
    """p, which is from 0 to 1, rounded to the storage type (to nearest, ties to even); CuPy need not know that type."""
    if xp is np:
        return p.astype(storage).astype(np.float64)
    info = ml_dtypes.finfo(storage)
    _, exponent = xp.frexp(p)
    step = xp.ldexp(xp.ones_like(p), xp.maximum(exponent - 1 - info.nmant, info.minexp - info.nmant))
    return xp.rint(p / step) * step


def score_error(rows: Rows, head_dim: int) -> Any:
    """d: what float32 may lose in a score, a dot product of D terms and a few roundings after it."""
    return (head_dim + 8) * FLOAT32_STEP * rows.abs_score


def output_bound(rows: Rows, visible: Any, head: KeyHead, dtype: str, xp: Any) -> Any:
    """|O - R| <= u_o |R| + 2 (u_p + d) A + n eta max|v| / l + eta, for each element.

    n is the number of visible keys, A = sum_j p_j |v_j|. O is rounded once (u_o). Each p carries its rounding
    (u_p) and its score's error (d), once in the sum over V and once in l. Below the smallest normal number
    rounding is absolute (eta): of p, where l divides it, and of O.
    """
    unit, eta = UNIT_ROUNDOFF[dtype], SUBNORMAL_ROUNDOFF[dtype]
    divisor = xp.where(visible > 0, rows.l, 1.0)
    subnormal = xp.where(visible > 0, visible * eta * head.largest_v / divisor + eta, 0.0)
    of_p = unit + score_error(rows, head.v.shape[1])
    return unit * xp.abs(rows.value) + 2.0 * of_p[:, None] * rows.mean_abs_v + subnormal[:, None]


def lse_bound(rows: Rows, lse: Any, visible: Any, head_dim: int, dtype: str, xp: Any) -> Any:
    """|LSE - R| for LSE = max + ln l in float32.

    A relative error of l is an absolute one of ln l, so: d of the scores; u_p, since l may be the sum of the
    rounded p; n + 8 steps for summing n of them and for exp; four roundings at the size of max and of LSE.
    """
    finite = visible > 0
    size = xp.abs(xp.where(finite, lse, 0.0)) + xp.abs(xp.where(finite, rows.row_max, 0.0))
    bound = (score_error(rows, head_dim) + UNIT_ROUNDOFF[dtype] + (visible + 8) * FLOAT32_STEP
             + 4.0 * FLOAT32_STEP * size)
    return xp.where(finite, bound, 0.0)


def reference(dims: Dims, options: Mapping[str, str],
              inputs: Arrays, xp: Any = np) -> dict[str, dict[str, np.ndarray | None]]:
    """For o and lse: "value", the pointwise "bound" on |output - value|, and "rounded"; float64, their shape.

    `rounded` is O of a model in which P and O are rounded, and the maximum is what float32 makes of it. LSE has None: nothing of it is stored in less
    than float32, and a kernel's own float32 steps are many times that rounding. A row that sees no key has
    O = 0, LSE = -inf and bound 0: nothing else is right there.
    """
    return attention(dims, options, inputs, visible_keys(dims, options["mask"]), xp)


def attention(dims: Dims, options: Mapping[str, str], inputs: Arrays, visible: np.ndarray,
              xp: Any = np) -> dict[str, dict[str, np.ndarray | None]]:
    """The same with row r of each head seeing the first visible[r] keys."""
    dtype, scale = options["dtype"], softmax_scale(dims)
    shape, host = (dims["B"], dims["H"], dims["S_q"]), to_numpy(xp)
    o = {name: np.zeros((*shape, dims["D"])) for name in ("value", "bound", "rounded")}
    lse = {name: np.zeros(shape) for name in ("value", "bound")}
    made, head = (-1, -1), None
    for b, h, block in blocks(shape, dims["S_kv"], xp):
        if made != (b, own := h * dims["H_kv"] // dims["H"]):
            made, head = (b, own), key_head(inputs["k"][b, own], inputs["v"][b, own], xp)
        at, seen = (b, h, block), xp.asarray(visible[block])
        rows = attend(inputs["q"][at], head, seen, scale, STORAGE[dtype], xp)
        o["value"][at], o["bound"][at] = host(rows.value), host(output_bound(rows, seen, head, dtype, xp))
        o["rounded"][at] = host(rows.rounded).astype(STORAGE[dtype])
        with np.errstate(divide="ignore"):
            logarithm = rows.row_max + xp.log(rows.l)
        lse["value"][at] = host(logarithm)
        lse["bound"][at] = host(lse_bound(rows, logarithm, seen, dims["D"], dtype, xp))
    return {"o": o, "lse": {**lse, "rounded": None}}


def blocks(shape: tuple[int, int, int], keys: int, xp: Any) -> Iterator[tuple[int, int, slice]]:
    """(batch, head, rows) of q [B, H, S_q], a block of rows at a time."""
    most_rows = BLOCK_ROWS if xp is np else max(BLOCK_ROWS, GPU_BLOCK_SCORES // max(keys, 1))
    for b in range(shape[0]):
        for h in range(shape[1]):
            for first in range(0, shape[2], most_rows):
                yield b, h, slice(first, min(first + most_rows, shape[2]))


def to_numpy(xp: Any) -> Callable[[Any], np.ndarray]:
    """What makes NumPy's arrays of those of `xp`."""
    return np.asarray if xp is np else xp.asnumpy


# ---- probes: what a stage of a template wrote, beside what it should be (docs/probes.md) ----
#
# Each is given `values` (tile_q, tile_kv, and those of kernel.toml's [probes]) and `got`, in float64: NaN where nothing
# was written, and infinity for a NaN that was. "value", "bound" and "got" have one shape; "compared" marks what counts.

@dataclass(frozen=True)
class HeadScores:
    """Scores of one head, float64 [S_q, S_kv], from inputs as they are stored."""

    product: np.ndarray              # q . k
    size: np.ndarray                 # sum |q k|
    error: np.ndarray                # what float32 may lose in a scaled score
    scaled: np.ndarray
    seen: np.ndarray                 # bool


def heads(dims: Dims, options: Mapping[str, str], inputs: Arrays) -> Iterator[tuple[tuple[int, int], HeadScores]]:
    """((batch, head), its scores)."""
    seen = np.arange(dims["S_kv"]) < visible_keys(dims, options["mask"])[:, None]
    scale = softmax_scale(dims)
    for b in range(dims["B"]):
        for h in range(dims["H"]):
            q, k = (inputs[name][b, head].astype(np.float64)
                    for name, head in (("q", h), ("k", h * dims["H_kv"] // dims["H"])))
            product, size = q @ k.T, np.abs(q) @ np.abs(k).T
            error = (dims["D"] + 8) * FLOAT32_STEP * scale * size
            yield (b, h), HeadScores(product, size, error, scale * product, seen)


def probe_qk(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
             got: np.ndarray) -> Arrays:
    """q . k before scale and mask; hidden keys are not compared."""
    found = {"value": np.zeros(got.shape), "bound": np.zeros(got.shape), "compared": np.zeros(got.shape, bool)}
    for at, head in heads(dims, options, inputs):
        found["value"][at], found["compared"][at] = head.product, head.seen
        found["bound"][at] = (dims["D"] + 8) * FLOAT32_STEP * head.size
    return found


def probe_softmax(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
                  got: np.ndarray) -> Arrays:
    """p = exp(score - shift) by the shift that was written beside it; a hidden key has p = 0 or nothing."""
    p, shift = got[..., 0], got[..., 1]
    found = {"value": np.zeros(p.shape), "bound": np.zeros(p.shape), "got": p.copy()}
    for at, head in heads(dims, options, inputs):
        exponent = np.clip(head.scaled - np.where(np.isfinite(shift[at]), shift[at], 0.0), -1e4, 80.0)
        right = np.where(head.seen, np.exp(exponent), 0.0)
        lost = head.error + 4.0 * FLOAT32_STEP * (2.0 + np.abs(head.scaled) + np.abs(head.scaled - exponent))
        found["value"][at] = right
        found["bound"][at] = np.where(head.seen, right * (np.expm1(lost) + UNIT_ROUNDOFF[options["dtype"]])
                                      + SUBNORMAL_ROUNDOFF[options["dtype"]], 0.0)
        found["got"][at][~head.seen & np.isnan(p[at])] = 0.0
        found["got"][at][head.seen & ~np.isfinite(shift[at])] = np.nan
    return found


def probe_state(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
                got: np.ndarray) -> Arrays:
    """(m, l, rescale, begin) after each tile: m against the maximum of all scores since `begin`, or up to `slack` below
    it; l and rescale by the m that were written. A record is due where the row sees a key of that part of the tile."""
    found = {"value": got.copy(), "bound": np.zeros(got.shape), "compared": np.zeros(got.shape, bool),
             "got": got.copy()}
    found["got"][..., 0][got[..., 0] < -1e30] = -np.inf
    tile, parts = int(values["tile"]), int(values["parts"])
    unit = UNIT_ROUNDOFF[options["dtype"]]
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
                value, bound, compared = _state(head, since, record, before, float(values["slack"]), unit)
                value[:, 3] = begin
                compared[:, 2] &= ~fresh
                written = ~np.isnan(record).all(axis=1)
                compared &= (written | head.seen[:, keys].any(axis=1))[:, None]
                for name, array in (("value", value), ("bound", bound), ("compared", compared)):
                    found[name][at][:, step, part] = array
    return found


def _state(head: HeadScores, since: np.ndarray, record: np.ndarray, before: np.ndarray, slack: float,
           unit: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
    bound[:, 1] = value[:, 1] * (2.0 * error + unit + FLOAT32_STEP * (count + 8.0 + 8.0 * size))
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
    due = (visible > 0)[:, None]
    found = {"value": np.zeros(total.shape), "bound": np.zeros(total.shape),
             "got": np.where(np.isnan(got).all(axis=0) & due, np.nan, total)}
    for b in range(dims["B"]):
        for h in range(dims["H"]):
            v = inputs["v"][b, h * dims["H_kv"] // dims["H"]].astype(np.float64)
            found["value"][b, h] = weight @ v
            found["bound"][b, h] = (visible + 8)[:, None] * FLOAT32_STEP * (weight @ np.abs(v))
    return found


def probe_single_tile(dims: Dims, options: Mapping[str, str], inputs: Arrays, values: Mapping[str, float],
                      got: np.ndarray) -> Arrays:
    """O over the first KV tile's keys alone."""
    visible = np.minimum(visible_keys(dims, options["mask"]), int(values["tile_kv"]))
    o = attention(dims, options, inputs, visible)["o"]
    return {"value": o["value"], "bound": o["bound"]}
