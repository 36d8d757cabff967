"""What makes a kernel the kernel that it was: its operation, its reference and its templates.

Workloads, checks and probes come and go without making it another kernel. `digest(kernel)` covers
them as well; searches that were submitted before files were frozen hold that digest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from greenfast.search.digest import digest
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec

LARGEST_ADDITION = 3  # workloads, and checks, that may have been appended since


def semantics_digest(kernel: KernelSpec) -> str:
    """Names what is computed and how exactly: dims, arguments, options, work, the reference."""
    return digest(_semantics(kernel))


def kernel_identity(kernel: KernelSpec) -> str:
    """Names the operation and every source that a search over the kernel may render."""
    return digest(
        {**_semantics(kernel), "templates": [_source(template) for template in kernel.templates]}
    )


def passed_checks(kernel: KernelSpec) -> tuple[tuple[str, str], ...]:
    """(name, digest) of each of the kernel's checks, for storing beside a confirmation."""
    return tuple((check.name, digest(replace(check, name=""))) for check in kernel.checks)


def newer_checks(kernel: KernelSpec, passed: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Names of the kernel's checks that `passed` lacks, whatever those were called."""
    known = {content for _, content in passed}
    return tuple(name for name, content in passed_checks(kernel) if content not in known)


def earlier_form(kernel: KernelSpec, whole_digest: str) -> KernelSpec | None:
    """The kernel as it was when `digest(kernel)` was `whole_digest`: without what was added since.

    None where it is another kernel.
    """
    return next((form for form in _earlier_forms(kernel) if digest(form) == whole_digest), None)


def _earlier_forms(kernel: KernelSpec) -> Iterator[KernelSpec]:
    """The kernel, then without its last few workloads and checks, then without a single one."""
    sizes = range(LARGEST_ADDITION + 1)
    for workloads, checks in sorted(((a, b) for a in sizes for b in sizes), key=sum):
        if workloads <= len(kernel.workloads) and checks <= len(kernel.checks):
            yield replace(
                kernel,
                workloads=kernel.workloads[: len(kernel.workloads) - workloads],
                checks=kernel.checks[: len(kernel.checks) - checks],
            )
    for workload in kernel.workloads:
        others = tuple(one for one in kernel.workloads if one is not workload)
        yield replace(kernel, workloads=others)
    for check in kernel.checks:
        yield replace(kernel, checks=tuple(one for one in kernel.checks if one is not check))


def _semantics(kernel: KernelSpec) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "options": kernel.options,
        "dims": [replace(dim, doc="") for dim in kernel.dims],
        "arguments": kernel.arguments,
        "constants": kernel.constants,
        "work": (kernel.work_flop, kernel.work_bytes),
        "alignment": (kernel.pointer_bytes, kernel.stride_elements),
        "reference": kernel.reference_text,
        "uses": kernel.reference_uses,
    }


def _source(template: TemplateSpec) -> TemplateSpec:
    """The template without what neither rendering nor launching reads."""
    return replace(
        template,
        idea="",
        presets=(),
        probes=(),
        parameters=tuple(replace(parameter, doc="") for parameter in template.parameters),
    )
