"""Calls of models whose heads have neither 64 nor 128 elements; no set was tuned on them.

ViT-H/14 and Phi-2 have heads of 80 elements, Phi-3-mini of 96, Gemma 2 of 256.
"""

from __future__ import annotations

from bench.gpu.runtime_shapes import Shape

CAUSAL = "causal_top_left"
# Kind, batch, query heads, key heads, queries, keys, elements of a head
SIZES = (
    ("encoder", 1, 16, 16, 257, 257, 80),
    ("encoder", 8, 16, 16, 257, 257, 80),
    ("encoder", 32, 16, 16, 257, 257, 80),
    ("encoder", 4, 16, 16, 729, 729, 80),
    ("prefill", 1, 32, 32, 300, 300, 80),
    ("prefill", 1, 32, 32, 2000, 2000, 80),
    ("decode", 1, 32, 32, 1, 900, 80),
    ("decode", 8, 32, 32, 1, 1500, 80),
    ("cross", 2, 16, 16, 300, 1500, 80),
    ("prefill", 1, 32, 32, 700, 700, 96),
    ("prefill", 4, 32, 32, 1800, 1800, 96),
    ("prefill", 1, 32, 32, 5000, 5000, 96),
    ("decode", 1, 32, 32, 1, 3000, 96),
    ("decode", 16, 32, 32, 1, 1200, 96),
    ("encoder", 4, 12, 12, 500, 500, 96),
    ("cross", 4, 12, 12, 120, 900, 96),
    ("prefill", 1, 8, 4, 600, 600, 256),
    ("prefill", 1, 16, 8, 1700, 1700, 256),
    ("prefill", 2, 16, 8, 5000, 5000, 256),
    ("decode", 1, 8, 4, 1, 2500, 256),
    ("decode", 8, 16, 8, 1, 1800, 256),
    ("decode", 32, 16, 8, 1, 3000, 256),
    ("encoder", 2, 8, 8, 300, 300, 256),
    ("cross", 1, 8, 8, 200, 1100, 256),
)


def head_shapes() -> list[Shape]:
    return [
        Shape(
            f"{kind} {b}x{h}/{h_kv} {queries}x{keys} D{d}",
            *(b, h, h_kv, queries, keys, d),
            mask=CAUSAL if kind == "prefill" else "none",
            tuned=False,
        )
        for kind, b, h, h_kv, queries, keys, d in SIZES
    ]
