"""A search as requested (SearchRequest, optional fields) and as run (SearchPlan, complete)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from greenfast.search.errors import UsageError, unknown_name
from greenfast.search.kernels.catalogue import Catalogue, require_code
from greenfast.search.kernels.identity import kernel_identity
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workload_files import MOST_WORKLOADS
from greenfast.search.kernels.workloads import Items, Workload, WorkloadValues
from greenfast.search.loop.limits import require_memory
from greenfast.search.loop.objectives import (
    modelled_of,
    objectives_of,
    population_of,
    require_conditions,
)
from greenfast.search.loop.settings import (
    expected_gain_of,
    gate_limits_of,
    min_gain_of,
    mode_of,
    name_of,
    note_of,
    seconds_of,
    seed_of,
    trials_of,
    workload_weights,
)
from greenfast.search.loop.spending import gpu_budget
from greenfast.search.loop.stopping import bound_percent_of, no_gain_of
from greenfast.search.loop.usable_templates import usable_templates
from greenfast.search.space.candidate import Candidate
from greenfast.search.strategies import DEFAULT_STRATEGY, STRATEGIES
from greenfast.search.strategies.objectives import TIME
from greenfast.search.strategies.prior import History
from greenfast.search.targets import check_target_name
from greenfast.search.targets.base import GateLimits
from greenfast.search.targets.replay import on_record, require_recorded

DEFAULT_TARGET = "emulator:h200"
NO_BASELINE = "none"
LARGEST_SECRET = 2**53  # which every reader of JSON holds exactly
CHAMPION = "champion"  # the baseline is the champion of the search's scope


@dataclass(frozen=True)
class SearchRequest:
    """One request; everything but the kernel has a default."""

    kernel: str
    name: str | None = None
    workloads: tuple[str | WorkloadValues, ...] | None = None
    templates: tuple[str, ...] | None = None
    target: str | None = None
    strategy: str | None = None
    trials: int | None = None
    seconds: float | None = None
    seed: int | None = None
    baseline: str | None = None  # template:preset, "champion", or "none"
    min_gain: float | None = None  # a share: 0.02 asks for 2 % less time
    confirm: bool = True  # where times are measured, time the winner again in fresh processes
    mode: str | None = None  # how measured times find the caches: one of settings.MODES
    gates: dict[str, dict[str, Any]] = field(default_factory=dict)
    weights: tuple[float, ...] | None = None  # of `workloads`, in their order; default: all 1
    # For a tuning: how close to the best its kernels are; None: not part of a tuning.
    within_percent: float | None = None
    reuse: bool = True  # reuse the verdicts of searches of the same scope
    hypothesis: str = ""  # given by a person: what the search should show
    expected_gain: float | None = None  # a share of the baseline's time
    cost: str = ""  # of trying, in the person's own words
    no_gain: int | None = None  # end after so many trials without a better candidate
    bound_percent: float | None = None  # end when the best is this close to the physical bound
    cold: bool = False  # begin without presets, history or candidates of other scopes
    objectives: tuple[str, ...] | None = None  # of strategies/objectives.py; default: time
    population: int | None = None  # of a strategy that has one
    gpu_seconds: float | None = None  # begin no trial once GPUs were occupied for so long
    modelled: int | None = None  # points of each template whose times the emulator models


@dataclass(frozen=True)
class Neighbour:
    """The best candidate of another scope, and the name of that scope."""

    candidate: Candidate
    scope: str
    outcomes: str = ""  # of its template there (strategies/prior.py), for strategies that use them

    @property
    def history(self) -> History | None:
        return History.read(self.candidate.template, self.outcomes) if self.outcomes else None


@dataclass(frozen=True)
class SearchPlan:
    """A complete request. Code outside app/ never handles a missing setting."""

    name: str
    kernel: str
    kernel_digest: str
    workloads: tuple[str, ...]
    templates: tuple[str, ...]
    target: str
    strategy: str
    trials: int | None  # at least one of trials, seconds and gpu_seconds is set
    seconds: float | None
    seed: int
    baseline: str
    min_gain: float
    limits: GateLimits
    window: int  # candidates in flight; part of the plan, so that a search repeats
    compiled: Items = ()  # compile-time dims and options, the same for all workloads
    champion: Candidate | None = None  # the baseline, when it is no preset
    confirm: bool = True
    mode: str = "auto"  # of measured times; modes are never compared
    shapes: tuple[
        Items, ...
    ] = ()  # dims and options of each workload; plans of earlier versions hold none
    # Sizes of the drawn cases follow from it (oracle/drawn.py). None: a plan of an earlier version,
    # which resumes on the cases that it began with.
    sizes_secret: int | None = None
    # How much each workload counts in the geometric mean; empty: all the same.
    weights: tuple[float, ...] = ()
    # Of a tuning: the kernels that serve its workloads are judged at the end.
    within_percent: float | None = None
    # The only candidate beside the baseline, instead of a strategy's (submitted.py).
    submitted: Candidate | None = None
    reuse: bool = True  # verdicts of earlier searches of the same scope are repeated
    hypothesis: str = ""
    expected_gain: float | None = None
    cost: str = ""
    no_gain: int | None = None
    bound_percent: float | None = None
    cold: bool = False
    neighbours: tuple[Neighbour, ...] = ()  # the best of other scopes, tried first
    objectives: tuple[str, ...] = (TIME,)
    population: int | None = None
    gpu_seconds: float | None = None
    # Points of each template that idle cores model for the strategy (modelling.py); plans of
    # earlier versions: none.
    modelled: int = 0


ChampionOf = Callable[
    [SearchPlan], tuple[str, Candidate] | None
]  # its name and point, in the plan's scope
NeighboursOf = Callable[[SearchPlan], tuple[Neighbour, ...]]


def make_plan(
    request: SearchRequest,
    catalogue: Catalogue,
    *,
    window: int = 2,
    champion_of: ChampionOf = lambda plan: None,
    neighbours_of: NeighboursOf = lambda plan: (),
) -> SearchPlan:
    """The complete plan; UsageError or SpecError, with the known choices, for one that cannot run.

    Where times are measured, the default baseline is the champion of the plan's scope.
    """
    kernel = catalogue.kernel(request.kernel)
    target = request.target or DEFAULT_TARGET
    family, which = check_target_name(target)
    if request.workloads is not None:
        names = tuple(each.name for each in workloads_of(request, kernel))
        request = replace(request, workloads=names)
    if family == "replay":
        request = on_record(which, request, kernel, catalogue.include_dirs)
    else:
        require_code(kernel)
    strategy = strategy_of(request.strategy)
    objectives = objectives_of(request.objectives, strategy)
    if family == "replay":
        require_recorded(which, objectives)
    plan = _complete(request, kernel, target, strategy, objectives, window)
    require_conditions(strategy, map(kernel.template, plan.templates))
    if not request.cold and family != "replay":
        plan = replace(plan, neighbours=neighbours_of(plan))
    by_default = request.baseline is None and family == "cuda" and not request.cold
    if request.baseline == CHAMPION or by_default:
        return _against_champion(plan, champion_of(plan), required=request.baseline == CHAMPION)
    return plan


def _complete(
    request: SearchRequest,
    kernel: KernelSpec,
    target: str,
    strategy: str,
    objectives: tuple[str, ...],
    window: int,
) -> SearchPlan:
    """Every setting of the request checked, or in its place the default."""
    workloads = workloads_of(request, kernel)
    names = tuple(workload.name for workload in workloads)
    compiled = shared_compile_time(kernel, workloads)
    for workload in workloads:
        require_memory(kernel, workload)
    baseline = baseline_of(request.baseline, kernel, workloads[0])
    gpu_seconds = gpu_budget(request.gpu_seconds, target, check_target_name(target)[0])
    trials = trials_of(request.trials, request.seconds, request.gpu_seconds)
    return SearchPlan(
        name=name_of(request.name, " ".join((kernel.name, *names))),
        kernel=kernel.name,
        kernel_digest=kernel_identity(kernel),
        workloads=names,
        templates=usable_templates(kernel, workloads, target, strategy, request.templates),
        target=target,
        strategy=strategy,
        trials=trials,
        seconds=seconds_of(request.seconds),
        seed=seed_of(request.seed),
        baseline=baseline,
        min_gain=min_gain_of(request.min_gain),
        limits=gate_limits_of(request.gates),
        window=window,
        compiled=compiled,
        confirm=request.confirm,
        mode=mode_of(request.mode),
        shapes=tuple(workload.dims + workload.options for workload in workloads),
        sizes_secret=secrets.randbelow(LARGEST_SECRET),
        weights=workload_weights(request.weights, len(workloads)),
        within_percent=request.within_percent,
        reuse=request.reuse and not request.cold,
        hypothesis=note_of("hypothesis", request.hypothesis),
        expected_gain=expected_gain_of(request.expected_gain),
        cost=note_of("cost", request.cost),
        no_gain=no_gain_of(request.no_gain),
        bound_percent=bound_percent_of(request.bound_percent),
        cold=request.cold,
        objectives=objectives,
        population=population_of(request.population, strategy, trials),
        gpu_seconds=gpu_seconds,
        modelled=modelled_of(request.modelled, strategy, check_target_name(target)[0]),
    )


def workloads_of(request: SearchRequest, kernel: KernelSpec) -> list[Workload]:
    """The workloads of a request, or the kernel's first."""
    if len(request.workloads or ()) > MOST_WORKLOADS:
        raise UsageError(
            f"a search has 1 to {MOST_WORKLOADS:,} workloads; got {len(request.workloads or ()):,}",
            code="bad_workloads",
        )
    return [kernel.workload(name) for name in request.workloads or default_workloads(kernel)]


