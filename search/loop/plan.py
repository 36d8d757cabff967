"""A search as requested (SearchRequest, optional fields) and as run (SearchPlan, complete)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from greenfast.search.devices.facts import Device, device, device_names
from greenfast.search.errors import UsageError, unknown_name
from greenfast.search.kernels.catalogue import Catalogue, require_code
from greenfast.search.kernels.identity import kernel_identity
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workload_files import LARGEST_WEIGHT, MOST_WORKLOADS
from greenfast.search.kernels.workloads import Items, Workload, WorkloadValues
from greenfast.search.loop.limits import require_grid, require_memory, require_tensor_maps
from greenfast.search.loop.objectives import objectives_of, population_of, require_conditions
from greenfast.search.loop.spending import gpu_budget
from greenfast.search.loop.stopping import stopping_rules
from greenfast.search.recordings.imported import recorded_space
from greenfast.search.recordings.shelf import find_recording
from greenfast.search.recordings.space import RecordedSpace
from greenfast.search.space.candidate import Candidate, complete_parameters
from greenfast.search.space.space import Space, device_refusal
from greenfast.search.strategies import DEFAULT_STRATEGY, STRATEGIES
from greenfast.search.strategies.objectives import TIME
from greenfast.search.targets import check_target_name
from greenfast.search.targets.base import GateLimits
from greenfast.search.targets.elsewhere import device_elsewhere
from greenfast.search.targets.replay import on_record, require_recorded
from greenfast.search.text import shortened

DEFAULT_TARGET = "emulator:h200"
EXHAUSTIVE = "exhaustive"  # the strategy that lists its spaces
DEFAULT_TRIALS = 40
LARGEST_TRIALS = 1_000_000
LONGEST_NAME = 200
# Refusals of one template, of which another may be spared.
UNUSABLE = ("unsupported_workload", "empty_space", "tensor_map")
LARGEST_SECONDS = 30 * 24 * 3600.0
NO_BASELINE = "none"
# The caches under a measured time: chosen by the workload's size; its data in L2 (hot); its data
# in memory, by a ring of input sets (cold).
MODES = ("auto", "hot", "cold")
LARGEST_SECRET = 2**53  # which every reader of JSON holds exactly
CHAMPION = "champion"  # the baseline is the champion of the search's scope
LONGEST_NOTE = 1_000
GATE_LIMITS = {"ptxas": tuple(limit.name for limit in fields(GateLimits))}


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
    mode: str | None = None  # how measured times find the caches: one of MODES
    gates: dict[str, dict[str, Any]] = field(default_factory=dict)
    weights: tuple[float, ...] | None = None  # of `workloads`, in their order; default: all 1
    # Of a tuning: how close to the best its kernels are; None: the search stands alone.
    within_percent: float | None = None
    reuse: bool = True  # do not evaluate again what a search of the same scope has recorded
    hypothesis: str = ""  # given by a person: what the search should show
    expected_gain: float | None = None  # a share of the baseline's time
    cost: str = ""  # of trying, in the person's own words
    no_gain: int | None = None  # end after so many trials without a better candidate
    bound_percent: float | None = None  # end when the best is this close to the physical bound
    cold: bool = False  # begin without presets, history or candidates of other scopes
    objectives: tuple[str, ...] | None = None  # of strategies/objectives.py; default: time
    population: int | None = None  # of a strategy that has one
    gpu_seconds: float | None = None  # begin no trial once GPUs were occupied for so long


@dataclass(frozen=True)
class Neighbour:
    """The best candidate of another scope, and the name of that scope."""

    candidate: Candidate
    scope: str


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
    # The one candidate beside the baseline, in place of those of a strategy (submitted.py).
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
        if len(request.workloads) > MOST_WORKLOADS:
            raise UsageError(
                f"{len(request.workloads)} workloads",
                code="bad_workloads",
                mend=f"a search has 1 to {MOST_WORKLOADS}",
            )
        names = tuple(kernel.workload(workload).name for workload in request.workloads)
        request = replace(request, workloads=names)
    if family == "replay":
        request = on_record(which, request, kernel, catalogue.include_dirs)
    else:
        require_code(kernel)
    strategy = request.strategy or DEFAULT_STRATEGY
    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, STRATEGIES)
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
    workloads = [kernel.workload(name) for name in request.workloads or default_workloads(kernel)]
    compiled = shared_compile_time(kernel, workloads)
    for workload in workloads:
        require_memory(kernel, workload)
    baseline = _baseline(request, kernel, workloads[0])
    gpu_seconds = gpu_budget(request.gpu_seconds, target, check_target_name(target)[0])
    trials, seconds = _budget(request)
    no_gain, bound_percent = stopping_rules(request.no_gain, request.bound_percent)
    return SearchPlan(
        name=_name(request.name, kernel, workloads),
        kernel=kernel.name,
        kernel_digest=kernel_identity(kernel),
        workloads=tuple(workload.name for workload in workloads),
        templates=_templates(request, kernel, workloads, compiled, target),
        target=target,
        strategy=strategy,
        trials=trials,
        seconds=seconds,
        seed=request.seed if request.seed is not None else secrets.randbelow(2**31),
        baseline=baseline,
        min_gain=_min_gain(request.min_gain),
        limits=_limits(request.gates),
        window=window,
        compiled=compiled,
        confirm=request.confirm,
        mode=_mode(request.mode),
        shapes=tuple(workload.dims + workload.options for workload in workloads),
        sizes_secret=secrets.randbelow(LARGEST_SECRET),
        weights=_weights(request, workloads),
        within_percent=request.within_percent,
        reuse=request.reuse and not request.cold,
        hypothesis=_words("hypothesis", request.hypothesis),
        expected_gain=_expected(request.expected_gain),
        cost=_words("cost", request.cost),
        no_gain=no_gain,
        bound_percent=bound_percent,
        cold=request.cold,
        objectives=objectives,
        population=population_of(request.population, strategy, trials),
        gpu_seconds=gpu_seconds,
    )


def _baseline(request: SearchRequest, kernel: KernelSpec, workload: Workload) -> str:
    """The preset that candidates are compared with; a champion takes its place later."""
    if request.baseline in (None, CHAMPION):
        baseline = _default_baseline(kernel, workload)
    else:
        baseline = str(request.baseline)
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
            mend=f"name no baseline for the default, {plan.baseline}; "
            "`greenfast champions` lists them",
        )
    return plan


def default_workloads(kernel: KernelSpec) -> tuple[str, ...]:
    """The kernel's first workload, for a request that names none."""
    if not kernel.workloads:
        raise UsageError(f"kernel {kernel.name} has no workloads", code="no_workloads")
    return (kernel.workloads[0].name,)


