"""The options of `greenfast search`."""

from __future__ import annotations

from typing import Annotated

import typer

from greenfast.search.strategies import (
    DEFAULT_MODELLED,
    DEFAULT_STRATEGY,
    STRATEGIES,
    WITH_MODELLED_TIMES,
)
from greenfast.search.strategies.objectives import OBJECTIVES

KernelArgument = Annotated[
    str | None,
    typer.Argument(metavar="KERNEL", help="A kernel; `greenfast templates` lists them."),
]
TemplateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--template",
        metavar="NAME",
        help="A template to search; may be repeated. [default: all that support the workloads]",
    ),
]
TrialsOption = Annotated[
    int | None,
    typer.Option(
        "--trials",
        metavar="N",
        help="Try at most N candidates. [default: 40, or none with --seconds or --gpu-seconds]",
    ),
]
SecondsOption = Annotated[
    float | None, typer.Option("--seconds", metavar="S", help="Start no trial after S seconds.")
]
GpuSecondsOption = Annotated[
    float | None,
    typer.Option(
        "--gpu-seconds",
        metavar="N",
        help="Start no trial after the GPUs have worked for N seconds, summed over all GPUs.",
    ),
]
NoGainOption = Annotated[
    int | None,
    typer.Option(
        "--no-gain", metavar="N", help="Stop after N trials without a faster correct candidate."
    ),
]
WithinOption = Annotated[
    float | None,
    typer.Option(
        "--within",
        metavar="PERCENT",
        help="Stop when the best candidate is this close to the physical bound of its work.",
    ),
]
ColdOption = Annotated[
    bool,
    typer.Option(
        "--cold",
        help="Start without presets, earlier verdicts, champions, and the best candidates of other "
        "shapes, GPUs and toolchains.",
    ),
]
StrategyOption = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help=f"How candidates are chosen: {', '.join(sorted(STRATEGIES))}. "
        f"[default: {DEFAULT_STRATEGY}]",
    ),
]
ObjectivesOption = Annotated[
    str | None,
    typer.Option(
        "--objectives",
        metavar="NAMES",
        help=f"What the strategy minimises, among {', '.join(OBJECTIVES)}. The best is "
        "always the fastest correct candidate; `greenfast pareto` shows the others. "
        "[default: time]",
    ),
]
PopulationOption = Annotated[
    int | None,
    typer.Option(
        "--population",
        metavar="N",
        help="The population of a strategy that has one. [default: the strategy's own]",
    ),
]
ModelledOption = Annotated[
    int | None,
    typer.Option(
        "--modelled",
        metavar="N",
        help="On a GPU: let the emulator model the times of N points of each template on idle "
        f"cores; {', '.join(sorted(WITH_MODELLED_TIMES))} learn from them. [default: "
        f"{DEFAULT_MODELLED}]",
    ),
]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="CANDIDATE",
        help="The candidate to compare with: TEMPLATE:PRESET, champion, or none. "
        "[default: the champion where times are measured, else the kernel's own]",
    ),
]
MinGainOption = Annotated[
    float | None,
    typer.Option(
        "--min-gain",
        metavar="SHARE",
        help="The share of the baseline's time that a candidate must save. [default: 0.01]",
    ),
]
ModeOption = Annotated[
    str | None,
    typer.Option(
        "--mode",
        metavar="MODE",
        help="The state of the caches for measured times: hot (data in L2), cold (data in memory), "
        "or auto (by the workload's size). [default: auto]",
    ),
]
ConfirmOption = Annotated[
    bool,
    typer.Option(
        "--confirm/--no-confirm",
        help="On a GPU, time the winner again in fresh processes.",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="TEXT", help="The name in lists. [default: kernel and workloads]"
    ),
]
MaxRegistersOption = Annotated[
    int | None,
    typer.Option(
        "--max-registers",
        metavar="N",
        min=0,
        help="Reject candidates with more registers per thread.",
    ),
]
MaxSpillsOption = Annotated[
    int | None,
    typer.Option(
        "--max-spill-bytes",
        metavar="N",
        min=-1,
        help="Reject candidates that spill more bytes; -1: no limit. [default: 0]",
    ),
]
MaxSmemOption = Annotated[
    int | None,
    typer.Option(
        "--max-smem-bytes",
        metavar="N",
        min=0,
        help="Reject candidates with more shared memory per block.",
    ),
]
ExtendOption = Annotated[
    int | None,
    typer.Option(
        "--extend",
        metavar="N",
        min=1,
        help="With --resume: try N more candidates, even if the search is completed. Its strategy "
        "continues from its state.",
    ),
]
FreshOption = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Evaluate every candidate, even if a search of the same scope has recorded it.",
    ),
]
HypothesisOption = Annotated[
    str,
    typer.Option(
        "--hypothesis",
        metavar="TEXT",
        help="What you expect; the report compares it with the result.",
    ),
]
ExpectedGainOption = Annotated[
    float | None,
    typer.Option(
        "--expected-gain",
        metavar="SHARE",
        help="The gain that you expect, as a share of the baseline's time, such as 0.1.",
    ),
]
CostOption = Annotated[
    str,
    typer.Option("--cost", metavar="TEXT", help="The cost of trying it, such as '2 days'."),
]
AblationOption = Annotated[
    float | None,
    typer.Option(
        "--ablation-seconds",
        metavar="S",
        min=0.0,
        help="Time for the winner's ablation after the search; 0: none. By default 30 s where the "
        "winner is confirmed by measured times.",
    ),
]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="SEARCH_ID",
        help="Continue a paused or interrupted search here; `last` is the newest.",
    ),
]
