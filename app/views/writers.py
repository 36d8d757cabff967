"""Input for a writer of sources: a kernel's specification, the best source, what did not help."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from greenfast.app.views.listings import kernel_out
from greenfast.app.wiring import Services
from greenfast.db.rows import SearchRow, TrialRow
from greenfast.search.devices.facts import Device
from greenfast.search.kernels.spec import Argument, KernelSpec
from greenfast.search.loop.plan import DEFAULT_TARGET, default_workloads
from greenfast.search.loop.submitted_parent import Writable, writable
from greenfast.search.loop.target_space import target_device
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.text import shortened, visible

JSON = dict[str, Any]
MOST_SEARCHES = 200  # the newest, in which a best source is looked up
MOST_NEGATIVES = 20
LONGEST_SENTENCE = 300
CTYPES = {
    "fp16": "__half",
    "bf16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
}
RULES = (
    'Each kernel function is extern "C" __global__ and takes the arguments in this order.',
    "Workspaces and tensor maps of the launch file follow the arguments.",
    "Outputs are compared with the reference within its bounds, at sizes of every kind.",
    "Inputs, and the gaps between rows, must not be written.",
    "Every memory access is checked for races, bounds and uninitialised reads.",
    "The source may include gf/ headers, CUDA's headers and standard device headers by name.",
    "The launch file is TOML: [[launches]] with entry, grid, block and smem_dynamic_bytes.",
    "Its sizes are expressions over the kernel's dims; [tiles] choose the sizes of checks.",
)


def kernel_brief(services: Services, name: str) -> JSON:
    """Everything about a kernel that its writer needs."""
    kernel = services.catalogue.kernel(name)
    return {
        **kernel_out(kernel).model_dump(),
        "arguments": [_argument(argument) for argument in kernel.arguments],
        "constants": {constant: value.text for constant, value in kernel.constants},
        "pointer_alignment_bytes": kernel.pointer_bytes,
        "stride_elements": kernel.stride_elements,
        "checks": [
            {
                "name": check.name,
                "dims": {dim: size.text for dim, size in check.dims},
                "inputs": check.inputs,
                "layout": check.layout,
            }
            for check in kernel.checks
        ],
        "reference": kernel.reference_text,
        "rules": list(RULES),
    }


def _argument(argument: Argument) -> JSON:
    ctype = CTYPES.get(argument.dtype, argument.dtype)
    return {
        "name": argument.name,
        "kind": argument.kind,
        "dtype": argument.dtype,
        "ctype": ctype if argument.kind == "scalar" else f"{ctype}*",
        "shape": list(argument.shape),
        "optional": argument.optional,
        **({"read_when": argument.read_when.text} if argument.read_when is not None else {}),
    }


def device_brief(target: str) -> JSON:
    """The facts of a target's device."""
    return asdict(target_device(target))


def negatives_brief(services: Services, kernel: str, limit: int = MOST_NEGATIVES) -> list[JSON]:
    """Ideas that were tried and did not help, newest first."""
    return [
        {
            "trial": f"{row.search_id}/{row.number}",
            "stage": row.stage,
            "reason": row.reason,
            "target": row.target,
            "changed": visible(shortened(row.changed, LONGEST_SENTENCE)),
            "sentence": visible(shortened(row.finding, LONGEST_SENTENCE)),
            "ratio_to_baseline": row.ratio_to_baseline,
        }
        for row in services.store.negatives(kernel=kernel, limit=limit).items
    ]


def best_source(
    services: Services, name: str, workload: str | None = None, target: str | None = None
) -> JSON:
    """The fastest correct source that is stored for a workload, to change and submit.

    Without any it is that of the kernel's baseline, which was not judged here.
    """
    kernel, target = services.catalogue.kernel(name), target or DEFAULT_TARGET
    workload = kernel.workload(workload or default_workloads(kernel)[0]).name
    best = _fastest(services, kernel, workload, target)
    device = target_device(target)
    if best is None:
        return _of_baseline(services, kernel, workload, device)
    row, trial = best
    candidate = services.store.recorded(row.id, trial.number)
    assert candidate is not None, "a best trial is recorded"
    files = services.catalogue_of(row.id)
    compiled = services.store.plan(row.id).compiled
    text = writable(
        files.kernel(kernel.name), candidate.candidate, compiled, device, files.include_dirs
    )
    return {
        **_brief(text, kernel, workload, target),
        "trial": f"{row.id}/{trial.number}",
        "digest": trial.source_digest,
        "verdict": trial.verdict,
        "time_median_us": trial.time_median_us,
        "time_kind": trial.time_kind,
        "ratio_to_baseline": trial.ratio_to_baseline,
    }


def _brief(text: Writable, kernel: KernelSpec, workload: str, target: str) -> JSON:
    return {
        "kernel": kernel.name,
        "workload": workload,
        "target": target,
        "source": text.source,
        "launch": text.launch,
    }


def _fastest(
    services: Services, kernel: KernelSpec, workload: str, target: str
) -> tuple[SearchRow, TrialRow] | None:
    store = services.store
    rows = [
        row
        for row in store.searches(limit=MOST_SEARCHES).items
        if (row.kernel, row.target, row.workloads) == (kernel.name, target, (workload,))
        and row.best_time_us is not None
    ]
    row = min(rows, key=lambda row: row.best_time_us or 0.0, default=None)
    trial = store.best(row.id) if row is not None else None
    return (row, trial) if row is not None and trial is not None else None


def _of_baseline(services: Services, kernel: KernelSpec, workload: str, device: Device) -> JSON:
    template, preset = kernel.preset(kernel.baseline)
    compiled = kernel.workload(workload).compile_time(kernel)
    candidate = preset_candidate(template, preset.name, compiled)
    text = writable(kernel, candidate, compiled, device, services.catalogue.include_dirs)
    unknown = ("trial", "digest", "verdict", "time_median_us", "time_kind", "ratio_to_baseline")
    return {
        **_brief(text, kernel, workload, f"emulator:{device.name}"),
        **dict.fromkeys(unknown),
    }
