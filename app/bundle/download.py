"""The bundle: one correct candidate with all files to compile, run and check it elsewhere.

The same search and compiler give the same bytes: names, order and times of the files are fixed.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.app.bundle.launch_data import alignments, launch_texts
from greenfast.app.bundle.launch_header import launch_header
from greenfast.app.bundle.machine_code import compiled_code
from greenfast.app.history import measured_device
from greenfast.app.views.confirmations import confirmation_out, peer_out
from greenfast.app.views.schemas import SearchOut, TrialDetailOut
from greenfast.app.wiring import Services
from greenfast.db.rows import SearchRow, TrialDetail
from greenfast.search.devices.facts import Device
from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.errors import UsageError
from greenfast.search.json_values import json_text
from greenfast.search.kernels.spec import KernelSpec, TemplateScalar, TemplateSpec
from greenfast.search.kernels.workloads import Workload
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.expected import CaseData
from greenfast.search.oracle.problem import Problem, Scalar, Tensor, WorkspaceMemory, lay_out
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import resolve
from greenfast.search.targets import check_target_name
from greenfast.search.verdict import CORRECT

STATIC_FILES = Path(__file__).parent / "files"
ZIP_TIME = (1980, 1, 1, 0, 0, 0)
UNSTORED_ARCH = "sm_90"  # of a trial stored without one, on a GPU of unknown model


@dataclass(frozen=True)
class Bundle:
    file_name: str
    content: bytes
    names: tuple[str, ...]
    source_digest: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def bundle(services: Services, search_id: str, number: int | None = None) -> Bundle:
    """The best candidate of a search, or the one of trial `number`.

    UsageError `no_best` without a correct candidate, `not_right` for a trial that is wrong.
    """
    store = services.store
    row = store.search(search_id)
    kernel = services.catalogue_of(search_id).kernel(row.kernel)
    trial = store.trial(search_id, number) if number is not None else _best(services, search_id)
    if trial.verdict not in CORRECT or trial.source_digest is None:
        raise UsageError(
            f"trial {trial.number} of {search_id} is not correct, so it is not bundled",
            code="not_right",
            mend="/api/v1/sources has its source, and the trial its evidence",
        )
    first = store.trial(search_id, 0)
    baseline = (
        first
        if first.is_baseline and first.source_digest is not None and first.number != trial.number
        else None
    )
    files = _files(services, kernel, row, trial, baseline)
    files["SHA256SUMS"] = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items())
    ).encode()
    return Bundle(
        f"greenfast-{row.id}-{trial.number}.zip",
        zip_bytes(files),
        tuple(sorted(files)),
        trial.source_digest,
    )


def _best(services: Services, search_id: str) -> TrialDetail:
    best = services.store.best(search_id)
    if best is None:
        raise UsageError(
            f"search {search_id} has no correct candidate yet",
            code="no_best",
            mend="wait for more trials",
        )
    return services.store.trial(search_id, best.number)


def candidate_files(
    services: Services, kernel: KernelSpec, row: SearchRow, trial: TrialDetail
) -> dict[str, bytes]:
    """The files of one candidate in a tuning bundle; launch.json is written by the caller."""
    first = services.store.trial(row.id, 0)
    is_rival = (
        first.is_baseline and first.source_digest is not None and first.number != trial.number
    )
    baseline = first if is_rival and first.verdict in CORRECT else None
    files = {
        "kernel.cu": _source(services, trial),
        **_template_files("template", kernel.template(trial.template)),
        "evidence.json": _json(_evidence(services, row, trial, baseline)),
        "environment.json": _json(_environment(services, row, trial)),
        **(_baseline_files(services, kernel, row, baseline) if baseline is not None else {}),
    }
    return {name: text.encode() for name, text in files.items()}


def _baseline_files(
    services: Services, kernel: KernelSpec, row: SearchRow, baseline: TrialDetail
) -> dict[str, str]:
    return {
        "baseline.cu": _source(services, baseline),
        "baseline_launch.json": _json(launch_description(kernel, row, baseline)),
        **_template_files("baseline_template", kernel.template(baseline.template)),
    }


def _files(
    services: Services,
    kernel: KernelSpec,
    row: SearchRow,
    trial: TrialDetail,
    baseline: TrialDetail | None,
) -> dict[str, bytes]:
    """Content of every file but SHA256SUMS, by name; `kernel` as the search ran with it."""
    launch = launch_description(kernel, row, trial)
    files = {
        "kernel.cu": _source(services, trial),
        "launch.json": _json(launch),
        "launch.h": launch_header(launch),
        **kernel.reference_files,
        "kernel.toml": (kernel.folder / "kernel.toml").read_text("utf-8"),
        **_template_files("template", kernel.template(trial.template)),
        "evidence.json": _json(_evidence(services, row, trial, baseline)),
        "environment.json": _json(_environment(services, row, trial)),
        "README.txt": _readme(row, trial, launch),
    }
    if baseline is not None:
        files |= _baseline_files(services, kernel, row, baseline)
    return {
        **{name: text.encode() for name, text in files.items()},
        **compiled_code(services.toolchain, files["kernel.cu"], str(launch["arch"])),
        **example_programs(),
    }


def example_programs() -> dict[str, bytes]:
    """The programs that run a candidate; they are no code of this package."""
    return {
        "host.cu": (STATIC_FILES / "host.cu").read_bytes(),
        "run_cupy.py": (STATIC_FILES / "run_cupy.py.txt").read_bytes(),
    }


def _source(services: Services, trial: TrialDetail) -> str:
    assert trial.source_digest is not None  # checked before a trial is bundled
    return services.store.source(trial.source_digest).text


def _template_files(name: str, template: TemplateSpec) -> dict[str, str]:
    toml = template.path.with_suffix("").with_suffix(".toml")
    return {f"{name}.toml": toml.read_text("utf-8"), f"{name}.cu.j2": template.text}


# ---- launch.json ----


def launch_description(kernel: KernelSpec, row: SearchRow, trial: TrialDetail) -> dict[str, Any]:
    """The content of launch.json: entries, expressions, and the numbers of each workload."""
    template = kernel.template(trial.template)
    compiled = kernel.workload(row.workloads[0]).compile_time(kernel)
    ran_on = measured_device(row.target, trial.environment)
    parameters = complete_parameters(template, trial.parameters, compiled)
    point = resolve(template, parameters, compiled, ran_on)
    return {
        "schema": 1,
        "kernel": kernel.name,
        "template": template.name,
        "parameters": trial.parameters,
        "source_digest": trial.source_digest,
        "arch": compiled_arch(template, measured_arch(row.target, trial.environment)),
        "sm_count": ran_on.multiprocessors,
        **launch_texts(template, point.values),
        "alignment": alignments(kernel, template, point.values, dict(compiled)),
        "workloads": [
            workload_description(kernel, template, kernel.workload(name), trial.parameters, ran_on)
            for name in row.workloads
        ],
    }


def compiled_arch(template: TemplateSpec, arch: str) -> str:
    """The architecture to compile for, on a device of `arch`: "sm_90a" for specific code."""
    return f"{arch}a" if template.arch_specific and not arch.endswith("a") else arch


def measured_arch(target: str, environment: Mapping[str, str] | None) -> str:
    """The architecture of the device that a trial ran on, such as "sm_90"."""
    from greenfast.search.devices.facts import device, device_names

    family, which = check_target_name(target)
    if family == "emulator":
        return device(which).arch
    stored = environment or {}
    if "arch" in stored:
        return stored["arch"]
    name = stored.get("device", "")  # older trials, and recordings
    return device(name).arch if name in device_names() else UNSTORED_ARCH


def workload_description(
    kernel: KernelSpec,
    template: TemplateSpec,
    workload: Workload,
    parameters: Mapping[str, Any],
    device: Device,
) -> dict[str, Any]:
    """One workload of launch.json: dims, options, tiles, launches and arguments with layouts."""
    laid_out = laid_out_workload(kernel, template, workload, parameters, device)
    compiled = workload.compile_time(kernel)
    complete = complete_parameters(template, parameters, compiled)
    own = template.own_scalars(resolve(template, complete, compiled, device).values)
    return {
        "name": workload.name,
        "dims": dict(workload.dims),
        "options": dict(workload.options),
        "tiles": dict(laid_out.case.tiles),
        "flop": laid_out.work_flop,
        "bytes": laid_out.work_bytes,
        "launches": [asdict(launch) for launch in laid_out.launches],
        "arguments": _arguments(kernel, own, laid_out),
    }


def laid_out_workload(
    kernel: KernelSpec,
    template: TemplateSpec,
    workload: Workload,
    parameters: Mapping[str, Any],
    device: Device,
) -> Problem:
    """The workload laid out for the candidate on `device`.

    Its inputs are zeros, since only layouts count.
    """
    compiled = workload.compile_time(kernel)
    complete = complete_parameters(template, parameters, compiled)
    point = resolve(template, complete, compiled, device)
    case = workload_case(workload, 0)
    dims = dict(workload.dims)
    zeros = {
        argument.name: np.zeros(tuple(int(dims[dim]) for dim in argument.shape), np.int8)
        for argument in kernel.arguments
        if argument.kind == "input"
    }
    return lay_out(kernel, template, point, case, CaseData(zeros, {}), unread_inputs=True)


def _arguments(
    kernel: KernelSpec, own: Sequence[TemplateScalar], laid_out: Problem
) -> list[dict[str, Any]]:
    """The parameter list of every entry: the kernel's, then the template's own.

    Those are its scalars, workspaces and tensor maps.
    """
    names = [argument.name for argument in kernel.arguments]
    names += [scalar.name for scalar in own]
    names += [workspace.name for workspace in laid_out.workspaces]
    names += [argument.name for argument in laid_out.arguments if isinstance(argument, TensorMap)]
    optional = {argument.name for argument in kernel.arguments if argument.optional}
    dtypes = {argument.name: argument.dtype for argument in kernel.arguments}
    options = dict(laid_out.case.options)
    arguments: list[dict[str, Any]] = []
    for name, value in zip(names, laid_out.arguments, strict=True):
        match value:
            case Tensor():
                dtype = str(options["dtype"]) if dtypes[name] == "dtype" else dtypes[name]
                arguments.append(
                    {
                        "name": name,
                        "kind": value.role,
                        "dtype": dtype,
                        "shape": list(value.shape),
                        "strides": list(value.strides),
                        "bytes": int(value.image.nbytes),
                        "optional": name in optional,
                    }
                )
            case Scalar():
                arguments.append(
                    {"name": name, "kind": "scalar", "dtype": value.dtype, "value": value.value}
                )
            case WorkspaceMemory():
                arguments.append(
                    {
                        "name": name,
                        "kind": "workspace",
                        "bytes": value.bytes,
                        "zero_fill": value.zero_fill,
                    }
                )
            case TensorMap():
                arguments.append({"name": name, "kind": "tensor_map", **value.numbers()})
            case _:
                assert value is not None  # no argument of a bundled kernel is left out
    return arguments


# ---- evidence, environment, README ----


def _evidence(
    services: Services, row: SearchRow, trial: TrialDetail, baseline: TrialDetail | None
) -> dict[str, Any]:
    counts, confirmation = services.store.counts(row.id), services.store.confirmation(row.id)
    again = (
        confirmation
        if confirmation is not None and confirmation.confirmation.trial == trial.number
        else None
    )
    return {
        "schema": 1,
        "confirmation": confirmation_out(again, samples=True).model_dump() if again else None,
        "peers": [peer_out(peer).model_dump() for peer in services.store.peers(row.id)]
        if again
        else [],
        "search": SearchOut.model_validate(row).model_dump(),
        "candidate": TrialDetailOut.model_validate(trial).model_dump(),
        "baseline": TrialDetailOut.model_validate(baseline).model_dump() if baseline else None,
        "counts": {
            "by_verdict": counts.by_verdict,
            "by_stage": counts.by_stage,
            "by_reason": counts.by_reason,
        },
    }


def _environment(services: Services, row: SearchRow, trial: TrialDetail) -> dict[str, Any]:
    """Everything that the results depend on, as the worker stored it with the trial."""
    from greenfast.search.devices.facts import device

    family, which = check_target_name(row.target)
    return {
        "schema": 1,
        "recorded": trial.environment,
        "plan": asdict(services.store.plan(row.id)),
        "device_facts": asdict(device(which)) if family == "emulator" else None,
    }


def _readme(row: SearchRow, trial: TrialDetail, launch: Mapping[str, Any]) -> str:
    text = (STATIC_FILES / "README.txt").read_text("utf-8")
    kind = ", ".join(filter(None, (trial.time_kind, trial.time_mode)))
    time = f"{trial.time_median_us:.2f} us, {kind}" if trial.time_median_us else "no time"
    facts = {
        "@KERNEL@": row.kernel,
        "@TEMPLATE@": trial.template,
        "@SEARCH@": row.id,
        "@TRIAL@": str(trial.number),
        "@DIGEST@": str(trial.source_digest),
        "@TARGET@": row.target,
        "@TIME@": time,
        "@VERDICT@": str(trial.verdict),
        "@WORKLOADS@": ", ".join(row.workloads),
        "@ARCH@": launch["arch"],
    }
    for mark, words in facts.items():
        text = text.replace(mark, words)
    return text


def _json(value: Any) -> str:
    return json_text(value, sort_keys=True) + "\n"


def json_of(value: Any) -> bytes:
    return _json(value).encode()


def zip_bytes(files: Mapping[str, bytes]) -> bytes:
    """A zip file whose bytes depend on the files alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as packed:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, ZIP_TIME)
            entry.compress_type, entry.external_attr, entry.create_system = (
                zipfile.ZIP_DEFLATED,
                0o644 << 16,
                3,
            )
            packed.writestr(entry, files[name])
    return buffer.getvalue()
