"""How often wrong attention kernels, the album's and mutants, are explained by the correct stage.

    python -m bench.correctness.explanations [WORD ...] [--save] [--mutants 100] [--seed 0]
                                             [--seconds 3600] [--progress FILE]

The correct stages of an entry follow from its change; if the changed line serves two stages, both
count. `probes` is the stage that probes alone name, and `explained` is the one that the whole
explanation names, which includes the findings of safety. With WORDs, only the entries whose name
contains one.

A mutant changes one line of a template (stage_mutants.py), so that neither the explanation's rules
nor its authors knew it before. Mutants that no gate rejects, or that do not compile, are replaced
by others. With --mutants 0 there are none; with the word `none`, no entry of the album. Rows of
mutants are appended to the progress file, and a second run with the same seed continues there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path

from bench.command_line import add_save, script_parser
from bench.correctness.stage_mutants import StageMutant, stage_mutants
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
from greenfast.search.diagnose.explanation import EXPLAINED, explain
from greenfast.search.diagnose.probes import first_wrong, probe_candidate
from greenfast.search.errors import GreenfastError
from greenfast.search.gates import GateLimits
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.evaluate import EvaluationContext, evaluate
from greenfast.search.render import RenderedSource
from greenfast.search.shipped import KERNEL_TEMPLATES
from greenfast.search.space.candidate import Candidate, preset_candidate
from greenfast.search.verdict import Rejected

WORKLOAD = "small"
DEADLINE_S = 6.0  # a mutant may never end
ATTEMPTS = 20  # to find one that is wrong
AT_ONCE = 3
TILES = ("qk", "pv")  # a fault in the copies of K and V shows in whichever is read first
END = ("single_tile", "output")
RIGHT_STAGES: dict[str, tuple[str, ...]] = {
    "no_barrier_after_p": ("softmax", "pv"),
    "no_barrier_before_the_softmax": ("qk", "softmax"),
    "copies_not_waited_for": TILES,
    "next_tile_started_too_early": TILES,
    "sum_not_reduced_over_lanes": ("state",),
    "maximum_not_reduced_over_lanes": ("softmax", "state"),
    "scalar_maximum_that_is_not_set": ("softmax", "state"),
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
    "decode_share_published_without_a_fence": END,
    "decode_last_block_reads_without_a_fence": END,
    "decode_row_tiles_share_a_ticket": END,
    "decode_query_of_another_head": ("qk",),
    "decode_mask_by_packed_row": ("softmax",),
    "decode_last_split_leaves_tiles_out": ("state", *END),
    "decode_shift_of_no_key": ("softmax", "state"),
    "decode_place_refilled_while_it_is_read": TILES,
    "decode_two_groups_of_warps_on_a_ring": TILES,
    "decode_blocks_sum_over_maxima_that_are_read": END,
    "decode_blocks_leave_while_others_add_up": END,
    "decode_inbox_read_before_all_have_sent": END,
    "a_part_laid_over_keys_that_are_still_read": ("pv", "state", *END),
    "parts_read_before_the_cluster_has_met": ("state", *END),
    "a_block_leaves_while_others_read_its_part": ("state", *END),
    "softmax_of_the_own_part": ("state", *END),
    "maximum_of_the_last_part": ("state",),
    "parts_of_the_keys_that_overlap": ("state", *END),
    "lse_of_one_part": ("state", *END),
    "two_parts_sent_to_one_place": END,
    "ones_without_a_proxy_fence": ("pv", "state", *END),
    "ones_that_stay_behind_the_first_keys": ("pv", "state", *END),
    "wgmma_row_offset_in_32_bits": END,
    "decode_key_offset_in_32_bits": TILES,
    "maximum_kept_until_exponentials_overflow": ("softmax", "state"),
    "score_of_zero_taken_for_a_hidden_key": ("softmax",),
    "last_group_of_heads_taken_for_a_full_one": ("qk", *END),
    "wgmma_place_of_q_kept_by_rows_without_keys": ("qk", *END),
    "half_a_tile_for_one_key_more": ("qk", "softmax"),
    "late_lane_misses_a_turn_of_the_ring": ("qk", "pv", *END),
    "rows_of_a_piece_counted_from_its_row_tile": ("qk", *END),
    "decode_usual_scale_in_the_place_of_the_given": ("softmax",),
    "decode_mask_left_out_where_one_key_is_hidden": ("softmax",),
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
    row = {"name": entry.name, "template": entry.template, "right": RIGHT_STAGES[entry.name]}
    explained = explained_candidate(context, _candidate(entry, context))
    return {**row, **(explained or {"verdict": "green", "probes": "", "explained": ""})}


def explained_candidate(context: EvaluationContext, candidate: Candidate) -> Row | None:
    """What is said about a candidate; None for one that correctness and safety do not reject."""
    begin = time.monotonic()
    verdict = evaluate(candidate, context).verdict
    if not isinstance(verdict, Rejected) or verdict.stage not in EXPLAINED:
        return None
    first = first_wrong(probe_candidate(replace(context), candidate))
    explanation = explain(context, candidate, verdict, with_ladder=False)
    return {
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


def mutant_row(number: int, seed: int, session: Session) -> Row:
    """The first mutant of this number that is wrong, and what is said about it."""
    for mutant in islice(stage_mutants(number, seed), ATTEMPTS):
        row = {
            "number": number,
            "name": f"mutant {seed}/{number}",
            "template": mutant.preset,
            "right": list(mutant.right),
            "file": f"{mutant.file}:{mutant.line}",
            "operator": mutant.operator,
            "before": mutant.before,
            "after": mutant.after,
        }
        try:
            with tempfile.TemporaryDirectory() as folder:
                explained = explained_mutant(mutant, Path(folder), session)
        except GreenfastError as error:
            print(f"{row['name']} left out: {error}"[:200], file=sys.stderr, flush=True)
            continue
        if explained is not None:
            return {**row, **explained}
    return {"number": number, "name": f"mutant {seed}/{number}", "right": [], "verdict": "none"}


def explained_mutant(mutant: StageMutant, folder: Path, session: Session) -> Row | None:
    """None if the line is not part of the preset or not C++, and for survivors."""
    catalogue = mutant.catalogue(folder)
    kernel = catalogue.kernel("attention")
    workload = kernel.workload(WORKLOAD)
    context = session.context(kernel, workload, limits=GateLimits(), sizes_secret=ALBUM_SECRET)
    context = replace(context, include_dirs=catalogue.include_dirs)
    template, preset = kernel.preset(mutant.preset)
    candidate = preset_candidate(template, preset.name, context.compiled)
    original = Catalogue([KERNEL_TEMPLATES]).kernel("attention")
    before = replace(context, kernel=original).render(candidate)
    after = context.render(candidate)
    if not (isinstance(after, RenderedSource) and isinstance(before, RenderedSource)):
        return None
    return None if after.digest == before.digest else explained_candidate(context, candidate)


def mutant_rows(options: argparse.Namespace) -> list[Row]:
    """Rows of all numbers that were worked through, those of the progress file included."""
    rows = _progress(options.progress)
    missing = [n for n in range(options.mutants) if n not in {row["number"] for row in rows}]
    end = time.monotonic() + options.seconds
    with (
        open_session(
            "emulator:h200", prefix="mutant-stages", workers=2, run_deadline_s=DEADLINE_S
        ) as session,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):

        def work(number: int) -> Row | None:
            return mutant_row(number, options.seed, session) if time.monotonic() < end else None

        for row in pool.map(work, missing):
            if row is None:
                continue
            rows.append(row)
            named = row.get("explained", "")
            print(f"{row['name']}: {named or '-'} of {row['right']}", file=sys.stderr, flush=True)
            if options.progress:
                with options.progress.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    return sorted((row for row in rows if row["right"]), key=lambda row: row["number"])


def _progress(path: Path | None) -> list[Row]:
    if path is None or not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def summary(what: str, rows: list[Row]) -> Row:
    return {
        "what": what,
        "kernels": len(rows),
        "right_stage_by_probes_alone": sum(row["probes"] in row["right"] for row in rows),
        "right_stage_explained": sum(row["explained"] in row["right"] for row in rows),
    }


def album_rows(words: list[str]) -> list[Row]:
    selected = [
        entry
        for entry in entries()
        if entry.kernel == "attention"
        and entry.kind == "patch"
        and any(word in entry.name for word in words or [""])
    ]
    rows: list[Row] = []
    with (
        open_session("emulator:h200", prefix="explanations", workers=2) as session,
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):

        def work(numbered: tuple[int, Entry]) -> Row:
            place = Path(folder) / f"patch{numbered[0]}"
            place.mkdir()
            return explained_row(numbered[1], session, place)

        for row in pool.map(work, enumerate(selected)):
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    return rows


def main() -> int:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--mutants", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0, help="for the mutants")
    parser.add_argument("--progress", type=Path, metavar="FILE")
    options = parser.parse_args()
    album = album_rows(options.words)
    planted = mutant_rows(options) if options.mutants else []
    summaries = [summary("summary", album), summary("mutants", planted)]
    publish("explanations", [*summaries, *album, *planted], save=options.save)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
