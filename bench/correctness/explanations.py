"""How often the wrong attention kernels of the album are explained by the right stage.

    python -m bench.correctness.explanations [WORD ...] [--save]

The right stages of an entry follow from what it changes; where the changed line serves two stages,
both count. `probes` is the stage that probes alone name, `explained` the one that the whole
explanation names, with what safety found. With WORDs, only the entries whose name contains one.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import Row
from bench.session import Session, open_session
from greenfast.search.diagnose.album import (
    ALBUM_SECRET,
    Entry,
    _candidate,
    catalogue_of,
    entries,
)
from greenfast.search.diagnose.explanation import explain
from greenfast.search.diagnose.probes import first_wrong, probe_candidate
from greenfast.search.gates import GateLimits
from greenfast.search.loop.evaluate import EvaluationContext, evaluate
from greenfast.search.verdict import Rejected

TILES = ("qk", "pv")  # a fault in the copies of K and V shows in whichever is read first
END = ("single_tile", "output")
RIGHT_STAGES: dict[str, tuple[str, ...]] = {
    "no_barrier_after_p": ("softmax", "pv"),
    "no_barrier_before_the_softmax": ("qk", "softmax"),
    "copies_not_waited_for": TILES,
    "next_tile_started_too_early": TILES,
    "sum_not_reduced_over_lanes": ("state",),
    "maximum_not_reduced_over_lanes": ("softmax", "state"),
    "sum_not_rescaled": ("state",),
    "output_not_rescaled": ("state", "output"),
    "tail_not_masked": ("softmax",),
    "mask_off_by_one": ("softmax",),
    "p_normalised_twice": ("softmax",),
    "no_scale": ("softmax",),
    "natural_exponent_with_base_two": ("softmax",),
    "wrong_kv_head": ("qk",),
    "keys_loaded_by_rows": ("qk",),
    "tail_rows_loaded": ("qk",),
    "barrier_in_one_warp_only": ("qk", "softmax"),
    "shuffle_mask_too_narrow": ("state",),
    "first_factor_not_written": ("state", "output"),
    "last_barrier_missing": END,
    "mma_v_not_transposed": ("pv",),
    "mma_k_transposed": ("qk",),
    "mma_k_registers_swapped": ("qk",),
    "mma_p_fragment_rows_and_columns_swapped": ("softmax", "pv"),
    "mma_output_rows_swapped": ("single_tile",),
    "mma_swizzle_on_one_side": TILES,
    "mma_sum_of_one_lane_of_four": ("single_tile",),
    "mma_maximum_of_two_lanes_of_four": ("softmax", "state"),
    "mma_maximum_of_the_lesser_of_two": ("softmax", "state"),
    "mma_mask_off_by_one": ("softmax",),
    "mma_next_tile_started_before_the_barrier": TILES,
    "mma_next_tile_over_the_one_that_is_read": TILES,
    "next_rows_over_those_that_are_read": TILES,
    "mma_one_group_too_few_waited_for": TILES,
    "mma_parts_read_without_the_clusters_barrier": END,
    "mma_blocks_leave_while_others_add_up": END,
    "row_offset_in_32_bits": END,
    "batch_offset_in_unsigned_32_bits": ("qk",),
}


def explained_row(entry: Entry, session: Session, folder: Path) -> Row:
    """One entry: the stage by construction, by probes alone, and by the explanation."""
    catalogue = catalogue_of(entry, folder)
    kernel = catalogue.kernel(entry.kernel)
    workload = kernel.workload(entry.workload)
    context = EvaluationContext(
        kernel,
        workload.compile_time(kernel),
        (workload,),
        session.target,
        session.toolchain,
        catalogue.include_dirs,
        GateLimits(),
        0,
        sizes_secret=ALBUM_SECRET,
    )
    candidate, begin = _candidate(entry, context), time.monotonic()
    verdict = evaluate(candidate, context).verdict
    row: Row = {"name": entry.name, "template": entry.template, "right": RIGHT_STAGES[entry.name]}
    if not isinstance(verdict, Rejected):
        return {**row, "verdict": type(verdict).__name__, "probes": "", "explained": ""}
    first = first_wrong(probe_candidate(replace(context), candidate))
    explanation = explain(context, candidate, verdict, with_ladder=False)
    return {
        **row,
        "verdict": f"{verdict.stage}: {verdict.reason}",
        "probes": first.probe if first else "",
        "explained": explanation.first_stage,
        "shown_by": explanation.shown_by,
        "sentence": verdict.sentence[:300],
        "conclusion": explanation.conclusion[:600],
        "stages": {stage.name: stage.outcome for stage in explanation.stages},
        "findings": [f"{each.kind} at {each.where}" for each in explanation.findings[:2]],
        "seconds": round(time.monotonic() - begin, 1),
    }


def summary(rows: list[Row]) -> Row:
    return {
        "what": "summary",
        "kernels": len(rows),
        "right_stage_by_probes_alone": sum(row["probes"] in row["right"] for row in rows),
        "right_stage_explained": sum(row["explained"] in row["right"] for row in rows),
    }


def main() -> int:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("words", nargs="*", metavar="WORD")
    options = parser.parse_args()
    words = options.words or [""]
    selected = [
        entry
        for entry in entries()
        if entry.kernel == "attention"
        and entry.kind == "patch"
        and any(word in entry.name for word in words)
    ]
    rows = []
    with (
        open_session("emulator:h200", prefix="explanations", workers=2) as session,
        tempfile.TemporaryDirectory() as folder,
    ):
        for number, entry in enumerate(selected):
            place = Path(folder) / f"patch{number}"
            place.mkdir()
            rows.append(explained_row(entry, session, place))
            print(rows[-1], flush=True)
    publish("explanations", [summary(rows), *rows], save=options.save)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
