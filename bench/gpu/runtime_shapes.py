"""Sixty shapes of attention as models call it: encoders, prefill, decoding, cross-attention."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Shape:
    """`tuned`: greenfast's kernels may be tuned on it; the others show how the table carries on."""

    name: str
    B: int
    H: int
    H_kv: int
    S_q: int
    S_kv: int
    D: int
    mask: str
    tuned: bool

    @property
    def is_causal(self) -> bool:
        return self.mask == "causal_top_left"


# B, H, tokens, D
ENCODERS = (
    (1, 12, 64, 64),
    (32, 12, 64, 64),
    (8, 8, 77, 64),
    (1, 4, 128, 64),
    (32, 12, 128, 64),
    (1, 12, 197, 64),
    (8, 12, 197, 64),
    (32, 12, 197, 64),
    (2, 8, 256, 64),
    (16, 12, 256, 64),
    (4, 6, 257, 64),
    (8, 16, 257, 64),
    (1, 16, 384, 64),
    (2, 8, 512, 64),
    (8, 12, 512, 64),
    (1, 16, 577, 64),
    (8, 16, 577, 64),
    (4, 16, 577, 128),
)
# B, H, H_kv, tokens, D
PREFILL = (
    (1, 32, 8, 256, 128),
    (1, 32, 8, 512, 128),
    (1, 32, 8, 1024, 128),
    (1, 32, 8, 2048, 128),
    (1, 32, 8, 4096, 128),
    (1, 32, 8, 8192, 128),
    (4, 32, 8, 256, 128),
    (4, 32, 8, 1024, 128),
    (1, 28, 4, 512, 128),
    (1, 28, 4, 3000, 128),
    (1, 32, 8, 256, 64),
    (1, 32, 8, 512, 64),
    (1, 32, 8, 1000, 64),
    (1, 32, 8, 2048, 64),
    (1, 32, 8, 4096, 64),
    (2, 8, 8, 256, 64),
    (2, 8, 8, 512, 64),
    (1, 16, 16, 384, 64),
)
# B, H, H_kv, keys, D
DECODE = (
    (1, 32, 8, 128, 128),
    (1, 32, 8, 1024, 128),
    (1, 32, 8, 4096, 128),
    (1, 32, 8, 8192, 128),
    (8, 32, 8, 512, 128),
    (8, 32, 8, 2048, 128),
    (32, 32, 8, 1024, 128),
    (32, 32, 8, 4096, 128),
    (1, 32, 8, 1000, 64),
    (8, 32, 8, 1000, 64),
    (32, 12, 12, 256, 64),
    (4, 28, 4, 3000, 128),
)
# B, H, queries, keys, D
CROSS = (
    (1, 6, 1, 1500, 64),
    (8, 8, 1, 1500, 64),
    (1, 8, 64, 1500, 64),
    (8, 8, 128, 1500, 64),
    (2, 8, 256, 77, 64),
    (2, 8, 1024, 77, 64),
    (2, 8, 4096, 77, 64),
    (8, 12, 32, 197, 64),
    (8, 12, 32, 257, 64),
    (1, 16, 64, 577, 64),
    (4, 16, 100, 1024, 128),
    (1, 16, 256, 2048, 128),
)

SEARCHED = "cross 1x16/16 256x2048 D128"  # held out once; a search of hopper_rows has had it since


@cache
def shapes() -> tuple[Shape, ...]:
    rows = [
        *(("encoder", b, h, h, s, s, d, "none") for b, h, s, d in ENCODERS),
        *(("prefill", b, h, kv, s, s, d, "causal_top_left") for b, h, kv, s, d in PREFILL),
        *(("decode", b, h, kv, 1, s, d, "none") for b, h, kv, s, d in DECODE),
        *(("cross", b, h, h, s, keys, d, "none") for b, h, s, keys, d in CROSS),
    ]
    every = []
    for at, (kind, b, h, kv, s_q, s_kv, d, mask) in enumerate(rows):
        name = f"{kind} {b}x{h}/{kv} {s_q}x{s_kv} D{d}"
        tuned = not at % 2 or name == SEARCHED
        every.append(Shape(name, b, h, kv, s_q, s_kv, d, mask, tuned))
    return tuple(every)
