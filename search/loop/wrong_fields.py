"""All wrong fields of a request at once, for a person who would otherwise correct one at a time."""

from __future__ import annotations

from collections.abc import Callable

from greenfast.search.errors import Refusals
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Workload
from greenfast.search.loop.limits import require_memory
from greenfast.search.loop.objectives import modelled_of, objectives_of, population_of
from greenfast.search.loop.plan import (
    DEFAULT_TARGET,
    SearchRequest,
    baseline_of,
    shared_compile_time,
    strategy_of,
    workloads_of,
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
from greenfast.search.targets import check_target_name


def collect_wrong_fields(request: SearchRequest, kernel: KernelSpec, wrong: Refusals) -> None:
    """Add an error to `wrong` for each field that is wrong by itself.

    Fields are named as in SearchRequest. A field is not checked if it depends on one that is
    already in `wrong`. `make_plan` checks everything again, and what remains.
    """
    _collect_settings(request, wrong)
    _collect_choices(request, kernel, wrong)


def _collect_settings(request: SearchRequest, wrong: Refusals) -> None:
    """Fields that need no knowledge of the kernel."""
    given_trials = request.trials, request.seconds, request.gpu_seconds
    checks: dict[str, Callable[[], object]] = {
        "name": lambda: name_of(request.name, request.kernel),
        "target": lambda: check_target_name(request.target or DEFAULT_TARGET),
        "strategy": lambda: strategy_of(request.strategy),
        "trials": lambda: trials_of(*given_trials),
        "seconds": lambda: seconds_of(request.seconds),
        "no_gain": lambda: no_gain_of(request.no_gain),
        "bound_percent": lambda: bound_percent_of(request.bound_percent),
        "seed": lambda: seed_of(request.seed),
        "min_gain": lambda: min_gain_of(request.min_gain),
        "mode": lambda: mode_of(request.mode),
        "gates": lambda: gate_limits_of(request.gates),
        "hypothesis": lambda: note_of("hypothesis", request.hypothesis),
        "expected_gain": lambda: expected_gain_of(request.expected_gain),
        "cost": lambda: note_of("cost", request.cost),
    }
    for field, check in checks.items():
        if field not in wrong.fields:
            with wrong.at(field):
                check()
    if not wrong.fields & {"target", "gpu_seconds"}:
        target = request.target or DEFAULT_TARGET
        with wrong.at("gpu_seconds"):
            gpu_budget(request.gpu_seconds, target, check_target_name(target)[0])
    if "strategy" not in wrong.fields:
        strategy = strategy_of(request.strategy)
        with wrong.at("objectives"):
            objectives_of(request.objectives, strategy)
        if "target" not in wrong.fields:
            family, _ = check_target_name(request.target or DEFAULT_TARGET)
            with wrong.at("modelled"):
                modelled_of(request.modelled, strategy, family)
        if "trials" not in wrong.fields:
            with wrong.at("population"):
                population_of(request.population, strategy, request.trials)


def _collect_choices(request: SearchRequest, kernel: KernelSpec, wrong: Refusals) -> None:
    """Workloads, templates and the baseline, which the kernel decides."""
    by_recording = (request.target or "").startswith("replay:")  # which decides them, too
    workloads: list[Workload] = []
    if "workloads" not in wrong.fields:
        with wrong.at("workloads"):
            workloads = workloads_of(request, kernel)
            if not by_recording:
                shared_compile_time(kernel, workloads)
                for workload in workloads:
                    require_memory(kernel, workload)
        with wrong.at("weights"):
            workload_weights(request.weights, len(request.workloads or ()))
    if "templates" not in wrong.fields:
        with wrong.at("templates"):
            for name in request.templates or ():
                kernel.template(name)
    if by_recording or "workloads" in wrong.fields:
        return
    with wrong.at("baseline"):
        baseline_of(request.baseline, kernel, workloads[0])


def collect_wrong_templates(request: SearchRequest, kernel: KernelSpec, wrong: Refusals) -> None:
    """The same for templates that cannot serve the workloads on the target.

    It looks at their spaces, which takes longest, so it is for a request that is refused anyway.
    """
    if (request.target or "").startswith("replay:") or wrong.fields & {
        "workloads",
        "target",
        "strategy",
        "templates",
    }:
        return
    target, strategy = request.target or DEFAULT_TARGET, strategy_of(request.strategy)
    with wrong.at("templates"):
        usable_templates(kernel, workloads_of(request, kernel), target, strategy, request.templates)
