"""Mutants that pass correctness and safety, with the reason for each, found by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bench.results import Row


@dataclass(frozen=True)
class Known:
    """A kind of survivor: texts that its line, the next line and the candidate must contain."""

    verdict: str  # "equivalent" | "missed"
    operator: str
    before: str
    candidate: str  # a regular expression
    why: str
    following: str = ""


MASKED_TILES = (
    "walks on over tiles that no row of the block sees: every key of them is masked, "
    "so it is slower and the same"
)
KNOWN: tuple[Known, ...] = (
    Known(
        "equivalent",
        "swap integer minimum and maximum",
        "visible_keys(min(first_row + tile_m, S_q)",
        "attention/.*mask=none",
        "without a mask every row sees all keys, whichever row is asked for",
    ),
    Known(
        "equivalent",
        "swap integer minimum and maximum",
        "visible_keys(min(first_row + tile_m, S_q)",
        "attention/",
        MASKED_TILES,
    ),
    Known(
        "equivalent",
        "one more turn",
        "first < C; first += threads",
        "scan/right",
        (
            "where threads divides C there is one chunk more, of which no element exists: "
            "nothing of it is stored"
        ),
    ),
    Known(
        "equivalent",
        "one more turn",
        "pass < passes",
        "attention/wmma",
        "the next line leaves the loop: a row of turn `passes` is never one of the tile",
        "const int row = pass *",
    ),
    Known(
        "equivalent",
        "wait for one group less",
        "async_copy_wait<0>",
        "attention/wmma .*pipeline_depth=[2-4]",
        "behind the walk the newest group holds no copies, so that all others are still waited for",
        "__syncthreads",
    ),
    Known(
        "equivalent",
        "drop a choice",
        "score[j] = first_key + j < row_end",
        "mask=none .*keys_per_step=1 ",
        "a turn takes one key, and the loop ends with the row's keys",
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "the next row's sums",
        r"reduce/right .*threads=32 ",
        "the block is one warp, of which lane 0 alone writes and reads the place",
    ),
    Known(
        "equivalent",
        "assign instead of add",
        "sum += own[row][bin]",
        "count_in=shared",
        "there is one row, and sum is 0",
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        r"reduce/right .*threads=32 .*method=shuffle",
        "the block is one warp, of which lane 0 alone writes and reads the place",
        "if (warp == 0) {",
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "the next row's sums",
        r"reduce/right .*rows_per_block=1 ",
        "there is no next row",
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        "lastblock/right .*fence_by=block",
        (
            "one thread writes the sum, makes it visible and takes the ticket: it needs no "
            "barrier for that"
        ),
        '#line 39 "lastblock',
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        "attention/wmma .*pipeline_depth=1 .*o_in=fragments",
        "the walk itself ends with a barrier",
        '#line 212 "attention/wmma.cu',
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        "attention/wmma .*pipeline_depth=1 .*o_in=shared",
        "the walk itself ends with a barrier",
        '#line 217 "attention/wmma.cu',
    ),
    Known(
        "equivalent",
        "remove async_copy_commit",
        "async_copy_commit",
        "attention/wmma .*pipeline_depth=[2-4] .*q_in_fragments=False",
        (
            "the copies of Q go with those of the first tile, which are waited for before "
            "either is read"
        ),
        '#line 191 "attention/wmma.cu',
    ),
    Known(
        "equivalent",
        "remove async_copy_wait",
        "async_copy_wait<0>",
        "attention/wmma .*pipeline_depth=[1-4] .*q_in_fragments=True",
        "behind the walk the open groups hold no copies, and Q was waited for before",
        "__syncthreads",
    ),
    Known(
        "equivalent",
        "remove async_copy_wait",
        "async_copy_wait<0>",
        "attention/mma .*q_in=(direct|registers)",
        "behind the walk the open groups hold no copies, and Q was there before",
        "__syncthreads",
    ),
    Known(
        "equivalent",
        "drop a choice",
        "exp2_polynomial(exponent) : gf::exp2_approx(exponent)",
        "attention/mma",
        (
            "both give the same power of two, within the tolerances; the choice only spreads "
            "the work over two units"
        ),
    ),
    Known(
        "equivalent",
        "one more turn",
        "chunk + slots < chunks",
        "pipe/right",
        "one more arrival at a barrier to which nobody comes any more before the block ends",
    ),
    Known(
        "equivalent",
        "one more turn",
        "score[j] = first_key + j < row_end",
        "mask=none .*keys_per_step=1 ",
        "a turn takes one key, and the loop ends with the row's keys",
    ),
    Known(
        "equivalent",
        "one more turn",
        "distance < threads; distance *= 2",
        "scan/right",
        (
            "threads is a power of two, and no thread has another so far before it: the sums "
            "are copied"
        ),
    ),
    Known(
        "equivalent",
        "drop a mask",
        "if (row < tile_m)",
        "attention/wmma .*(warps_n=[12] |softmax_lanes=(8|16|32) )",
        "the rows of a pass divide the tile's",
        "finish_row(",
    ),
    Known(
        "equivalent",
        "swap integer minimum and maximum",
        "const int warp_begin = visible_keys(min(",
        "attention/mma .*mask=none",
        "without a mask every row sees all keys, whichever row is asked for",
    ),
    Known(
        "equivalent",
        "one more turn",
        "if (row < tile_m)",
        "attention/wmma .*(warps_n=[12] |softmax_lanes=(8|16|32) )",
        "the rows of a pass divide the tile's",
        "finish_row(",
    ),
    Known(
        "equivalent",
        "one more turn",
        "first_key < block_end; first_key += tile_n",
        "attention/scalar .*mask=none",
        (
            "where tile_n divides the keys there is one tile more, of rows that do not exist:"
            " no key of it is walked"
        ),
    ),
    Known(
        "equivalent",
        "swap integer minimum and maximum",
        "const int row = min(first_row + lane_row",
        "attention/wmma .*mask=none",
        "without a mask every row sees all keys, whichever row is asked for",
    ),
    Known(
        "equivalent",
        "index plus one",
        "scores[i][j].num_elements",
        "attention/wmma",
        "the number is the type's: no element is read",
    ),
    Known(
        "equivalent",
        "index plus one",
        "// [16 row_fragments,",
        "attention/mma",
        "the array is larger, and used as before",
    ),
    Known(
        "equivalent",
        "one more turn",
        "i < row_fragments",
        "attention/wmma .*tile_m=(32|64|128) .*warps_m=1 warps_n=1 pipeline_depth=1 swizzle=xor "
        ".*pv=scalar .*s_p_alias=False",
        (
            "one fragment more of Q, made of K, whose scores fall on P: the block's one warp "
            "has not yet made it anew"
        ),
        "const int row = (warp_m",
    ),
    Known(
        "equivalent",
        "index plus one",
        "q_empty[q_buffers];",
        "attention/wgmma",
        "the array of barriers is larger, and used as before",
    ),
    Known(
        "equivalent",
        "drop a choice",
        "gf::exp2_scaled(exponent) : gf::exp2_approx(exponent)",
        "attention/wgmma .*exp_polynomial=[1-9]",
        "both ways to an exponential are right: another share of them takes the polynomial",
    ),
    Known(
        "equivalent",
        "one more turn",
        "i < tile * tile",
        "transpose/right",
        (
            "of the first loop: one element more lands on the matrix that goes out, which is "
            "written anew before it is read (one turn more of the second loop is rejected)"
        ),
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        "lastblock/right .*threads=32 .*fence_by=writer",
        "the block is one warp, whose first thread alone writes and reads its sum",
        "if (threadIdx.x == 0) {",
    ),
    Known(
        "equivalent",
        "assign instead of add",
        "total += partial[warp]",
        "lastblock/right .*threads=32 ",
        "the block is one warp, and total is 0",
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        "reduce/right .*method=warp_tree",
        "behind the tree's last barrier the first warp reads only what it alone writes, in step",
        '#line 67 "reduce/right',
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        (
            "attention/mma .*tile_m=32 .*tile_n=160 warps_n=2 q_in=direct split_kv=1 "
            ".*pipeline_depth=3 .*split_kv_wait=True"
        ),
        "the parts lie over the first K alone, which nobody reads behind the barrier before P V",
        "const Parts parts",
    ),
    Known(
        "missed",
        "one more turn",
        "e < scores[i][j].num_elements",
        "attention/wmma",
        (
            "of a thread's own array the compiler's check lets a reference to the place "
            "behind the last one pass"
        ),
        "const int key =",
    ),
    Known(
        "equivalent",
        "swap integer minimum and maximum",
        "visible_keys(min(first_row + row, S_q - 1), S_q, S_kv)",
        "attention/.*mask=none",
        "without a mask every row sees all keys, whichever row is asked for",
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        "table/right .*scratch=module",
        "each thread reads only the element that it wrote itself",
        "codes = scratch[block];",
    ),
    Known(
        "equivalent",
        "one more turn",
        "step < per_thread",
        "axpy/right",
        "the next thread's elements are computed twice, and both threads store the same values",
    ),
    Known(
        "equivalent",
        "one more turn",
        "k - t < K; k += 8",
        "narrow/right",
        "where 8 divides K there is one step more, of elements that do not exist: they add zeros",
    ),
    Known(
        "equivalent",
        "index plus one",
        "float table[16]",
        "table/right .*table_in=own",
        "the table has one element more, which nobody reads",
    ),
    Known(
        "equivalent",
        "remove __syncwarp",
        "__syncwarp();",
        "attention/wgmma .*loader=self",
        (
            "what follows counts in registers: the mbarriers order the copy, and the lanes meet at "
            "the next product"
        ),
        "loads.v.step();",
    ),
    Known(
        "missed",
        "remove __syncwarp",
        "// rows that see no key have no product",
        "attention/wgmma .*q_buffers=2 .*epilogue=direct",
        (
            "a late lane can find Q's place filled anew, and wait for ever: only where one block "
            "walks three row tiles without keys, and the case on one multiprocessor has none"
        ),
    ),
)


def explained(row: Row) -> Row:
    """A survivor's row with its verdict and the reason; an unknown survivor was missed."""
    if row["outcome"] != "survived":
        return row
    for known in KNOWN:
        if (
            known.operator == row["operator"]
            and known.before in row["before"]
            and known.following in row["following"]
            and re.search(known.candidate, row["candidate"])
        ):
            return {**row, "outcome": known.verdict, "why": known.why}
    return {**row, "outcome": "missed", "why": "not explained"}
