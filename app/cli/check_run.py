"""Safety checks outside any search: of a template's candidate, or of the caller's own kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from greenfast.app.cli.trial_run import TrialRequest, requested_candidate, requested_plan
from greenfast.app.wiring import Services
from greenfast.search.devices.facts import Device
from greenfast.search.devices.tensor_map import FIRST_SM, TensorMap
from greenfast.search.diagnose.brought import BroughtKernel, read_brought, shown_name
from greenfast.search.diagnose.check import CheckReport, check_brought, check_program
from greenfast.search.diagnose.host_program import check_host_program
from greenfast.search.diagnose.plain import (
    GivenLaunch,
    PlainOptions,
    check_plain,
    is_written_for_greenfast,
    read_plain,
)
from greenfast.search.errors import Fault, SpecError, UsageError
from greenfast.search.gates.safety import INLINE_ASSEMBLY, checked_problems, unseen_assembly
from greenfast.search.loop.evaluate import prepare
from greenfast.search.loop.plan import DEFAULT_TARGET
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import RenderedSource
from greenfast.search.targets.base import Runner, runner
from greenfast.search.targets.emulator.target import (
    CHECKED_PATIENCE,
    EmulatorTarget,
)
from greenfast.search.toolchain import CompileFailed
from greenfast.search.verdict import Rejected

DOES_NOT_COMPILE_HERE = "emulator_unsupported"


@dataclass(frozen=True)
class CheckOutcome:
    """A report, its subject, and the author's files by the names that the report uses."""

    subject: str  # "attention wmma:stage2 tile_m=64", or a file's name
    target: str
    report: CheckReport
    files: Mapping[str, Path]


def check_candidate(
    services: Services, request: TrialRequest, *, is_strict: bool = False
) -> CheckOutcome:
    """Check a point of a template on all derived cases; count costs on the first workload.

    SpecError when the template does not render.
    """
    kernel = services.catalogue.kernel(request.kernel)
    template = kernel.template(request.template)
    plan = requested_plan(services, request)
    context = services.context(plan)
    candidate = requested_candidate(context, template, request)
    subject = prepare(candidate, context, with_cubin=False)
    if isinstance(subject, Rejected):
        raise SpecError(subject.sentence, code=subject.reason.value)
    _refuse_assembly(subject.source, runner(context.target), f"template {template.name}")
    case = workload_case(context.workloads[0], plan.seed)
    counted = lay_out(
        kernel, template, subject.point, case, case_data(kernel, case), optional_outputs=False
    )
    report = _compiled(
        services,
        context.target.device,
        subject.source,
        lambda: check_program(
            subject.target,
            subject.program,
            checked_problems(subject),
            counted,
            is_strict=is_strict,
        ),
    )
    name = template.name + (f":{request.preset}" if request.preset else "")
    settings = "".join(f" {setting}" for setting in request.settings)
    return CheckOutcome(f"{kernel.name} {name}{settings}", plan.target, report, template.files)


def check_file(
    services: Services,
    cuda_file: Path,
    launch: Path | GivenLaunch | None,
    target_name: str | None,
    options: PlainOptions,
    *,
    is_strict: bool = False,
) -> CheckOutcome:
    """Check the caller's own kernel with the arguments and launches that `launch` gives.

    None: those of the file's own `main`.
    """
    deadline_s = None if options.timeout_s is None else options.timeout_s / CHECKED_PATIENCE
    target = runner(services.target(target_name or DEFAULT_TARGET, deadline_s))
    if not (isinstance(launch, Path) and is_written_for_greenfast(cuda_file)):
        return _check_plain(target, cuda_file, launch, options, is_strict=is_strict)
    launch_file, seed = launch, options.seed
    brought = read_brought(cuda_file, launch_file, services.catalogue.include_dirs, seed or 0)
    _refuse_assembly(brought.source, target, str(cuda_file))
    _refuse_device(target.device, brought, launch_file)
    report = _compiled(
        services,
        target.device,
        brought.source,
        lambda: check_brought(target, brought, is_strict=is_strict),
    )
    return CheckOutcome(shown_name(cuda_file), target.name, report, brought.files)


