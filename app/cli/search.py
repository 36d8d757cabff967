"""`greenfast search`: a search in this process, on the same database that the service uses."""

from __future__ import annotations

from typing import Any

import typer

from greenfast.app.cli.options import (
    Address,
    AsJson,
    Executor,
    Seed,
    Target,
    WorkloadFile,
    Workloads,
)
from greenfast.app.cli.pareto import names_of
from greenfast.app.cli.resuming import refuse_settings
from greenfast.app.cli.search_options import (
    AblationOption,
    BaselineOption,
    ColdOption,
    ConfirmOption,
    CostOption,
    ExpectedGainOption,
    ExtendOption,
    FreshOption,
    GpuSecondsOption,
    HypothesisOption,
    KernelArgument,
    MaxRegistersOption,
    MaxSmemOption,
    MaxSpillsOption,
    MinGainOption,
    ModelledOption,
    ModeOption,
    NameOption,
    NoGainOption,
    ObjectivesOption,
    PopulationOption,
    ResumeOption,
    SecondsOption,
    StrategyOption,
    TemplateOption,
    TrialsOption,
    WithinOption,
)
from greenfast.app.cli.services import opened_services
from greenfast.search.errors import UsageError

BESIDE_RESUME = ("resume", "extend", "ablation_seconds", "executor", "address", "as_json")
REMEDIES = {"trials": "add --extend N to try N more candidates"}


def search(
    context: typer.Context,
    kernel: KernelArgument = None,
    workload: Workloads = None,
    workloads: WorkloadFile = None,
    template: TemplateOption = None,
    target: Target = None,
    trials: TrialsOption = None,
    seconds: SecondsOption = None,
    gpu_seconds: GpuSecondsOption = None,
    no_gain: NoGainOption = None,
    within: WithinOption = None,
    strategy: StrategyOption = None,
    objectives: ObjectivesOption = None,
    population: PopulationOption = None,
    modelled: ModelledOption = None,
    seed: Seed = None,
    baseline: BaselineOption = None,
    min_gain: MinGainOption = None,
    mode: ModeOption = None,
    confirm: ConfirmOption = True,
    name: NameOption = None,
    max_registers: MaxRegistersOption = None,
    max_spill_bytes: MaxSpillsOption = None,
    max_smem_bytes: MaxSmemOption = None,
    fresh: FreshOption = False,
    cold: ColdOption = False,
    hypothesis: HypothesisOption = "",
    expected_gain: ExpectedGainOption = None,
    cost: CostOption = "",
    ablation_seconds: AblationOption = None,
    resume: ResumeOption = None,
    extend: ExtendOption = None,
    executor: Executor = None,
    address: Address = None,
    as_json: AsJson = False,
) -> int:
    """Search for the fastest correct candidate of a kernel.

    The baseline is evaluated first, as trial 0. Every trial is stored with its evidence. On an
    emulator, times are modelled: they rank candidates, but do not prove that one is faster.

    Ctrl-C pauses the search after the trials in flight; --resume continues it.

    Exit codes: 0 a correct candidate was found, 1 none was, 2 the kernel's files have a mistake, 3
    the search failed, 130 Ctrl-C.
    """
    from greenfast.app.cli.search_run import Continued, search_and_show, with_file
    from greenfast.search.loop.plan import SearchRequest

    _check_subject(kernel, resume, extend)
    if resume is not None:
        refuse_settings(context, "search", allowed=BESIDE_RESUME, remedies=REMEDIES)
    request = (
        None
        if kernel is None
        else SearchRequest(
            kernel=kernel,
            name=name,
            workloads=tuple(workload) if workload else None,
            templates=tuple(template) if template else None,
            target=target,
            strategy=strategy,
            trials=trials,
            seconds=seconds,
            gpu_seconds=gpu_seconds,
            seed=seed,
            baseline=baseline,
            min_gain=min_gain,
            confirm=confirm,
            mode=mode,
            gates=ptxas_limits(max_registers, max_spill_bytes, max_smem_bytes),
            reuse=not fresh,
            hypothesis=hypothesis,
            expected_gain=expected_gain,
            cost=cost,
            no_gain=no_gain,
            bound_percent=within,
            cold=cold,
            objectives=names_of(objectives),
            population=population,
            modelled=modelled,
        )
    )
    with opened_services(executor, address) as services:
        if request is not None and workloads is not None:
            request = with_file(request, workloads, services.catalogue)
        start = request or Continued(str(resume), extend)
        return search_and_show(services, start, ablation_seconds, as_json)


def _check_subject(kernel: str | None, resume: str | None, extend: int | None) -> None:
    """UsageError unless the command names a new search or a stored one."""
    if (kernel is None) == (resume is None):
        raise UsageError(
            "name a kernel or --resume SEARCH_ID, and not both", code="bad_command_line"
        )
    if extend is not None and resume is None:
        raise UsageError(
            "--extend continues a stored search",
            code="bad_command_line",
            mend="add --resume SEARCH_ID",
        )


def ptxas_limits(
    max_registers: int | None, max_spill_bytes: int | None, max_smem_bytes: int | None
) -> dict[str, Any]:
    """The limits of the ptxas gate, as REST names them; only those that are given."""
    limits: dict[str, int | None] = {}
    if max_registers is not None:
        limits["max_registers"] = max_registers
    if max_spill_bytes is not None:
        limits["max_spill_bytes"] = None if max_spill_bytes < 0 else max_spill_bytes
    if max_smem_bytes is not None:
        limits["max_smem_bytes"] = max_smem_bytes
    return {"ptxas": limits} if limits else {}
