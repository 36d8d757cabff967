"""Reading a kernel's folder: its kernel.toml, its reference.py and its templates."""

from __future__ import annotations

import re
from pathlib import Path

from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.expressions import Expression, expression, require_names
from greenfast.search.kernels.probe_spec import check_template_probes, read_probes
from greenfast.search.kernels.reference_text import used_names, used_reference
from greenfast.search.kernels.spec import (
    Argument,
    Check,
    KernelSpec,
    TemplateSpec,
    tile_names,
)
from greenfast.search.kernels.tables import Table, checked_name, unreserved
from greenfast.search.kernels.template_file import read_template
from greenfast.search.kernels.template_text import read_text
from greenfast.search.kernels.workloads import (
    Dim,
    Option,
    Requirement,
    Workload,
    complete_dims,
    complete_options,
)
from greenfast.search.shipped import KERNEL_TEMPLATES

LAYOUTS = ("contiguous", "padded", "bshd")
DTYPES = ("dtype", "fp16", "bf16", "float32", "int32", "int64", "uint8")
TMA_BYTES = 16  # every tensor map starts at a multiple of it
_STRIDE = re.compile(r"stride\((\w+), (\d)\)\Z")


def load_kernel(folder: Path) -> KernelSpec:
    """The kernel of a folder; SpecError when its files are invalid.

    The folder holds kernel.toml, reference.py, and for each template a .toml and a .cu.j2, which
    may be divided into parts. Kernels whose reference.py this one imports are looked up beside the
    folder, then among the shipped ones.
    """
    table = Table.read(folder / "kernel.toml", f"{folder.name}/kernel.toml")
    name = checked_name(table.get("name", str), table.where)
    if name != folder.name:
        raise SpecError(
            f"{table.where}: name is {name!r} in a folder called {folder.name!r}", code="bad_spec"
        )
    options, dims = _options(table.table("options")), _dims(table.table("dims"))
    constants = _constants(table.table("constants"))
    known = {option.name for option in options} | {dim.name for dim in dims}
    known |= {key for key, _ in constants}
    work_flop, work_bytes = _work(table.table("work"), known)
    pointer_bytes, stride_elements = _alignment(table.table("alignment"))
    arguments = _arguments(table, known)
    templates = tuple(
        read_template(path, folder, dims, options, arguments)
        for path in sorted(folder.glob("*.toml"))
        if path.name != "kernel.toml"
    )
    kernel = KernelSpec(
        name=name,
        title=table.get("title", str),
        baseline=table.get("baseline", str),
        options=options,
        dims=dims,
        arguments=arguments,
        constants=constants,
        work_flop=work_flop,
        work_bytes=work_bytes,
        pointer_bytes=pointer_bytes,
        stride_elements=stride_elements,
        workloads=tuple(
            _workload(key, workload, dims, options) for key, workload in table.named("workloads")
        ),
        checks=_checks(table, dims, options, templates),
        templates=templates,
        reference_text=read_text(folder / "reference.py", f"{folder.name}/reference.py"),
        folder=folder,
        probes=read_probes(table, known | set(tile_names(templates))),
        probe_cases=table.strings("probe_cases", []),
        reference_uses=_reference_uses(table, folder),
        requirements=_requirements(table, known),
        empty_dims=table.strings("empty_dims", []),
    )
    table.finish()
    _check_consistent(kernel, table.where)
    return kernel


def _check_consistent(kernel: KernelSpec, where: str) -> None:
    for template in kernel.templates:
        shown = f"{kernel.name}/{template.name}.toml"
        check_template_probes(shown, template.probes, kernel.probes)
        if template.tensor_maps and kernel.pointer_bytes % TMA_BYTES:
            raise SpecError(
                f"{shown}: tensor maps need tensors at multiples of {TMA_BYTES} bytes, and "
                f"{where} promises {kernel.pointer_bytes}",
                code="tensor_map",
                mend=f"[alignment] pointer_bytes = {TMA_BYTES}",
            )
    try:
        kernel.preset(kernel.baseline)
    except UsageError as error:
        raise SpecError(f"{where}: the baseline: {error}", code="bad_spec") from error


def _options(table: Table) -> tuple[Option, ...]:
    options = []
    for name, data in table.items():
        entry = Table(data, f"{table.where} {name}")
        values = entry.strings("values")
        default = entry.one_of("default", values)
        options.append(
            Option(unreserved(checked_name(name, entry.where), entry.where), values, default)
        )
        entry.finish()
    return tuple(options)


