"""Kernels, templates, targets and strategies, as commands and REST list them."""

from __future__ import annotations

from greenfast.app.views.choice_schemas import (
    BrokenOut,
    DimOut,
    KernelOut,
    OptionOut,
    ParameterOut,
    PresetOut,
    StrategyOut,
    TargetOut,
    TemplateOut,
    WorkloadOut,
)
from greenfast.search.devices.facts import device, device_names
from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Workload
from greenfast.search.recordings.shelf import find_heading, recording_names
from greenfast.search.strategies import STRATEGIES
from greenfast.search.targets.cuda import gpu_count, open_device


def list_kernels(catalogue: Catalogue) -> tuple[list[KernelOut], list[BrokenOut]]:
    """Every kernel that loads, and every kernel that does not."""
    kernels: list[KernelOut] = []
    broken: list[BrokenOut] = []
    for name in catalogue.names():
        try:
            kernels.append(kernel_out(catalogue.kernel(name)))
        except GreenfastError as error:
            broken.append(BrokenOut(name=name, error=str(error), code=error.code))
    return kernels, broken


def list_templates(catalogue: Catalogue, kernel: str | None = None) -> list[TemplateOut]:
    """The templates of one kernel, or of every kernel that loads."""
    kernels = (
        [catalogue.kernel(kernel)]
        if kernel
        else [spec for spec in catalogue.kernels() if isinstance(spec, KernelSpec)]
    )
    return [template_out(template) for spec in kernels for template in spec.templates]


def list_targets() -> list[TargetOut]:
    """Emulated GPUs, GPUs of this machine (or one line that there is none), and recordings."""
    missing = _emulator_missing()
    targets = [
        TargetOut(
            name=f"emulator:{name}",
            title=f"{device(name).title}, executed on the CPU",
            time_kind="modelled",
            available=not missing,
            why=missing,
        )
        for name in device_names()
    ]
    count = gpu_count()
    for number in range(max(1, count)):
        why = ""
        try:
            open_device(str(number))
        except GreenfastError as error:
            why = str(error)
        targets.append(
            TargetOut(
                name=f"cuda:{number}",
                title=f"GPU {number} of this machine",
                time_kind="measured",
                available=not why,
                why=why,
            )
        )
    if count > 1:
        targets.append(_all_gpus(count))
    return targets + [_replay_out(name) for name in recording_names()]


def _all_gpus(count: int) -> TargetOut:
    """Every GPU of this machine; unavailable when their models differ."""
    why = ""
    try:
        open_device("all")
    except GreenfastError as error:
        why = str(error)
    return TargetOut(
        name="cuda:all",
        title=f"the {count} GPUs of this machine, for one search",
        time_kind="measured",
        available=not why,
        why=why,
    )


def _replay_out(name: str) -> TargetOut:
    """A recording and its contents; unavailable when its file cannot be read."""
    try:
        heading = find_heading(name)
    except GreenfastError as error:
        return TargetOut(
            name=f"replay:{name}",
            title="a recording",
            time_kind="replayed",
            available=False,
            why=str(error),
        )
    contents = (
        f"{heading.candidates:,} candidates of {heading.kernel} {heading.template} on "
        + ", ".join(workload.name for workload in heading.workloads)
        + ("" if heading.complete else ", incomplete")
    )
    return TargetOut(
        name=f"replay:{name}",
        title=f"{contents}, recorded on {heading.device.title}, {heading.recorded_at}",
        time_kind="replayed",
        available=True,
        why="",
        kernel=heading.kernel,
    )


def list_strategies() -> list[StrategyOut]:
    """The registered strategies, with the first paragraph of their documentation."""
    return [
        StrategyOut(name=name, doc=" ".join((strategy.__doc__ or "").split("\n\n")[0].split()))
        for name, strategy in sorted(STRATEGIES.items())
    ]


def kernel_out(kernel: KernelSpec) -> KernelOut:
    return KernelOut(
        name=kernel.name,
        title=kernel.title,
        baseline=kernel.baseline,
        dims=[
            DimOut(
                name=dim.name,
                doc=dim.doc,
                values=list(dim.values),
                default=dim.default.text if dim.default else None,
            )
            for dim in kernel.dims
        ],
        options=[
            OptionOut(name=option.name, values=list(option.values), default=option.default)
            for option in kernel.options
        ],
        workloads=[workload_out(kernel, workload) for workload in kernel.workloads],
        templates=[template.name for template in kernel.templates],
    )


def workload_out(kernel: KernelSpec, workload: Workload) -> WorkloadOut:
    values = kernel.values_of(dict(workload.dims), dict(workload.options))
    return WorkloadOut(
        name=workload.name,
        title=workload.title,
        dims=dict(workload.dims),
        options=dict(workload.options),
        flop=kernel.work_flop.amount(values),
        bytes=kernel.work_bytes.amount(values),
    )


def template_out(template: TemplateSpec) -> TemplateOut:
    return TemplateOut(
        name=template.name,
        kernel=template.kernel,
        idea=template.idea,
        minimum_sm=template.minimum_sm,
        arch_specific=template.arch_specific,
        supports={name: list(values) for name, values in template.supports},
        parameters=[
            ParameterOut(
                name=parameter.name,
                type=parameter.type,
                values=list(parameter.values),
                default=parameter.default,
                doc=parameter.doc,
                when=parameter.when.text if parameter.when else None,
            )
            for parameter in template.parameters
        ],
        constraints=[constraint.expression.text for constraint in template.constraints],
        presets=[
            PresetOut(name=preset.name, doc=preset.doc, parameters=dict(preset.parameters))
            for preset in template.presets
        ],
    )


def _emulator_missing() -> str:
    """Why candidates cannot be executed on this machine's CPU; empty when they can."""
    from greenfast.search.targets.emulator.host_compiler import find_host_compiler

    try:
        find_host_compiler()
    except GreenfastError as error:
        return str(error)
    return ""