def shared_compile_time(kernel: KernelSpec, workloads: list[Workload]) -> Items:
    """The compile-time values that all workloads share; UsageError where they differ."""
    first = workloads[0].compile_time(kernel)
    for other in workloads[1:]:
        if other.compile_time(kernel) != first:
            raise UsageError(
                f"workloads {workloads[0].name} and {other.name} differ in compile-time values, "
                "so no one kernel serves both",
                code="mixed_workloads",
                mend="start one search for each",
            )
    if len({workload.name for workload in workloads}) != len(workloads):
        raise UsageError("a workload is named twice", code="repeated_workload")
    return first


def target_device(target: str) -> Device:
    """The device whose limits bound the space before a target is opened."""
    family, which = check_target_name(target)
    if family == "emulator":
        return device(which)
    if family == "replay":
        return find_recording(which).heading.device
    if (known := device_elsewhere(target)) is not None:
        return known
    from greenfast.search.targets.cuda import open_device

    return open_device(which).device


def target_space(target: str, template: TemplateSpec, compiled: Items) -> Space:
    """The points that a search on the target can try, before the target is opened."""
    family, which = check_target_name(target)
    if family == "replay":
        return recorded_space(template, compiled, find_recording(which))
    return Space(template, compiled, target_device(target))


def _templates(
    request: SearchRequest,
    kernel: KernelSpec,
    workloads: list[Workload],
    compiled: Items,
    target: str,
) -> tuple[str, ...]:
    names = request.templates or _worthwhile_templates(kernel, workloads)
    if len(set(names)) != len(names):
        raise UsageError("a template is named twice", code="repeated_template")
    usable: list[str] = []
    refusals: list[UsageError] = []
    for name in names:
        try:
            _require_usable(
                kernel, kernel.template(name), workloads, compiled, target, request.strategy
            )
            usable.append(name)
        except UsageError as error:
            if request.templates or error.code not in UNUSABLE:
                raise
            refusals.append(error)
    if not usable:
        empty = next((error for error in refusals if error.code == "empty_space"), None)
        raise empty or UsageError(
            f"no template of kernel {kernel.name} supports workload {workloads[0].name}: "
            + "; ".join(map(str, refusals)),
            code="unsupported_workload",
        )
    return tuple(usable)


def _worthwhile_templates(kernel: KernelSpec, workloads: list[Workload]) -> tuple[str, ...]:
    """The templates that are worth trying on a workload; all of them if none is."""
    names = tuple(
        template.name
        for template in kernel.templates
        if any(template.is_worthwhile(workload) for workload in workloads)
    )
    return names or tuple(template.name for template in kernel.templates)


def _require_usable(
    kernel: KernelSpec,
    template: TemplateSpec,
    workloads: list[Workload],
    compiled: Items,
    target: str,
    strategy: str | None,
) -> None:
    """UsageError for a template that cannot run the workloads; SpecError for a space that is too
    large for a strategy that tries all points."""
    for workload in workloads:
        template.check_supports(workload)
    space = target_space(target, template, compiled)
    point = next(space.each_point(), None)
    if point is None:
        raise UsageError(
            "no parameter values satisfy the constraints of template "
            f"{template.name}: {_why_defaults_fail(space)}",
            code="empty_space",
            mend=_where_it_runs(template, space.device),
        )
    for workload in workloads:
        require_grid(kernel, space.require(point), template, workload)
        for mapped in _with_presets(space, point):
            require_tensor_maps(kernel, space.require(mapped), template, workload)
    if strategy == EXHAUSTIVE and not isinstance(space, RecordedSpace):
        _require_walkable(space.template, space.compiled, space.device)