def _dims(table: Table) -> tuple[Dim, ...]:
    dims = []
    for name, data in table.items():
        entry = Table(data, f"{table.where} {name}")
        dims.append(
            Dim(
                unreserved(name, entry.where),
                entry.one_of("time", ("compile", "run")),
                entry.get("doc", str, ""),
                entry.optional_expression("default"),
                tuple(entry.get("values", list, [])),
            )
        )
        entry.finish()
    return tuple(dims)


def _constants(table: Table) -> tuple[tuple[str, Expression], ...]:
    return tuple(
        (unreserved(key, table.where), expression(text, f"{table.where} {key}"))
        for key, text in table.items()
    )


def _work(table: Table, known: set[str]) -> tuple[Expression, Expression]:
    """Floating-point operations, and bytes of compulsory traffic."""
    flop, size_bytes = table.expression("flop"), table.expression("bytes")
    require_names(flop, known)
    require_names(size_bytes, known)
    table.finish()
    return flop, size_bytes


def _alignment(table: Table) -> tuple[int, int]:
    """Bytes that tensors are aligned to, and elements that strides are multiples of."""
    alignment = table.get("pointer_bytes", int, 16), table.get("stride_elements", int, 1)
    table.finish()
    return alignment


def _reference_uses(table: Table, folder: Path) -> tuple[tuple[str, str], ...]:
    """Name and reference.py of each kernel that this one's reference.py imports."""
    roots = (folder.parent, KERNEL_TEMPLATES)
    return tuple(
        (checked_name(name, table.where), used_reference(name, folder, roots))
        for name in used_names(table)
    )


def _arguments(table: Table, known: set[str]) -> tuple[Argument, ...]:
    arguments: list[Argument] = []
    for entry in table.tables("arguments"):
        kind = entry.one_of("kind", ("input", "output", "scalar"))
        value, stride_of = _scalar(entry, known, arguments) if kind == "scalar" else (None, None)
        shape = () if kind == "scalar" else entry.strings("shape")
        arguments.append(
            Argument(
                entry.get("name", str),
                kind,
                entry.one_of("dtype", DTYPES),
                shape,
                value,
                stride_of,
                entry.get("optional", bool, False),
                entry.get("contiguous", bool, False),
            )
        )
        entry.finish()
    if not any(argument.kind == "output" for argument in arguments):
        raise SpecError(f"{table.where}: no [[arguments]] of kind output", code="bad_spec")
    return tuple(arguments)


def _scalar(
    entry: Table, known: set[str], earlier: list[Argument]
) -> tuple[Expression | None, tuple[str, int] | None]:
    """A scalar's expression, or the tensor and axis whose stride it is."""
    text = str(entry.get("value", (str, int, float)))
    match = _STRIDE.match(text)
    if match is None:
        value = expression(text, f"{entry.where}, value")
        require_names(value, known)
        return value, None
    name, axis = match.group(1), int(match.group(2))
    owner = next((argument for argument in earlier if argument.name == name), None)
    if owner is None or axis >= len(owner.shape):
        raise SpecError(
            f"{entry.where}: {text} names no axis of an argument before it", code="bad_spec"
        )
    return None, (name, axis)


def _workload(
    name: str, table: Table, dims: tuple[Dim, ...], options: tuple[Option, ...]
) -> Workload:
    sizes = dict(table.table("dims").items())
    values = dict(table.table("options").items())
    title = table.get("title", str, name)
    table.finish()
    return Workload(
        checked_name(name, table.where),
        title,
        complete_dims(sizes, dims, table.where),
        complete_options(values, options, table.where),
    )


def _requirements(table: Table, known: set[str]) -> tuple[Requirement, ...]:
    requirements = []
    for entry in table.tables("requires"):
        condition = entry.expression("that")
        require_names(condition, known)
        requirements.append(Requirement(condition, entry.get("because", str)))
        entry.finish()
    return tuple(requirements)


def _checks(
    table: Table,
    dims: tuple[Dim, ...],
    options: tuple[Option, ...],
    templates: tuple[TemplateSpec, ...],
) -> tuple[Check, ...]:
    compiled = {dim.name for dim in dims if dim.time == "compile"}
    known = set(tile_names(templates)) | compiled | {option.name for option in options}
    checks = []
    for entry in table.tables("checks"):
        sizes = tuple(
            (name, expression(text, f"{entry.where}, {name}"))
            for name, text in entry.table("dims").items()
        )
        when = entry.optional_expression("when")
        check = Check(
            checked_name(entry.get("name", str), entry.where),
            sizes,
            entry.get("inputs", str),
            entry.one_of("layout", LAYOUTS, "contiguous"),
            entry.get("seeds", int, 3),
            when,
        )
        for needed in check.expressions:
            require_names(needed, known)
        checks.append(check)
        entry.finish()
    return tuple(checks)
