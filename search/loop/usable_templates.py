"""The templates of a kernel that can serve a search's workloads on its target."""

from __future__ import annotations

import random
from functools import lru_cache

from greenfast.search.devices.facts import Device, device, device_names
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items, Workload
from greenfast.search.loop.limits import require_grid, require_tensor_maps
from greenfast.search.loop.target_space import target_space
from greenfast.search.recordings.space import RecordedSpace
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import Space, device_refusal

EXHAUSTIVE = "exhaustive"  # the strategy that lists its spaces
# Refusals of one template, of which another may be spared.
UNUSABLE = ("unsupported_workload", "empty_space", "tensor_map")


def usable_templates(
    kernel: KernelSpec,
    workloads: list[Workload],
    target: str,
    strategy: str,
    given: tuple[str, ...] | None,
) -> tuple[str, ...]:
    """The templates to search: the given ones, or those that can serve the workloads.

    UsageError for a given template that cannot, and where none can.
    """
    names = given or _worthwhile_templates(kernel, workloads)
    if len(set(names)) != len(names):
        raise UsageError("a template is named twice", code="repeated_template")
    usable: list[str] = []
    refusals: list[UsageError] = []
    for name in names:
        try:
            _require_usable(kernel, kernel.template(name), workloads, target, strategy)
            usable.append(name)
        except UsageError as error:
            if given or error.code not in UNUSABLE:
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
    target: str,
    strategy: str,
) -> None:
    """UsageError for a template that cannot run the workloads; SpecError for a space that is too
    large for a strategy that tries all points."""
    for workload in workloads:
        template.check_supports(workload)
    space = target_space(target, template, workloads[0].compile_time(kernel))
    presets = _valid_presets(space)
    point = presets[0] if presets else _any_point(space)
    if point is None:
        raise UsageError(
            "no parameter values satisfy the constraints of template "
            f"{template.name}: {_why_defaults_fail(space)}",
            code="empty_space",
            mend=_where_it_runs(template, space.device),
        )
    for workload in workloads:
        require_grid(kernel, space.require(point), template, workload)
        for mapped in (point, *presets):  # between them they take most of the tensor maps
            require_tensor_maps(kernel, space.require(mapped), template, workload)
    if strategy == EXHAUSTIVE and not isinstance(space, RecordedSpace):
        _require_walkable(space.template, space.compiled, space.device)


def _any_point(space: Space) -> Items | None:
    """A valid point; None if there is none. SpecError where a large space shows none."""
    try:
        return next(space.each_point(), None)
    except SpecError as error:
        if error.code != "space_too_large":
            raise
        return space.drawn(random.Random(0))


def _valid_presets(space: Space) -> tuple[Items, ...]:
    presets = (preset.parameters for preset in space.template.presets)
    complete = (complete_parameters(space.template, dict(each), space.compiled) for each in presets)
    return tuple(each for each in complete if space.why_not(each) is None)


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