def _check_plain(
    target: Runner,
    cuda_file: Path,
    launch: Path | GivenLaunch | None,
    options: PlainOptions,
    *,
    is_strict: bool,
) -> CheckOutcome:
    """Check kernels of a file that also holds code of the host."""
    if not isinstance(target, EmulatorTarget):
        raise UsageError(
            f"{target.name} has no safety checks",
            code="cannot_check",
            mend=f"use --target {DEFAULT_TARGET}",
        )
    if launch is None:
        program = check_host_program(cuda_file, options, target, is_strict=is_strict)
        return CheckOutcome(shown_name(cuda_file), target.name, program.report, program.files)
    plain = read_plain(cuda_file, launch, options, target)
    if isinstance(launch, Path):
        _refuse_device(target.device, plain.brought, launch)
    report = check_plain(target, plain, is_strict=is_strict)
    return CheckOutcome(shown_name(cuda_file), target.name, report, plain.brought.files)


def _refuse_device(device: Device, brought: BroughtKernel, launch_file: Path) -> None:
    """UsageError for a kernel that the device does not launch."""
    for launch in brought.problem.launches:
        if launch.smem_dynamic_bytes > device.smem_per_block_bytes:
            raise UsageError(
                f"{launch_file.name}: {launch.entry} asks for {launch.smem_dynamic_bytes} bytes of "
                f"shared memory a block; {device.name} has {device.smem_per_block_bytes}",
                code="bad_launch",
            )
    arguments = (value for launch in brought.problem.launches for value in launch.arguments or ())
    has_maps = any(isinstance(value, TensorMap) for value in arguments)
    if device.sm < FIRST_SM and (has_maps or brought.source.arch_specific):
        raise UsageError(
            f"{launch_file.name} has tensor maps or arch_specific = true; they need sm_{FIRST_SM}, "
            f"and {device.name} is {device.arch}",
            code="unsupported_device",
            mend=f"use --target {DEFAULT_TARGET}",
        )


def _refuse_assembly(source: RenderedSource, target: Runner, subject: str) -> None:
    if unseen := unseen_assembly(source, target):
        raise UsageError(
            f"{subject} {INLINE_ASSEMBLY}, so it cannot be checked: {unseen}",
            code="inline_assembly",
            mend="use the primitives of kernel_templates/include/gf/, which have an emulated form",
        )


def _compiled(
    services: Services, device: Device, source: RenderedSource, work: Callable[[], CheckReport]
) -> CheckReport:
    """Do `work`. Where the emulator cannot compile the text, NVRTC decides whose fault that is:
    SpecError when NVRTC refuses it too, otherwise the emulator's Fault."""
    try:
        return work()
    except Fault as fault:
        if fault.code != DOES_NOT_COMPILE_HERE:
            raise
        arch = device.compiled_arch(specific=source.arch_specific)
        compiled = services.toolchain.compile(source, arch)
        if isinstance(compiled, CompileFailed):
            raise SpecError(compiled.sentence, code=compiled.reason.value) from fault
        raise


def check_json(outcome: CheckOutcome) -> dict[str, Any]:
    report = outcome.report
    return {
        "what": outcome.subject,
        "target": outcome.target,
        "clean": not report.findings,
        "findings": [{**asdict(finding), "reason": finding.reason} for finding in report.findings],
        "runs": [asdict(run) for run in report.runs],
        "looked_for": list(report.looked_for),
        "notes": list(report.notes),
        "remarks": list(report.remarks),
        "limits": list(report.limits),
        "counted": report.counted,
        "costs": [
            {**asdict(cost), "transactions": cost.transactions, "factor": round(cost.factor, 3)}
            for cost in report.costs
        ],
    }
