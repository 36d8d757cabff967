"""What there is to choose from, as the commands and REST list it."""

from __future__ import annotations

from greenfast.app.views.schemas import (
    BrokenOut,
    KernelOut,
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
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec, Workload
from greenfast.search.recordings.shelf import find_heading, recording_names
from greenfast.search.strategies import STRATEGIES
from greenfast.search.targets.cuda import gpu_count, open_device


def list_kernels(catalogue: Catalogue) -> tuple[list[KernelOut], list[BrokenOut]]:
    """Every kernel, and those whose files do not hold together."""
    found = list(zip(catalogue.names(), catalogue.kernels()))
    right = [kernel_out(one) for _, one in found if isinstance(one, KernelSpec)]
    return right, [
        BrokenOut(name=name, error=str(one), code=one.code)
        for name, one in found
        if isinstance(one, GreenfastError)
    ]


def list_templates(catalogue: Catalogue, kernel: str | None = None) -> list[TemplateOut]:
    """The templates of one kernel, or of every kernel that loads."""
    kernels = (
        [catalogue.kernel(kernel)]
        if kernel
        else [one for one in catalogue.kernels() if isinstance(one, KernelSpec)]
    )
    return [template_out(template) for each in kernels for template in each.templates]


def list_targets() -> list[TargetOut]:
    """Every emulated GPU, and every GPU of this machine (one line that says so when there is none)."""
    missing = _emulator_missing()
    found = [
        TargetOut(
            name=f"emulator:{name}",
            title=f"{device(name).title}, executed on the CPU",
            time_kind="modelled",
            available=not missing,
            why=missing,
        )
        for name in device_names()
    ]
    for number in range(max(1, gpu_count())):
        why = ""
        try:
            open_device(str(number))
        except GreenfastError as error:
            why = str(error)
        found.append(
            TargetOut(
                name=f"cuda:{number}",
                title=f"GPU {number} of this machine",
                time_kind="measured",
                available=not why,
                why=why,
            )
        )
    return found + [_replay_out(name) for name in recording_names()]


def _replay_out(name: str) -> TargetOut:
    """A recording, with what it holds; why not, when its file cannot be read."""
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
    what = (
        f"{heading.candidates:,} candidates of {heading.kernel} {heading.template} on "
        + ", ".join(workload.name for workload in heading.workloads)
        + ("" if heading.complete else ", incomplete")
    )
    return TargetOut(
        name=f"replay:{name}",
        title=f"{what}, recorded on {heading.device.title}, {heading.recorded_at}",
        time_kind="replayed",
        available=True,
        why="",
    )


def list_strategies() -> list[StrategyOut]:
    """The registered strategies, with the first sentence of what they say of themselves."""
    return [
        StrategyOut(name=name, doc=" ".join((one.__doc__ or "").split("\n\n")[0].split()))
        for name, one in sorted(STRATEGIES.items())
    ]


def kernel_out(kernel: KernelSpec) -> KernelOut:
    return KernelOut(
        name=kernel.name,
        title=kernel.title,
        baseline=kernel.baseline,
        workloads=[_workload_out(kernel, workload) for workload in kernel.workloads],
        templates=[template.name for template in kernel.templates],
    )


def _workload_out(kernel: KernelSpec, workload: Workload) -> WorkloadOut:
    values = kernel.values_of(dict(workload.dims), dict(workload.options))
    return WorkloadOut(
        name=workload.name,
        title=workload.title,
        dims=dict(workload.dims),
        options=dict(workload.options),
        flop=kernel.work_flop(values),
        bytes=kernel.work_bytes(values),
    )


def template_out(template: TemplateSpec) -> TemplateOut:
    return TemplateOut(
        name=template.name,
        kernel=template.kernel,
        idea=template.idea,
        minimum_sm=template.minimum_sm,
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
