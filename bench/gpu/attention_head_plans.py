"""Plans of bench.gpu.attention_variants for heads of other sizes than 64 and 128."""

from __future__ import annotations

from bench.gpu.attention_plans import BOTH, ENCODER, ENDS, PAIR, PARTED, Plan, design, points
from bench.gpu.hopper_rows import CAUSAL
from bench.results import Row

STAYS: Row = {"scheduler": "persistent_all", "q_buffers": 2}
WIDE: Row = {"consumers": 2, "stages": 2, "masks_apart": True, "lazy_rescale": True}


def heads_encoder() -> list[Row]:
    """Of 80 or 96 elements, hundreds of tokens."""
    two = design(2, 128, turns=True, lazy_rescale=True, heads_together=1)
    three = design(3, 96, overlap=False, lazy_rescale=True, heads_together=1)
    return [
        *points(two, tile_n=(96, 112, 128, 144), short_rest=BOTH),
        *points({**two, **STAYS}, tile_n=(96, 128), short_rest=BOTH),
        *points(three, tile_n=(96, 112, 128), short_rest=BOTH),
        *points(PAIR, tile_n=(64, 80), short_rest=BOTH),
        *points({**ENCODER, "consumers": 1, "stages": 2, "blocks_per_sm": 2}, tile_n=(64, 96, 128)),
        *points(
            {**ENCODER, "consumers": 1, "stages": 2, "blocks_per_sm": 2, "loader": "self"},
            tile_n=(64, 96, 128),
        ),
    ]


def heads_prefill() -> list[Row]:
    """Of 80 or 96 elements, causal."""
    two = design(2, 128, turns=True, lazy_rescale=True, heads_together=64)
    return [
        *points({**two, **STAYS}, tile_n=(96, 112, 128)),
        *points({**two, **STAYS, **PARTED}, tile_n=(112, 128)),
        *points({**two, **PARTED}, tile_n=(128, 144, 160), short_rest=BOTH),
        *points({**two, "turns": False, "heads_together": 8}, tile_n=(112, 128), short_rest=BOTH),
        *points({**two, "turns": False}, tile_n=(64, 80, 96)),
        *points(
            design(3, 96, overlap=False, lazy_rescale=True, heads_together=64), tile_n=(96, 128)
        ),
        *points({**PAIR, "heads_together": 64}, tile_n=(64, 80)),
    ]


def heads_largest() -> list[Row]:
    """Of 256 elements: O alone takes 128 registers a thread."""
    small = {"consumers": 1, "stages": 2, "masks_apart": True, "lazy_rescale": True}
    return [
        *points({**WIDE, "tile_n": 80}, turns=BOTH, heads_together=(1, 8, 64), epilogue=ENDS),
        *points({**WIDE, "tile_n": 64, "turns": True}, heads_together=(1, 64)),
        *points({**WIDE, "tile_n": 80, **PARTED, "turns": True}, heads_together=(1, 8, 64)),
        *points({**WIDE, "overlap": False, "heads_together": 8}, tile_n=(64, 80)),
        *points({**WIDE, "tile_n": 80, "turns": True, "heads_together": 8}, short_rest=BOTH),
        *points({**small, "heads_together": 8}, tile_n=(64, 80, 96), overlap=BOTH),
        *points({**small, **STAYS, "heads_together": 8}, tile_n=(64, 80)),
        *points(small, tile_n=(64, 80), split_kv=(2, 4)),
    ]


HEADS: Plan = {
    "B=8,H=16,S_q=300,D=80": heads_encoder,
    "B=4,H=16,S_q=600,D=96": heads_encoder,
    "B=1,H=32,S_q=1024,D=80" + CAUSAL: heads_prefill,
    "B=1,H=32,S_q=2560,D=96" + CAUSAL: heads_prefill,
    "B=4,H=16,S_q=600,D=256": heads_largest,
    "B=2,H=16,H_kv=8,S_q=3000,D=256" + CAUSAL: heads_largest,
    "B=1,H=8,H_kv=4,S_q=1024,D=256" + CAUSAL: heads_largest,
}

HEAD_PLANS = {"heads": HEADS}
