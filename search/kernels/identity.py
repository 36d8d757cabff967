"""The identity of a kernel: its operation, its reference and its templates.

Workloads, checks and probes are no part of it. `digest(kernel)` covers them as well; searches that
were submitted before files were frozen store that digest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from greenfast.search.digest import digest
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.submitted_name import is_submitted

LARGEST_ADDITION = 3  # workloads, and likewise checks, that may have been appended since


def semantics_digest(kernel: KernelSpec) -> str:
    """Identifies the operation: dims, arguments, options, work and the reference."""
    return digest(_semantics(kernel))


def kernel_identity(kernel: KernelSpec) -> str:
    """Identifies the operation and every source that a search over the kernel can render."""
    own = (template for template in kernel.templates if not is_submitted(template.name))
    return digest({**_semantics(kernel), "templates": [_source(template) for template in own]})


def launching_digest(template: TemplateSpec) -> str:
    """Identifies how a template's text is launched and checked, whatever the text is."""
    return digest(replace(_source(template), text=""))


def passed_checks(kernel: KernelSpec) -> tuple[tuple[str, str], ...]:
    """(name, digest) of each check of the kernel, to be stored with a confirmation."""
    return tuple((check.name, digest(replace(check, name=""))) for check in kernel.checks)


def newer_checks(kernel: KernelSpec, passed: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Names of the kernel's checks that are not among `passed`, compared by content."""
    known = {content for _, content in passed}
    return tuple(name for name, content in passed_checks(kernel) if content not in known)


def earlier_form(kernel: KernelSpec, whole_digest: str) -> KernelSpec | None:
    """The kernel without the additions made since `digest(kernel)` was `whole_digest`.

    None when no such form of it exists.
    """
    return next((form for form in _earlier_forms(kernel) if digest(form) == whole_digest), None)


def _earlier_forms(kernel: KernelSpec) -> Iterator[KernelSpec]:
    """The kernel; without its last few workloads and checks; without any single one of them."""
    sizes = range(LARGEST_ADDITION + 1)
    for workloads, checks in sorted(((a, b) for a in sizes for b in sizes), key=sum):
        if workloads <= len(kernel.workloads) and checks <= len(kernel.checks):
            yield replace(
                kernel,
                workloads=kernel.workloads[: len(kernel.workloads) - workloads],
                checks=kernel.checks[: len(kernel.checks) - checks],
            )
    for workload in kernel.workloads:
        rest = tuple(other for other in kernel.workloads if other is not workload)
        yield replace(kernel, workloads=rest)
    for check in kernel.checks:
        yield replace(kernel, checks=tuple(other for other in kernel.checks if other is not check))


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
    """The template without the fields that neither rendering nor launching reads."""
    return replace(
        template,
        idea="",
        presets=(),
        probes=(),
        parameters=tuple(replace(parameter, doc="") for parameter in template.parameters),
    )