def _with_presets(space: Space, point: Items) -> tuple[Items, ...]:
    """`point`, and the presets that are valid: between them they take most of the tensor maps."""
    presets = (preset.parameters for preset in space.template.presets)
    complete = (complete_parameters(space.template, dict(each), space.compiled) for each in presets)
    return (point, *(each for each in complete if space.why_not(each) is None))


def _where_it_runs(template: TemplateSpec, refusing: Device) -> str:
    """Targets that run a template which `refusing` does not; empty when that is not the reason."""
    if not device_refusal(template, refusing):
        return ""
    able = [name for name in device_names() if not device_refusal(template, device(name))]
    return "targets that run it: " + ", ".join(f"emulator:{name}" for name in able) if able else ""


@lru_cache(maxsize=32)
def _require_walkable(template: TemplateSpec, compiled: Items, device: Device) -> None:
    """SpecError for a space that is too large to run. The walk is done once for each space."""
    _ = Space(template, compiled, device).points


def _why_defaults_fail(space: Space) -> str:
    """One sentence on why the defaults are outside the space."""
    defaults = tuple((parameter.name, parameter.default) for parameter in space.template.parameters)
    return space.why_not(defaults) or "unknown"


def _budget(request: SearchRequest) -> tuple[int | None, float | None]:
    trials, seconds = request.trials, request.seconds
    if trials is None and seconds is None and request.gpu_seconds is None:
        return DEFAULT_TRIALS, None
    if trials is not None and not 1 <= trials <= LARGEST_TRIALS:
        raise UsageError(
            f"budget.trials must be between 1 and {LARGEST_TRIALS:,}; got {trials}",
            code="bad_budget",
            mend=f"give 1 to {LARGEST_TRIALS:,} trials",
        )
    if seconds is not None and not 0 < seconds <= LARGEST_SECONDS:
        raise UsageError(
            f"budget.seconds must be above 0 and at most {LARGEST_SECONDS:,.0f}; got {seconds:g}",
            code="bad_budget",
            mend="give more than 0 seconds, at most 30 days",
        )
    return trials, seconds


def _weights(request: SearchRequest, workloads: list[Workload]) -> tuple[float, ...]:
    """A weight for each workload; () where all are equal, which changes no mean."""
    weights = request.weights or ()
    if weights and len(weights) != len(workloads):
        raise UsageError(
            f"{len(weights)} weights for {len(workloads)} workloads",
            code="bad_weight",
            mend="give each workload a weight, or none",
        )
    for weight in weights:
        if not 0 < weight <= LARGEST_WEIGHT:
            raise UsageError(
                f"a weight of {weight:g}",
                code="bad_weight",
                mend=f"weights are numbers above 0, at most {LARGEST_WEIGHT:g}",
            )
    return tuple(map(float, weights)) if len(set(weights)) > 1 else ()


def _min_gain(value: float | None) -> float:
    gain = 0.01 if value is None else value
    if not 0 <= gain < 1:
        raise UsageError(
            f"min_gain is {gain:g}", code="bad_min_gain", mend="a share of 0 or more, below 1"
        )
    return gain


def _words(name: str, text: str) -> str:
    """A person's note on a search; UsageError `bad_note` for one that is too long."""
    if len(text) > LONGEST_NOTE or not text.isprintable():
        raise UsageError(
            f"the {name} of a search is at most {LONGEST_NOTE} printable characters",
            code="bad_note",
        )
    return text.strip()


def _expected(gain: float | None) -> float | None:
    if gain is not None and not 0 <= gain < 1:
        raise UsageError(
            f"the expected gain is {gain:g}",
            code="bad_expected_gain",
            mend="a share of the baseline's time of 0 or more, below 1",
        )
    return gain


def _mode(value: str | None) -> str:
    if value is not None and value not in MODES:
        raise unknown_name("mode", value, MODES)
    return value or MODES[0]


def _limits(gates: dict[str, dict[str, Any]]) -> GateLimits:
    values: dict[str, Any] = {}
    for gate, settings in gates.items():
        if gate not in GATE_LIMITS:
            raise unknown_name("gate", gate, GATE_LIMITS, where="those with settings")
        for name, value in settings.items():
            if name not in GATE_LIMITS[gate]:
                raise unknown_name("setting", name, GATE_LIMITS[gate], where=f"gate {gate}")
            if value is not None and (
                not isinstance(value, int) or isinstance(value, bool) or value < 0
            ):
                raise UsageError(
                    f"gates.{gate}.{name} is {value!r}",
                    code="bad_limit",
                    mend="a whole number of 0 or more, or null for no limit",
                )
            values[name] = value
    return GateLimits(**values)


def _name(given: str | None, kernel: KernelSpec, workloads: list[Workload]) -> str:
    default = f"{kernel.name} {' '.join(workload.name for workload in workloads)}"
    name = (given or shortened(default, LONGEST_NAME)).strip()
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise UsageError(
            f"the name of a search is 1 to {LONGEST_NAME} printable characters", code="bad_name"
        )
    return name
