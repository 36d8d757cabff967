"""Would figures of a candidate, known before it runs, help `evolution`'s model?

    python -m bench.speed.launch_features SEARCHES.jsonl [--seeds 20] [--evaluations 100] [--save]

Every recording is searched from nothing: with the features as they are, and with columns more.

`launches`: computed from the template's expressions for each child: threads of a block, bytes of
its dynamic shared memory, blocks that an SM holds by these two, and waves of the grid on the GPU.
`ptxas`: what ptxas said of it: registers, bytes of its stack and of spills, and blocks that an SM
holds. All children have them, as if each had been compiled for nothing: more than a search could
know.

`ratio` compares with the search without, seed by seed: the geometric mean of evaluations with these
columns over those without, with a 95 % interval. A search that does not get there counts as the
budget.

Searches are appended to SEARCHES.jsonl as they end, and a second run does those that are missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from unittest.mock import patch

import numpy as np

from bench.environment import publish
from bench.results import Row
from bench.speed.search_quality import completed, searched, searches_parser
from bench.speed.search_quality_figures import evaluations_to, mean_ratio
from bench.speed.search_quality_spaces import MeasuredSpace, recorded_space
from greenfast.search.devices.occupancy import occupancy
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import Parameter
from greenfast.search.recordings.shelf import find_recording, recording_names
from greenfast.search.space.points import Points
from greenfast.search.space.space import resolve
from greenfast.search.strategies import evolution
from greenfast.search.strategies.breeding import numbers
from greenfast.search.strategies.features import Features

GOALS = {"5 %": 1.05, "1 %": 1.01}
FIRST_SEED = 2000
REGISTERS = 1  # of a thread: not known before it is compiled, so they limit nothing
Job = tuple[str, str, int, int]  # space, its columns, seed, budget
NONE = ""


@cache
def space_of(name: str) -> MeasuredSpace:
    return recorded_space(name)


@cache
def ptxas_columns(name: str) -> np.ndarray:
    """[points, columns] of a recording, from 0 to 1; the mean where nothing was compiled."""
    recording = find_recording(name)
    figures = [row.ptxas for row in recording.rows if row.template == recording.heading.template]
    columns = np.array(
        [
            (each.registers, each.stack_bytes, each.spill_bytes, math.log2(each.blocks_per_sm))
            if each is not None and each.blocks_per_sm
            else (math.nan,) * 4
            for each in figures
        ],
        float,
    )
    return scaled(np.where(np.isnan(columns), np.nanmean(columns, axis=0), columns))


@cache
def launch_columns(name: str) -> np.ndarray:
    """[points, columns] of a recording, from 0 to 1."""
    recording = find_recording(name)
    heading = recording.heading
    kernel = Catalogue.from_environment().kernel(heading.kernel)
    template, device, workload = (
        kernel.template(heading.template),
        heading.device,
        heading.workloads[0],
    )
    shape = kernel.values_of(dict(workload.dims), dict(workload.options))
    rows = []
    for row in recording.rows:
        if row.template != heading.template:
            continue
        given = dict(recording.parameters(row))
        point = tuple(
            (each.name, given.get(each.name, each.default)) for each in template.parameters
        )
        resolved = resolve(template, point, workload.compile_time(kernel), device)
        values = {**shape, **resolved.values}
        blocks = max(
            math.prod(size.whole(values) for size in launch.grid)
            for launch in template.launched(resolved.values)
        )
        threads, smem_bytes = resolved.threads_per_block, resolved.smem_dynamic_bytes
        held = max(1, occupancy(device, REGISTERS, threads, smem_bytes).blocks_per_sm)
        waves = blocks / (held * device.multiprocessors)
        rows.append([math.log2(threads), smem_bytes, math.log2(held), math.log2(waves)])
    return scaled(np.array(rows, float))


def scaled(columns: np.ndarray) -> np.ndarray:
    """From 0 to 1; columns without differences are left out."""
    width = np.ptp(columns, axis=0)
    whole: np.ndarray = (columns - columns.min(0)) / np.where(width > 0, width, 1.0)
    return whole[:, width > 0]


COLUMNS = {"launches": launch_columns, "ptxas": ptxas_columns}


class MoreFeatures(Features):
    """Features of a recording with these columns, each with a length of its own."""

    def __init__(self, name: str, kind: str, parameters: Sequence[Parameter]) -> None:
        super().__init__(parameters)
        codes = Points(space_of(name).parameters, space_of(name).points).encoded.astype(np.int64)
        self._value_counts = np.array([len(each.values) for each in parameters], np.int64)
        known = numbers(codes, self._value_counts)
        self._order = np.argsort(known)
        self._known, self._columns = known[self._order], COLUMNS[kind](name)
        added = int(self.groups.max()) + 1 + np.arange(self._columns.shape[1])
        self.groups = np.append(self.groups, added).astype(np.intp)

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        places = np.searchsorted(self._known, numbers(codes.astype(np.int64), self._value_counts))
        columns: np.ndarray = np.hstack(
            [super().__call__(codes), self._columns[self._order[places]]]
        )
        return columns


def run(job: Job) -> Row:
    name, kind, seed, evaluations = job
    space = space_of(name)
    if kind == NONE:
        row = searched(space, "evolution", FIRST_SEED + seed, evaluations)
    else:
        with patch.object(
            evolution, "Features", lambda parameters: MoreFeatures(name, kind, parameters)
        ):
            row = searched(space, "evolution", FIRST_SEED + seed, evaluations)
    return {**row, "seed": seed, "columns": kind}


def _key(row: Row) -> Job:
    return row["space"], row["columns"], row["seed"], row["budget"]


def _compared(rows: Sequence[Row], kind: str, names: Sequence[str]) -> Row:
    known = {_key(row): row for row in rows}
    own = [row for row in rows if row["columns"] == kind and row["space"] in names]
    line: Row = {"what": "ratio", "columns": kind, "spaces": list(names), "searches": len(own)}
    for goal, share in GOALS.items():
        logs = []
        for row in own:
            best = float(space_of(row["space"]).times.min()) * share
            pair = row, known[row["space"], NONE, row["seed"], row["budget"]]
            with_more, without = (
                min(each["budget"], evaluations_to(each["curve"], best)) for each in pair
            )
            logs.append(math.log(with_more / without))
        line[goal] = mean_ratio(np.array(logs), np.random.default_rng(0))
    return line


def main() -> None:
    parser = searches_parser(__doc__, 100)
    options = parser.parse_args()
    names = recording_names()
    jobs = [
        (name, kind, seed, options.evaluations)
        for seed in range(options.seeds)
        for name in names
        for kind in (NONE, *COLUMNS)
    ]
    rows = completed(options, jobs, run, _key)
    chosen = [rows[job] for job in jobs]
    setting: Row = {
        "what": "setting",
        "seeds": options.seeds,
        "evaluations": options.evaluations,
    }
    lines = [
        _compared(chosen, kind, spaces)
        for kind in COLUMNS
        for spaces in [*([name] for name in names), names]
    ]
    publish("launch_features", [setting, *lines], save=options.save)


if __name__ == "__main__":
    main()
