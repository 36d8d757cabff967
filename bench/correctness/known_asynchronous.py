"""Twins with a fault of a pipeline that pass both gates, with the reason for each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bench.results import Row


@dataclass(frozen=True)
class Known:
    """A kind of survivor: texts that its lines and the candidate must contain."""

    verdict: str  # "equivalent" | "not seen" on an emulator | "missed"
    operator: str
    before: str
    candidate: str  # a regular expression over `template name=value name=value`
    why: str
    following: str = ""
    block: str = ""  # a regular expression over the lines that open the blocks around it


BEFORE_NEXT_Q = "gf::mbarrier_wait(&shared.barriers->q_empty, parity ^ 1);"
ONE_TILE = "a block has one row tile, so that nobody waits for the place of Q again"
LANES_MEET = (
    "the lanes hand over nothing in memory; a GPU may let them come apart before the next "
    "instruction that needs all of them, and the emulator's lanes always meet there"
)
# A tile goes out in consumer_rows / 64 * (width / store_columns) turns; as many places as turns.
PLACES_FILLED_ONCE = (
    ".*tile_n=(16|32|64) .*consumer_rows=64 .*scheduler=grid ",
    ".*tile_n=(16|32|64) .*consumer_rows=128 .*scheduler=grid .*store_buffers=2 ",
    ".*tile_n=128 .*consumer_rows=64 .*scheduler=grid .*store_buffers=2 ",
)
# The first tile is hidden before the loops, and without a mask only it can hold keys past the end.
MASKED_TILES = r"tile_n > seen_by_all; --key_tile\)"
NEVER_RUNS = "without a mask, no tile after the first hides keys, so that this loop never runs"
NO_COPIES = "all groups that hold copies were waited for in the walk; the last ones are empty"
KNOWN: tuple[Known, ...] = (
    Known("equivalent", "wait for one group less", "groups of no copies", "gemm/mma", NO_COPIES),
    Known("equivalent", "remove async_copy_wait", "groups of no copies", "gemm/mma", NO_COPIES),
    Known(
        "equivalent",
        "early release",
        "gf::wgmma_wait<0>();",
        "gemm(_fp8)?/wgmma .*scheduler=grid ",
        "the block's only tile ends here: nothing fills the slot again",
    ),
    Known(
        "equivalent",
        "early release",
        "gf::wgmma_wait<1>();",
        "gemm/wgmma .*short_last=True .*scheduler=grid ",
        "the last step of the block's only tile: nothing fills the slot again",
        block=r"< if \(last_elements\)",
    ),
    *(
        Known(
            "equivalent",
            "remove a named barrier",
            "gf::named_barrier_sync(1 + consumer, 128);",
            f"gemm(_fp8)?/wgmma {turns}",
            "the block's only tile fills each place for stores once: nothing read it before",
            "#pragma unroll",
        )
        for turns in PLACES_FILLED_ONCE
    ),
    *(
        Known(
            "equivalent",
            "remove a wait for stores",
            "gf::bulk_wait_read<store_buffers - 1>();",
            f"gemm(_fp8)?/wgmma {turns}",
            "the block's only tile fills each place for stores once: no store reads it before",
        )
        for turns in PLACES_FILLED_ONCE
    ),
    Known(
        "equivalent",
        "remove a cluster barrier",
        "gf::cluster_sync();",
        "gemm(_fp8)?/wgmma .*split_k=[248] ",
        "the loader's warps end here, and a cluster's barrier does not wait for threads that ended",
        block=r"if \(warpgroup == 0\)",
    ),
    *(
        Known(
            "equivalent",
            operator,
            before,
            "attention/wgmma .*mask=none .*",
            NEVER_RUNS,
            "",
            MASKED_TILES,
        )
        for operator, before in (
            ("remove a barrier wait", "gf::mbarrier_wait(&barriers."),
            ("remove wgmma wait", "gf::wgmma_wait<"),
            ("wait for one wgmma group less", "gf::wgmma_wait<"),
            ("early release", "gf::wgmma_wait<"),
        )
    ),
    Known(
        "equivalent",
        "early release",
        "gf::wgmma_wait<0>();",
        "attention/wgmma .*loader=producer .*q_buffers=1 ",
        "the end of a walk: the next tiles are loaded after the next rows of Q, which take the "
        "place that this warpgroup leaves later",
        "v_place.step();",
        "^{( <|$)",
    ),
    Known(
        "equivalent",
        "early release",
        "gf::wgmma_wait<0>();",
        "attention/wgmma .*consumers=1 .*loader=self ",
        "the warp that fills the place again waits for the product, which is the only warpgroup's",
    ),
    Known(
        "equivalent",
        "early release",
        "gf::mbarrier_wait(&barriers.k_full",
        "attention_fp8/wgmma .*consumers=2 .*scheduler=grid ",
        "a block's first tile, the only one that a warpgroup passes by: no place is filled again",
        "k_place.step();",
    ),
    *(
        Known("equivalent", operator, "barriers.q_empty", "attention.*scheduler=grid ", ONE_TILE)
        for operator in ("one arrival less", "one arrival more", "remove an arrival")
    ),
    Known(
        "equivalent", "remove a barrier wait", BEFORE_NEXT_Q, "attention.*scheduler=grid ", ONE_TILE
    ),
    Known(
        "equivalent",
        "remove a barrier wait",
        "gf::mbarrier_wait(&shared.barriers->q_empty[loads.q.slot], loads.q.parity ^ 1);",
        "attention/wgmma .*scheduler=grid ",
        ONE_TILE,
    ),
    *(
        Known(
            "equivalent",
            operator,
            "gf::mbarrier_wait(&barriers.v_full[v_place.slot], v_place.parity);",
            "attention/wgmma .*scheduler=grid ",
            "the first tiles of a block, which a warpgroup leaves unread: no slot is refilled yet",
            following,
        )
        for operator, following in (
            ("remove a barrier wait", "release(&barriers.v_empty[v_place.slot]);"),
            ("early release", "v_place.step();"),
        )
    ),
    Known(
        "equivalent",
        "remove a named barrier",
        "gf::named_barrier_sync(1, part_threads);",
        "attention/wgmma .*consumers=1 ",
        "a warp's wait for a product is for that of its whole warpgroup, which is alone",
    ),
    Known(
        "equivalent",
        "every lane arrives",
        "if (lane == 0)",
        "attention/wgmma .*scheduler=grid ",
        ONE_TILE,
        "gf::mbarrier_arrive(&barriers.q_empty",
    ),
    Known(
        "equivalent",
        "accumulate from the start",
        "accumulate || j",
        "attention",
        "the sums of O begin as zeros, to which the first product is then added",
    ),
    Known(
        "equivalent",
        "early release",
        "gf::mbarrier_wait(&barriers.turned_full",
        "attention_fp8/wgmma .*mask=causal_top_left .*consumers=2 tile_n=(128|256) ",
        "a warpgroup's 64 rows see as many tiles as the block's 128, so that it passes none by",
        "v_place.step();",
    ),
    Known("not seen", "remove __syncwarp", "__syncwarp();", "wgmma", LANES_MEET),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        "attention/decode .*warps_n=1 .*q_in=shared ",
        "one group of warps is the whole block, and its barrier comes before the first read of Q",
        "#line 18",
    ),
)


def explained(row: Row) -> Row:
    """A survivor's row with its verdict and why; `missed` where nothing here explains it."""
    values = {**row["compiled"], **row["parameters"]}
    name = f"{row['template']} " + "".join(f"{key}={value} " for key, value in values.items())
    for known in KNOWN:
        if (
            known.operator == row["operator"]
            and known.before in row["before"]
            and known.following in row["following"]
            and re.search(known.block, row.get("block", ""))
            and re.search(known.candidate, name)
        ):
            return {**row, "verdict": known.verdict, "why": known.why}
    return {**row, "verdict": "missed", "why": "not explained"}
