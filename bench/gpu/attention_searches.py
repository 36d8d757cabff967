"""Searches for the results table of docs/attention.md, on a GPU, as many as the time allows.

    python -m bench.gpu.attention_searches FOLDER [--minutes 8] [--trials 300]
                                           [--only WORKLOAD ...] [--again] [--threads]

Each workload is searched over both tensor-core templates, L2 hot, as `greenfast search` does it:
gates, safety of contenders, confirmation in fresh processes, peers in turns. A confirmed winner is
promoted to champion. The next run continues where this one stopped.

FOLDER/data is the database and cache; an interrupted search is paused there and resumed by the next
run. FOLDER/attention_searches/WORKLOAD.json.gz holds a finished search with its trials,
FOLDER/champions.json.gz the champions, FOLDER/attention_winners.json the command that runs each
winner again. A workload is done when its file is in FOLDER or in bench/results/h200, names a
champion, and was made with the kernel's present files. Workloads that were never searched go first.
--threads records where the threads spend their time.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.command_line import require_gpu, script_parser
from bench.environment import target_environment
from bench.gpu.attention_floors import floors, profiled
from bench.gpu.attention_rows import (
    KERNEL,
    PUBLISHED,
    WORKLOADS,
    finished,
    row_of,
    save,
    save_champions,
)
from bench.results import Row
from bench.speed.thread_sampler import ThreadSampler
from greenfast.app.service.worker import Left, Stop, run_claim, worker_name
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.db.store import Store
from greenfast.search.digest import digest
from greenfast.search.kernels.identity import kernel_identity
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Workload
from greenfast.search.loop.plan import SearchPlan, SearchRequest
from greenfast.search.loop.sink import Ended
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.verdict import Trial

TEMPLATES = ("wmma", "mma")
TRIALS, MODE, SEED = 300, "hot", 5
# On long sequences the default baseline is five times slower than the best, and most of a trial
# would be spent timing it.
LONG_BASELINE, LONG_WORK_FLOP = "mma:fa2", 1e11
SHORTEST_SEARCH_S = 45.0  # with less time left, no search is started
TRIALS_PER_LINE = 50
LIVE = ("queued", "running", "paused")


def main() -> None:
    options = _options()
    require_gpu()
    end = time.monotonic() + 60.0 * options.minutes
    services = Services(Settings.from_environment({"GREENFAST_DATA": str(options.out / "data")}))
    stop = Stop(services.settings.drain_s, services.interrupt)
    alarm = threading.Timer(60.0 * options.minutes, stop.ask)
    alarm.daemon = True
    alarm.start()
    try:
        for name in pending(options, *digests_of(services.catalogue.kernel(KERNEL))):
            if end - time.monotonic() < SHORTEST_SEARCH_S:
                print(f"{name}: no time left", flush=True)
                break
            began = time.monotonic()
            row = searched(name, services, options, stop)
            if row is not None:
                environment = target_environment(services.toolchain, services.target("cuda:0"))
                save(row, environment, options.out)
                save_champions(services.store, environment, options.out)
            print(f"{name}: {summary(row)} ({time.monotonic() - began:.0f} s)", flush=True)
    finally:
        alarm.cancel()
        services.close()


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--again", action="store_true", help="also workloads that are done")
    parser.add_argument(
        "--threads", action="store_true", help="record where the threads spend time"
    )
    return parser.parse_args()


def digests_of(kernel: KernelSpec) -> tuple[str, str]:
    """The kernel's identity, and the digest that rows of earlier versions hold instead."""
    return kernel_identity(kernel), digest(kernel)


def pending(options: argparse.Namespace, *kernel_digests: str) -> list[str]:
    """Workloads that are not done.

    Those that were never searched come first, then those that were searched with other files than
    the present ones or ended without a champion.
    """
    known = {row["workload"]: row for row in (*finished(PUBLISHED), *finished(options.out))}
    done = {
        name
        for name, row in known.items()
        if row["run"]["kernel_digest"] in kernel_digests and row.get("champion")
    }
    left = [name for name in options.only if options.again or name not in done]
    return sorted(left, key=lambda name: (name in known, WORKLOADS.index(name)))


