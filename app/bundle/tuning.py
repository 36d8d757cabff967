"""The tuning bundle: the kernels that a set of workloads needs, and the table that picks one.

docs/bundle.md describes the format. The same tuning gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from greenfast import __version__
from greenfast.app.bundle.callers import callers
from greenfast.app.bundle.download import (
    Bundle,
    candidate_files,
    json_of,
    launch_description,
    zip_bytes,
)
from greenfast.app.bundle.launch_data import launch_numbers
from greenfast.app.bundle.machine_code import compiled_code
from greenfast.app.bundle.tuning_readme import tuning_readme
from greenfast.app.history import measured_device
from greenfast.app.wiring import Services
from greenfast.db.rows import SearchRow, TrialDetail, TuningRow
from greenfast.runtime.fallbacks import FALLBACK_PEERS
from greenfast.search.dispatch.build import (
    GroupTimes,
    TimedWorkload,
    dispatch_group,
)
from greenfast.search.dispatch.table import (
    DispatchGroup,
    DispatchTable,
    PeerTime,
    table_json,
)
from greenfast.search.dispatch.times import is_servable, measured_trials
from greenfast.search.dispatch.waves import Waves, waves_of
from greenfast.search.dispatch.within import check_within
from greenfast.search.errors import UsageError
from greenfast.search.kernels.identity import kernel_identity
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import resolve
from greenfast.search.status import SearchStatus
from greenfast.search.toolchain.nvrtc import OPTIONS
from greenfast.search.verdict import Trial

FORMAT, SCHEMA = "greenfast-tuning", 1
COMPILE_OPTIONS = tuple(option for option in OPTIONS if not option.startswith("--ptxas-options"))


@dataclass(frozen=True)
class ServedKernel:
    """A kernel of the bundle: its id there, and the trial that it is."""

    id: str
    search: SearchRow
    trial: TrialDetail


def dispatch_table(
    services: Services, tuning: TuningRow
) -> tuple[DispatchTable, tuple[ServedKernel, ...]]:
    """The table of a complete tuning with its kernels; UsageError `tuning_not_complete` before."""
    unfinished = [row for row in tuning.searches if row.status != SearchStatus.COMPLETED]
    if unfinished:
        raise UsageError(
            f"tuning {tuning.id} is not complete: search {unfinished[0].id} is "
            f"{unfinished[0].status}",
            code="tuning_not_complete",
            mend=f"`greenfast tune --resume {tuning.id}` continues it",
        )
    share = check_within(tuning.within_percent)
    weights = dict(zip(tuning.workloads, tuning.weights, strict=True))
    groups: list[DispatchGroup] = []
    kernels: list[ServedKernel] = []
    for search in tuning.searches:
        group = dispatch_group(group_times(services, search, weights), share)
        ids = {}
        for number in sorted(map(int, group.kernels)):
            ids[str(number)] = f"k{len(kernels)}"
            trial = services.store.trial(search.id, number)
            kernels.append(ServedKernel(ids[str(number)], search, trial))
        groups.append(group.renamed(ids))
    kind = next((row.time_kind for row in tuning.searches if row.time_kind), "modelled")
    table = DispatchTable(tuning.kernel, tuning.within_percent, str(kind), tuple(groups))
    return table, tuple(kernels)


def group_times(services: Services, search: SearchRow, weights: Mapping[str, float]) -> GroupTimes:
    """The times of a search's correct candidates that a bundle may hold.

    `weights` are the tuning's: a search keeps none if its own workloads have equal weights.
    """
    kernel = services.catalogue_of(search.id).kernel(search.kernel)
    trials = [
        trial
        for trial in services.store.timed_trials(search.id)
        if is_servable(trial.verdict) and trial.source_digest is not None
    ]
    measured = measured_trials(trials, search.workloads)
    baseline = next((trial for trial in measured if trial.name == "0"), None)
    run_dims = [dim.name for dim in kernel.dims if dim.time == "run"]
    peers = _peers(services, search)
    confirmed = services.store.confirmation(search.id)
    winner = str(confirmed.confirmation.trial) if confirmed is not None else "0"
    beside = next((trial for trial in measured if trial.name == winner), None)
    workloads = []
    for at, name in enumerate(search.workloads):
        dims = kernel.workload(name).dims
        workloads.append(
            TimedWorkload(
                name,
                dims,
                {dim: int(dict(dims)[dim]) for dim in run_dims},
                weights[name],
                baseline.times_us[at] if baseline is not None else None,
                peers.get(name, ()),
                library_us(kernel.name, beside.times_us[at], peers.get(name, ()))
                if beside
                else None,
            )
        )
    compiled = kernel.workload(search.workloads[0]).compile_time(kernel)
    waves = _waves(services, kernel, search, {str(trial.number): trial for trial in trials})
    return GroupTimes(compiled, tuple(workloads), measured, waves)


def _waves(
    services: Services, kernel: KernelSpec, search: SearchRow, trials: Mapping[str, Trial]
) -> Callable[[str], Waves | None]:
    """How the blocks of a trial fill the GPU that it was timed on, by its number."""
    compiled = kernel.workload(search.workloads[0]).compile_time(kernel)

    @cache
    def waves(number: str) -> Waves | None:
        candidate = trials[number].candidate
        template = kernel.template(candidate.template)
        environment = services.store.trial(search.id, int(number)).environment
        device = measured_device(search.target, environment)
        values = resolve(template, candidate.parameters, compiled, device).values
        return waves_of(template, values, device.multiprocessors)

    return waves


def _peers(services: Services, search: SearchRow) -> dict[str, tuple[PeerTime, ...]]:
    peers: dict[str, tuple[PeerTime, ...]] = {}
    for row in services.store.peers(search.id):
        comparison = row.peer.comparison
        if row.peer.outcome == "timed" and comparison is not None:
            time = PeerTime(
                row.peer.name, comparison.ratio, comparison.ratio_low, comparison.ratio_high
            )
            peers[row.peer.workload] = (*peers.get(row.peer.workload, ()), time)
    return peers


def library_us(kernel: str, winner_us: float, peers: Sequence[PeerTime]) -> float | None:
    """The time of what the runtime falls back to, by its ratio to the winner; None: not known."""
    name = FALLBACK_PEERS.get(kernel)
    return next((winner_us / peer.ratio for peer in peers if peer.name == name), None)


def tuning_bundle(services: Services, tuning_id: str) -> Bundle:
    """The bundle of a complete tuning."""
    tuning = services.store.tuning(tuning_id)
    table, kernels = dispatch_table(services, tuning)
    kernel = services.catalogue_of(tuning.searches[0].id).kernel(tuning.kernel)
    files: dict[str, bytes] = {
        "dispatch.json": json_of(table_json(table)),
        "kernel.toml": (kernel.folder / "kernel.toml").read_bytes(),
        **{name: text.encode() for name, text in kernel.reference_files.items()},
    }
    described = []
    for served in kernels:
        folder = f"kernels/{served.id}"
        own, cubins = _kernel_files(services, kernel, served)
        files |= {f"{folder}/{name}": data for name, data in own.items()}
        alignment = json.loads(own["launch.json"])["alignment"]
        described.append({**_described(kernel, served, folder, cubins), "alignment": alignment})
    manifest = json_of(_manifest(kernel, tuning, kernels, described, files))
    programs = callers({**files, "manifest.json": manifest})
    files |= programs
    files["README.txt"] = tuning_readme(tuning, table, kernel, programs)
    manifest = json_of(_manifest(kernel, tuning, kernels, described, files))
    files["manifest.json"] = manifest
    return Bundle(
        f"greenfast-{tuning.id}.zip",
        zip_bytes(files),
        tuple(sorted(files)),
        str(kernels[0].trial.source_digest),
    )


def _kernel_files(
    services: Services, kernel: KernelSpec, served: ServedKernel
) -> tuple[dict[str, bytes], dict[str, str]]:
    """The files of a kernel's folder, and its cubins' names by architecture."""
    row, trial = served.search, served.trial
    files = candidate_files(services, kernel, row, trial)
    launch = launch_data(kernel, row, trial)
    files["launch.json"] = json_of(launch)
    is_measured = row.time_kind == "measured"  # an emulator's tuning needs no machine code
    text, arch = files["kernel.cu"].decode(), str(launch["arch"])
    images = compiled_code(services.toolchain, text, arch, required=is_measured)
    cubins = dict(zip((arch,), images, strict=False))  # one, or none
    return {**files, **images}, cubins


def launch_data(kernel: KernelSpec, row: SearchRow, trial: TrialDetail) -> dict[str, Any]:
    """The content of a kernel's launch.json: that of a candidate bundle, and what a runtime needs.

    Blocks, clusters and shared memory are numbers; what depends on run-time dims is an expression.
    """
    template = kernel.template(trial.template)
    compiled = kernel.workload(row.workloads[0]).compile_time(kernel)
    device = measured_device(row.target, trial.environment)
    parameters = complete_parameters(template, trial.parameters, compiled)
    values = resolve(template, parameters, compiled, device).values
    return {
        **launch_description(kernel, row, trial),
        "compiled": dict(compiled),
        **launch_numbers(kernel, template, values, dict(compiled)),
    }


def _described(
    kernel: KernelSpec, served: ServedKernel, folder: str, cubins: Mapping[str, str]
) -> dict[str, Any]:
    compiled = kernel.workload(served.search.workloads[0]).compile_time(kernel)
    return {
        "id": served.id,
        "compiled": dict(compiled),
        "template": served.trial.template,
        "source_digest": served.trial.source_digest,
        "search": served.search.id,
        "trial": served.trial.number,
        "cubins": {arch: f"{folder}/{name}" for arch, name in cubins.items()},
    }


def _manifest(
    kernel: KernelSpec,
    tuning: TuningRow,
    kernels: tuple[ServedKernel, ...],
    described: list[dict[str, Any]],
    files: Mapping[str, bytes],
) -> dict[str, Any]:
    first = kernels[0]
    device = measured_device(first.search.target, first.trial.environment)
    environment = first.trial.environment
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "greenfast": __version__,
        "tuning": tuning.id,
        "kernel": operation(kernel),
        "target": tuning.target,
        "time_kind": str(first.search.time_kind),
        "device": {
            "name": device.name,
            "arch": device.arch,
            "sm_count": device.multiprocessors,
        },
        "toolchain": {
            name: version for name, version in environment.items() if name.startswith("nvidia-")
        },
        "compile_options": list(COMPILE_OPTIONS),
        "searches": [row.id for row in tuning.searches],
        "kernels": described,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    }


def operation(kernel: KernelSpec) -> dict[str, Any]:
    """The facts about the operation that a caller needs."""
    return {
        "name": kernel.name,
        "title": kernel.title,
        "identity": kernel_identity(kernel),
        "dims": [
            {
                "name": dim.name,
                "time": dim.time,
                "default": dim.default.text if dim.default is not None else None,
                "values": list(dim.values) or None,
            }
            for dim in kernel.dims
        ],
        "options": [
            {"name": option.name, "values": list(option.values), "default": option.default}
            for option in kernel.options
        ],
        "constants": [{"name": name, "value": value.text} for name, value in kernel.constants],
        "requires": [
            {"that": requirement.expression.text, "because": requirement.because}
            for requirement in kernel.requirements
        ],
        "empty_dims": list(kernel.empty_dims),
        "alignment": {
            "pointer_bytes": kernel.pointer_bytes,
            "stride_elements": kernel.stride_elements,
        },
    }