def strategy_of(given: str | None) -> str:
    strategy = given or DEFAULT_STRATEGY
    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, STRATEGIES)
    return strategy


def baseline_of(given: str | None, kernel: KernelSpec, workload: Workload) -> str:
    """The preset that candidates are compared with; a champion takes its place later."""
    baseline = _default_baseline(kernel, workload) if given in (None, CHAMPION) else str(given)
    if baseline != NO_BASELINE:
        kernel.preset(baseline)[0].check_supports(workload)
    return baseline


def _default_baseline(kernel: KernelSpec, workload: Workload) -> str:
    """The kernel's own baseline, or the first preset whose template serves the workload."""
    presets = [
        kernel.baseline,
        *(
            f"{template.name}:{preset.name}"
            for template in kernel.templates
            for preset in template.presets
        ),
    ]
    compiled = dict(workload.compile_time(kernel))
    for preset in presets:
        template = kernel.preset(preset)[0]
        if all(compiled[name] in values for name, values in template.supports if name in compiled):
            return preset
    return kernel.baseline


def _against_champion(
    plan: SearchPlan, champion: tuple[str, Candidate] | None, *, required: bool
) -> SearchPlan:
    """The plan with the champion, as it is now, for its baseline."""
    if champion is not None:
        return replace(plan, baseline=champion[0], champion=champion[1])
    if required:
        raise UsageError(
            f"there is no champion of kernel {plan.kernel} for {', '.join(plan.workloads)} "
            f"on {plan.target} with these files and this toolchain",
            code="no_champion",
            mend=f"give no baseline to compare with the default, {plan.baseline}; "
            "`greenfast champions` lists the champions",
        )
    return plan


def default_workloads(kernel: KernelSpec) -> tuple[str, ...]:
    """The kernel's first workload, for a request that names none."""
    if not kernel.workloads:
        raise UsageError(f"kernel {kernel.name} has no workloads", code="no_workloads")
    return (kernel.workloads[0].name,)


def shared_compile_time(kernel: KernelSpec, workloads: list[Workload]) -> Items:
    """The compile-time values that all workloads share; UsageError if they differ."""
    first = workloads[0].compile_time(kernel)
    for other in workloads[1:]:
        if other.compile_time(kernel) != first:
            raise UsageError(
                f"workloads {workloads[0].name} and {other.name} differ in compile-time values, "
                "so one kernel cannot serve both",
                code="mixed_workloads",
                mend="start a search for each, or a tuning, which does so",
            )
    if len({workload.name for workload in workloads}) != len(workloads):
        raise UsageError("a workload is named twice", code="repeated_workload")
    return first
