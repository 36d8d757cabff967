"""How good are the tables of `tune` on sizes between those that were measured?

    python -m bench.gpu.table_regret [--save] [--gpu h200] [--users 100] [--seed 1]

Users are drawn from the recorded times of grids (bench.gpu.table_users). The product's own code
makes a table from each one's workloads, and the kernel that the table picks on the other cells of
its region is compared with the fastest of its kernels there, and with PyTorch. The tables are:

- `alone`: learned from the measured workloads alone, with limits at geometric means;
- `between`: also from sizes between them, whose times are interpolated;
- `waves`: with the waves of blocks in these times, and counts of blocks in the rules, as `tune`
  makes it where no library was timed;
- `library`: the same, where PyTorch's time on the workloads is known, too.

Each result is a mean over users; `regret`, `worst` and `of_library` are geometric. A cell on which
a table picks a kernel that was not timed there is left out for all tables (`untimed`).
`left_out_foretells` is the regret that the table `waves` states by leaving each workload out, and
`then_seen` the one on the later cells, of the same users. Needs no GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, log
from statistics import fmean

from bench.command_line import add_save, script_parser
from bench.gpu.measured_gpu import add_gpu
from bench.gpu.table_users import SORTS, Cell, User, groups, users
from bench.results import Row, read_result, write_result
from greenfast.search.dispatch.build import (
    GroupTimes,
    Selection,
    TimedWorkload,
    dispatch_group,
    select,
)
from greenfast.search.dispatch.cover import Measured
from greenfast.search.dispatch.learn import Shape, learn
from greenfast.search.dispatch.table import LIBRARY
from greenfast.search.dispatch.within import DEFAULT_WITHIN_PERCENT

SHARE = DEFAULT_WITHIN_PERCENT / 100
DTYPES = ("bf16", "fp16")
TABLES = ("alone", "between", "waves", "library")
BY_FAR = 1.05  # of the library's time
FORETOLD = 40  # users of each sort, whose workloads are left out in turn


@dataclass(frozen=True)
class Seen:
    """What a user sees of a table on the cells that it calls later."""

    rules: int
    kernels: int
    ratios: tuple[
        float, ...
    ]  # to the fastest of the user's kernels, or the library where it is known
    of_library: tuple[float, ...]


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    add_gpu(parser)
    parser.add_argument("--users", type=int, default=100, help="of each sort and type")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows = []
    for kernel, sorts in SORTS.items():
        for dtype in DTYPES:
            some = groups(kernel, dtype, options.gpu)
            for name, sort in sorts.items():
                drawn = list(users(some, sort, options.users, f"{options.seed} {name}"))
                if drawn:
                    rows.append({"kernel": kernel, "dtype": dtype, "users": name, **result(drawn)})
                    print(rows[-1], flush=True)
    if options.save:
        measured = read_result(f"{options.gpu}/runtime_grid")["environment"]
        environment = {name: measured[name] for name in ("date", "gpu", "torch")}
        value = {"environment": environment, "seed": options.seed, "rows": rows}
        write_result(f"{options.gpu}/table_regret", value)


def result(drawn: list[User]) -> Row:
    seen: dict[str, list[Seen]] = defaultdict(list)
    counts: dict[str, list[int]] = defaultdict(list)
    foretold: list[tuple[float, float]] = []
    for user in drawn:
        selections = {name: selection(user, name) for name in TABLES}
        cells = [cell for cell in user.later if is_timed(cell, selections)]
        counts["untimed"].append(len(user.later) - len(cells))
        if not cells:
            continue
        for name, each in selections.items():
            seen[name].append(outcome(user, each, cells, has_library=name == "library"))
        for name, count in (
            ("workloads", len(user.workloads)),
            ("candidates", len(user.kernels)),
            ("cells", len(cells)),
        ):
            counts[name].append(count)
        if len(foretold) < FORETOLD:
            regret = dispatch_group(times_of(user, "waves"), SHARE).regret
            assert regret is not None  # a user has several workloads
            foretold.append((log(regret.geomean), mean_log(seen["waves"][-1].ratios)))
    return {
        "number": len(seen[TABLES[0]]),
        **{name: round(fmean(counts[name]), 1) for name in ("workloads", "candidates", "cells")},
        "untimed": sum(counts["untimed"]),
        "left_out_foretells": round(exp(fmean(pair[0] for pair in foretold)), 4),
        "then_seen": round(exp(fmean(pair[1] for pair in foretold)), 4),
        "tables": {name: summary(each) for name, each in seen.items()},
    }


def summary(seen: list[Seen]) -> Row:
    return {
        "kernels": round(fmean(each.kernels for each in seen), 2),
        "rules": round(fmean(each.rules for each in seen), 2),
        "regret": round(exp(fmean(mean_log(each.ratios) for each in seen)), 4),
        "worst": round(exp(fmean(log(max(each.ratios)) for each in seen)), 3),
        "worst_of_all": round(max(max(each.ratios) for each in seen), 2),
        "of_library": round(exp(fmean(mean_log(each.of_library) for each in seen)), 4),
        "slower": round(fmean(part_above(each, 1.0) for each in seen), 4),
        "slower_by_far": round(fmean(part_above(each, BY_FAR) for each in seen), 4),
    }


def part_above(seen: Seen, ratio: float) -> float:
    return fmean(each > ratio for each in seen.of_library)


def mean_log(ratios: tuple[float, ...]) -> float:
    return fmean(map(log, ratios))


# ---- tables ----


def times_of(user: User, table: str) -> GroupTimes:
    """What the product knows of a user."""
    has_library = table == "library"
    return GroupTimes(
        (),
        tuple(
            TimedWorkload(
                str(number),
                (),
                cell.sizes,
                1.0,
                library_us=cell.library_us if has_library else None,
            )
            for number, cell in enumerate(user.workloads)
        ),
        tuple(
            Measured(label, tuple(cell.times_us[label] for cell in user.workloads))
            for label in user.kernels
        ),
        user.group.waves if table in ("waves", "library") else without_waves,
    )


def without_waves(label: str) -> None:
    """As the product has it for kernels whose launches it does not know."""


def selection(user: User, table: str) -> Selection:
    times = times_of(user, table)
    chosen = select(times, SHARE)
    return chosen if table != "alone" else replace(chosen, rules=rules_alone(times, chosen))


def rules_alone(times: GroupTimes, chosen: Selection) -> tuple:
    shapes = [
        Shape(
            workload.sizes,
            1.0,
            {kernel.name: kernel.times_us[at] for kernel in chosen.kernels},
            times.best_us[at],
        )
        for at, workload in enumerate(times.workloads)
    ]
    return learn(shapes, SHARE)


def is_timed(cell: Cell, selections: Mapping[str, Selection]) -> bool:
    picks = (each.pick(cell.sizes) for each in selections.values())
    return all(pick == LIBRARY or pick in cell.times_us for pick in picks)


def outcome(user: User, chosen: Selection, cells: list[Cell], *, has_library: bool) -> Seen:
    ratios, of_library = [], []
    for cell in cells:
        times = {label: us for label, us in cell.times_us.items() if label in user.kernels}
        if has_library:
            times[LIBRARY] = cell.library_us
        taken = times[chosen.pick(cell.sizes)]
        ratios.append(taken / min(times.values()))
        of_library.append(taken / cell.library_us)
    return Seen(len(chosen.rules), len(chosen.kernels), tuple(ratios), tuple(of_library))


if __name__ == "__main__":
    main()