class Progress:
    """Prints a line every so many trials."""

    def __init__(self, name: str) -> None:
        self.name, self.began, self.trials = name, time.monotonic(), 0

    def on_trials(self, trials: Sequence[Trial]) -> None:
        lines = self.trials // TRIALS_PER_LINE
        self.trials += len(trials)
        if self.trials // TRIALS_PER_LINE > lines:
            rate = self.trials / (time.monotonic() - self.began) * 60
            print(f"{self.name}: {self.trials} trials, {rate:.0f} a minute", flush=True)


def searched(name: str, services: Services, options: argparse.Namespace, stop: Stop) -> Row | None:
    """The row of one workload; None if the search failed or the time ran out before its end."""
    store, plan = services.store, plan_of(name, services, options.trials)
    search_id = unfinished(store, plan) or store.submit(plan).id
    store.request_control(search_id, "resume")  # a queued search stays queued
    claim = store.claim(worker_name(), services.settings.lease_s, search_id)
    progress, sampler = Progress(name), ThreadSampler()
    if options.threads:
        sampler.start()
    report = run_claim(services, claim, stop, progress.on_trials)
    threads = sampler.result() if options.threads else None
    if report.left is Left.STOPPED:
        store.finish(claim, Ended.PAUSED, "interrupted")
    if report.ended is not Ended.COMPLETED:
        print(
            f"{name}: {report.left} {report.ended}, {progress.trials} trials: {report.why}",
            flush=True,
        )
        return None
    kernel = services.catalogue.kernel(KERNEL)
    workload = kernel.workload(name)
    row = row_of(store, search_id, workload)
    row["run"] |= {"why": report.why, **({"threads_in": threads} if threads else {})}
    template = kernel.template(row["winner"]["template"])
    parameters = complete_parameters(template, row["winner"]["parameters"], plan.compiled)
    winner = Candidate(kernel.name, template.name, parameters, Origin(OriginKind.SEEDED))
    context = services.context(plan)
    row["floor"] = floors(kernel, winner, workload, context.target.device)
    row["profile"] = profiled(context, winner, workload)
    return row


def plan_of(name: str, services: Services, trials: int) -> SearchPlan:
    kernel = services.catalogue.kernel(KERNEL)
    workload = kernel.workload(name)
    flop = kernel.work_flop.amount(kernel.values_of(dict(workload.dims), dict(workload.options)))
    templates = tuple(
        template for template in TEMPLATES if serves(kernel.template(template), workload)
    )
    return services.plan(
        SearchRequest(
            KERNEL,
            name=name,
            workloads=(name,),
            templates=templates,
            target="cuda:0",
            strategy="tpe",
            trials=trials,
            seed=SEED,
            mode=MODE,
            baseline=LONG_BASELINE if flop > LONG_WORK_FLOP else kernel.baseline,
        )
    )


def unfinished(store: Store, plan: SearchPlan) -> str | None:
    """The interrupted search with exactly this plan, if there is one."""
    return next(
        (
            item.id
            for item in store.searches(limit=200).items
            if item.name == plan.name and item.status in LIVE and store.plan(item.id) == plan
        ),
        None,
    )


def serves(template: TemplateSpec, workload: Workload) -> bool:
    values_of = {**dict(workload.dims), **dict(workload.options)}
    return all(values_of[name] in values for name, values in template.supports)


def summary(row: Row | None) -> str:
    """One line about a finished search; of an unfinished one, that it will be continued."""
    if row is None:
        return "to be continued in the next run"
    ratio = row["ratio_to_best_peer"]
    beside = f"{ratio:.3f} {row['interval']} of {row['best_peer']}" if ratio else "no peer"
    return (
        f"{row['time_median_us']:.2f} us, {beside}, "
        f"{'champion' if row['champion'] else 'NOT confirmed'}, "
        f"{row['winner']['template']} {row['winner']['parameters']}, {row['verdicts']}, "
        f"{row['run']['trials_per_minute']} trials/min, floor {row['floor']}"
    )


if __name__ == "__main__":
    main()
