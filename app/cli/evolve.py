"""`greenfast evolve`: a proposer writes sources, greenfast judges them and chooses parents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from greenfast.app.cli.evolve_proposer import Proposer
from greenfast.app.cli.options import AsJson, Kernel, Target
from greenfast.app.cli.output import microseconds, print_json
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say
from greenfast.search.oracle.cases import LARGEST_SEED

if TYPE_CHECKING:
    from greenfast.app.cli.evolve_loop import Event, Evolution, Individual, Order
    from greenfast.app.wiring import Services

Propose = Annotated[
    str,
    typer.Option(
        "--propose",
        metavar="CMD",
        help="A program that reads a JSON prompt on stdin and prints a source, or JSON with "
        "source, entry, launch and hypothesis.",
    ),
]
Trials = Annotated[
    int, typer.Option("--trials", metavar="N", min=1, max=100_000, help="Judge at most N sources.")
]
Run = Annotated[
    str, typer.Option("--run", metavar="NAME", help="The run to begin, or to continue.")
]
Deadline = Annotated[
    float,
    typer.Option("--deadline", metavar="S", min=0.1, help="Seconds that a proposal may take."),
]
Workload = Annotated[
    str | None,
    typer.Option(
        "--workload",
        metavar="NAME|VALUES",
        help="The workload, by name or values. [default: the kernel's first]",
    ),
]
RunSeed = Annotated[
    int,
    typer.Option(
        "--seed", metavar="N", min=0, max=LARGEST_SEED, help="The seed of the choice of parents."
    ),
]


def evolve(
    kernel: Kernel,
    propose: Propose,
    trials: Trials = 20,
    run: Run = "evolve",
    workload: Workload = None,
    target: Target = None,
    deadline: Deadline = 120.0,
    seed: RunSeed = 0,
    as_json: AsJson = False,
) -> int:
    """Let your program write sources, and keep the fastest correct one.

    greenfast keeps the population, runs the gates and counts the budget. The first trial is the
    best known source. Parents are chosen by tournaments among correct sources: the faster one
    wins. On an emulator these times are modelled. Every source is stored; `--run NAME` continues a
    run. `python -m greenfast.propose_mutation` is a proposer that uses no language model.

    Exit codes: 0 a correct source is known, 1 none is, 2 a mistake or a proposer that fails 10
    times in a row, 3 a fault, 130 Ctrl-C.
    """
    from greenfast.app.cli.evolve_loop import Evolution
    from greenfast.app.cli.judge_here import judged_here
    from greenfast.app.cli.search_run import EXIT_INTERRUPTED
    from greenfast.app.service.worker import Stop
    from greenfast.search.loop.plan import DEFAULT_TARGET

    with opened_services() as services:
        stop = Stop(services.settings.drain_s, on_force=services.interrupt)
        stop.on_signals()
        order = _order(services, kernel, run, trials, workload, target or DEFAULT_TARGET, seed)
        proposer = Proposer(propose, deadline, lambda: stop.requested)
        evolution = Evolution(
            services,
            order,
            proposer.propose,
            lambda request, name: judged_here(services, request, stop, name),
            lambda: stop.requested,
        )
        for event in evolution.run():
            say(_line(event, order))
    best = _best(evolution)
    if as_json:
        print_json(_report(evolution, best))
    else:
        for line in _summary(evolution, best):
            print(line)
    if stop.requested:
        return EXIT_INTERRUPTED
    return 0 if best is not None else 1


def _order(
    services: Services,
    kernel: str,
    run: str,
    trials: int,
    workload: str | None,
    target: str,
    seed: int,
) -> Order:
    from greenfast.app.cli.evolve_loop import Order
    from greenfast.search.loop.plan import default_workloads

    spec = services.catalogue.kernel(kernel)
    name = spec.workload(workload or default_workloads(spec)[0]).name
    return Order(spec.name, run, trials, name, target, seed)


def _best(evolution: Evolution) -> Individual | None:
    correct = [each for each in evolution.individuals if each.is_correct]
    return min(correct, key=lambda each: each.time_us, default=None)


def _line(event: Event, order: Order) -> str:
    if event.individual is None:
        return f"no proposal for trial {event.number}/{order.trials}: {event.failure}"
    report = event.individual.report
    return f"{event.number}/{order.trials} {_in_words(report)}"


def _in_words(report: dict[str, Any]) -> str:
    time = microseconds(report["time_median_us"], report["time_kind"])
    wrong = f" ({report['stage']}: {report['reason']})" if report["stage"] else ""
    return f"{report['verdict']}{wrong}, {time}: {report['id']}/{report['trial']}"


def _summary(evolution: Evolution, best: Individual | None) -> list[str]:
    count = len(evolution.individuals)
    if best is None:
        return [f"{count} sources judged, none of them correct"]
    source = (best.report.get("source_digest") or "")[:16]
    lines = [f"{count} sources judged; the fastest correct one: {_in_words(best.report)}"]
    if best.report["time_kind"] != "measured":
        lines.append("its time is modelled, which proves nothing faster")
    return [*lines, f"`greenfast source {source}` prints it"]


def _report(evolution: Evolution, best: Individual | None) -> dict[str, Any]:
    return {
        "run": evolution.order.run,
        "kernel": evolution.order.kernel,
        "workload": evolution.order.workload,
        "target": evolution.order.target,
        "trials": len(evolution.individuals),
        "verdicts": [each.report["verdict"] for each in evolution.individuals],
        "ids": [each.report["id"] for each in evolution.individuals],
        "best": best.report if best is not None else None,
    }
