"""Reading a kernel's folder: its kernel.toml, its reference.py and its templates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypedDict

from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.argument_specs import read_arguments
from greenfast.search.kernels.author_files import read_author_file
from greenfast.search.kernels.expressions import (
    Expression,
    computed_size,
    expression,
    require_names,
)
from greenfast.search.kernels.mistakes import Mistakes
from greenfast.search.kernels.places import located
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
from greenfast.search.kernels.workloads import (
    LARGEST_DIM,
    Dim,
    Option,
    Requirement,
    Workload,
    complete_dims,
    complete_options,
)
from greenfast.search.shipped import KERNEL_TEMPLATES

LAYOUTS = ("contiguous", "padded", "bshd")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,47}\Z", re.ASCII)
LARGEST_ALIGNMENT = 256  # bytes: where CUDA puts what it allocates
MOST_SEEDS = 1000  # of a check
TMA_BYTES = 16  # every tensor map starts at a multiple of it


def load_kernel(folder: Path, *, without_templates: bool = False) -> KernelSpec:
    """The kernel of a folder; SpecError with every mistake found when its files are invalid.

    The folder holds kernel.toml, reference.py, and for each template a .toml and a .cu.j2, which
    may be divided into parts. Kernels whose reference.py this one imports are looked up beside the
    folder, then among the shipped ones. A workload with a mistake is left out; naming it raises
    the SpecError of that mistake.

    `without_templates` is for a folder that has none yet: checks, whose sizes need the tiles of
    templates, and the baseline are not examined.
    """
    mistakes = Mistakes(folder)
    kernel = mistakes.value(lambda: _read_kernel(folder, mistakes, without_templates), None)
    mistakes.raise_any()
    assert kernel is not None, "a kernel without mistakes is read to its end"
    return kernel


def _read_kernel(folder: Path, mistakes: Mistakes, without_templates: bool) -> KernelSpec | None:
    """The kernel; not to be used once there is one of the `mistakes`, and None after some.

    Raises SpecError for a mistake that makes reading on pointless.
    """
    table = _kernel_table(folder)
    names = _names(table, mistakes)
    if mistakes:  # further ones would follow from these
        return None
    arguments = read_arguments(table, names.known, names.dims, names.options, mistakes)
    properties = _properties(table, folder, names, mistakes)
    templates = () if without_templates else _templates(folder, names, arguments, mistakes)
    if mistakes:  # checks are sized by tiles, which a broken template does not tell
        return None
    probed = names.known | set(tile_names(templates))
    outputs = [argument.name for argument in arguments if argument.kind == "output"]
    kernel = KernelSpec(
        name=folder.name,
        options=names.options,
        dims=names.dims,
        arguments=arguments,
        constants=names.constants,
        checks=() if without_templates else _checks(table, names, templates, mistakes),
        templates=templates,
        folder=folder,
        probes=mistakes.value(lambda: read_probes(table, probed, outputs), ()),
        probe_cases=mistakes.value(lambda: table.strings("probe_cases", []), ()),
        **properties,
    )
    if without_templates:
        return kernel
    mistakes.value(table.finish, None)
    if not mistakes:
        mistakes.value(lambda: _check_consistent(kernel, table.where), None)
    return kernel


def _kernel_table(folder: Path) -> Table:
    """kernel.toml, whose name must be the folder's."""
    table = Table.read(folder / "kernel.toml", f"{folder.name}/kernel.toml")
    name = checked_name(table.get("name", str), table.where)
    if name != folder.name:
        raise SpecError(
            f"{table.where}: name is {name!r} in a folder called {folder.name!r}", code="bad_spec"
        )
    return table


@dataclass(frozen=True)
class _Names:
    """The names that a kernel defines for its expressions."""

    options: tuple[Option, ...]
    dims: tuple[Dim, ...]
    constants: tuple[tuple[str, Expression], ...]

    @property
    def known(self) -> set[str]:
        return {
            *(option.name for option in self.options),
            *(dim.name for dim in self.dims),
            *(name for name, _ in self.constants),
        }


def _names(table: Table, mistakes: Mistakes) -> _Names:
    options = _options(table.table("options"), mistakes)
    dims = _dims(table.table("dims"), mistakes)
    constants = mistakes.value(lambda: _constants(table.table("constants")), ())
    _check_names_differ(options, dims, constants, table.where, mistakes)
    return _Names(options, dims, constants)


class _Properties(TypedDict):
    """The parts of a kernel by which no other part is read."""

    work_flop: Expression
    work_bytes: Expression
    pointer_bytes: int
    stride_elements: int
    title: str
    baseline: str
    workloads: tuple[Workload, ...]
    broken_workloads: tuple[tuple[str, str], ...]
    reference_text: str
    reference_uses: tuple[tuple[str, str], ...]
    requirements: tuple[Requirement, ...]
    empty_dims: tuple[str, ...]


def _properties(table: Table, folder: Path, names: _Names, mistakes: Mistakes) -> _Properties:
    nothing = Expression("0", frozenset())
    work_flop, work_bytes = mistakes.value(
        lambda: _work(table.table("work"), names.known), (nothing, nothing)
    )
    pointer_bytes, stride_elements = mistakes.value(
        lambda: _alignment(table.table("alignment")), (16, 1)
    )
    title, baseline = (
        mistakes.value(partial(table.get, key, str), "") for key in ("title", "baseline")
    )
    workloads, broken_workloads = _workloads(table, names.dims, names.options, folder)
    return _Properties(
        work_flop=work_flop,
        work_bytes=work_bytes,
        pointer_bytes=pointer_bytes,
        stride_elements=stride_elements,
        title=title,
        baseline=baseline,
        workloads=workloads,
        broken_workloads=broken_workloads,
        reference_text=mistakes.value(
            lambda: read_author_file(folder / "reference.py", f"{folder.name}/reference.py"), ""
        ),
        reference_uses=mistakes.value(lambda: _reference_uses(table, folder), ()),
        requirements=mistakes.value(lambda: _requirements(table, names.dims, names.known), ()),
        empty_dims=mistakes.value(lambda: _empty_dims(table, names.dims), ()),
    )


def _templates(
    folder: Path, names: _Names, arguments: tuple[Argument, ...], mistakes: Mistakes
) -> tuple[TemplateSpec, ...]:
    templates = mistakes.each(
        (path for path in sorted(folder.glob("*.toml")) if path.name != "kernel.toml"),
        lambda path: read_template(path, folder, names.dims, names.options, arguments, mistakes),
    )
    if not templates and not mistakes:
        raise SpecError(
            f"{folder.name}: the folder has no template",
            code="no_template",
            mend=f"write one with `greenfast new template {folder.name} NAME`",
        )
    return templates


def _check_names_differ(
    options: tuple[Option, ...],
    dims: tuple[Dim, ...],
    constants: tuple[tuple[str, Expression], ...],
    where: str,
    mistakes: Mistakes,
) -> None:
    """An option, a dim and a constant of one name would hide each other in expressions."""
    tables = (
        ("options", tuple(option.name for option in options)),
        ("dims", tuple(dim.name for dim in dims)),
        ("constants", tuple(name for name, _ in constants)),
    )
    first: dict[str, str] = {}
    for table, names in tables:
        for name in names:
            if name in first:
                mistakes.add(
                    SpecError(
                        f"{where}, [{table}] {name}: [{first[name]}] has this name too",
                        code="bad_spec",
                        mend="rename one of them",
                    )
                )
            first.setdefault(name, table)


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
        raise SpecError(f"{where}, baseline: {error}", code="bad_spec") from error


def _options(table: Table, mistakes: Mistakes) -> tuple[Option, ...]:
    def option(item: tuple[str, object]) -> Option:
        name, data = item
        entry = Table(data, f"{table.where} {name}")
        values = entry.strings("values")
        default = entry.one_of("default", values)
        entry.finish()
        return Option(unreserved(checked_name(name, entry.where), entry.where), values, default)

    return mistakes.each(table.items(), option)


def _dims(table: Table, mistakes: Mistakes) -> tuple[Dim, ...]:
    names = [name for name, _ in table.items()]

    def dim(item: tuple[str, object]) -> Dim:
        name, data = item
        entry = Table(data, f"{table.where} {name}")
        if not _IDENTIFIER.match(name):
            raise SpecError(
                f"{entry.where}: the name {name!r}; a dim's name is letters, digits and _",
                code="bad_spec",
            )
        values = tuple(entry.get("values", list, []))
        if not all(type(value) is int and 0 <= value <= LARGEST_DIM for value in values):
            raise SpecError(
                f"{entry.where}: values must be whole numbers, not {list(values)!r}",
                code="bad_spec",
            )
        time = entry.one_of("time", ("compile", "run"))
        doc, default = entry.get("doc", str, ""), entry.optional_expression("default")
        entry.finish()
        if default is not None:
            _require_earlier(default, names[: names.index(name)], names)
        return Dim(unreserved(name, entry.where), time, doc, default, values)

    return mistakes.each(table.items(), dim)


def _require_earlier(default: Expression, earlier: Sequence[str], names: Sequence[str]) -> None:
    """SpecError unless a dim's default uses only dims above it, which have values by then."""
    if late := sorted(default.names & set(names) - set(earlier)):
        raise SpecError(
            f"{default.where}: {default.text!r} uses {late[0]}, which is not above this dim",
            code="unknown_name",
            mend="a default may use the dims above it; change their order",
        )
    require_names(default, set(earlier))


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
    pointer_bytes, stride_elements = (
        table.get(key, int, default)
        for key, default in (("pointer_bytes", 16), ("stride_elements", 1))
    )
    table.finish()
    if not 0 < pointer_bytes <= LARGEST_ALIGNMENT or pointer_bytes & (pointer_bytes - 1):
        raise SpecError(
            f"{table.where}, pointer_bytes: {pointer_bytes} is no power of two from 1 to "
            f"{LARGEST_ALIGNMENT}",
            code="bad_spec",
        )
    if not 0 < stride_elements <= LARGEST_DIM:
        raise SpecError(
            f"{table.where}, stride_elements: {stride_elements} is not between 1 and {LARGEST_DIM}",
            code="bad_spec",
        )
    return pointer_bytes, stride_elements


def _reference_uses(table: Table, folder: Path) -> tuple[tuple[str, str], ...]:
    """Name and reference.py of each kernel that this one's reference.py imports."""
    roots = (folder.parent, KERNEL_TEMPLATES)
    return tuple(
        (
            name if ":" in name else checked_name(name, table.where),
            used_reference(name, folder, roots),
        )
        for name in used_names(table)
    )


def _workloads(
    table: Table, dims: tuple[Dim, ...], options: tuple[Option, ...], folder: Path
) -> tuple[tuple[Workload, ...], tuple[tuple[str, str], ...]]:
    """The workloads, and the names of those with a mistake, each with its sentence."""
    workloads, broken = [], []
    for name, data in table.items_of("workloads"):
        where = f"{table.where}, [workloads.{name}]"
        try:
            workloads.append(_workload(name, Table(data, where), dims, options))
        except SpecError as error:
            broken.append((name, str(located(error, folder))))
    return tuple(workloads), tuple(broken)


def _workload(
    name: str, table: Table, dims: tuple[Dim, ...], options: tuple[Option, ...]
) -> Workload:
    sizes = dict(table.table("dims").items())
    values = dict(table.table("options").items())
    title = table.get("title", str, name)
    table.finish()
    for dim, size in sizes.items():
        if type(size) is not int or not 0 <= size <= LARGEST_DIM:
            raise SpecError(
                f"{table.where}, [dims] {dim}: {size!r} is not a whole number from 0 to "
                f"{LARGEST_DIM}",
                code="bad_spec",
                mend=f"write {dim} = 32" + (", without quotes" if isinstance(size, str) else ""),
            )
    return Workload(
        checked_name(name, table.where),
        title,
        complete_dims(sizes, dims, table.where),
        complete_options(values, options, table.where),
    )


def _empty_dims(table: Table, dims: tuple[Dim, ...]) -> tuple[str, ...]:
    names, known = table.strings("empty_dims", []), [dim.name for dim in dims]
    if unknown := [name for name in names if name not in known]:
        raise SpecError(
            f"{table.where}, empty_dims: {unknown[0]!r} is not a dim",
            code="unknown_dim",
            mend="known: " + (", ".join(known) or "none"),
        )
    return names


def _requirements(table: Table, dims: tuple[Dim, ...], known: set[str]) -> tuple[Requirement, ...]:
    """The file's requirements, and that each computed size equals its default."""
    requirements = []
    for entry in table.tables("requires"):
        condition = entry.expression("that")
        require_names(condition, known)
        requirements.append(Requirement(condition, entry.get("because", str)))
        entry.finish()
    written = [requirement.expression for requirement in requirements]
    for dim in dims:
        if computed := computed_size(dim.name, dim.default, dim.values, written):
            requirements.append(Requirement(*computed))
    return tuple(requirements)


def _checks(
    table: Table, names: _Names, templates: tuple[TemplateSpec, ...], mistakes: Mistakes
) -> tuple[Check, ...]:
    dims, options = names.dims, names.options
    constants = [name for name, _ in names.constants]
    compiled = {dim.name for dim in dims if dim.time == "compile"}
    known = set(tile_names(templates)) | compiled | {option.name for option in options}
    all_dims = {dim.name for dim in dims}

    def check(entry: Table) -> Check:
        sizes = tuple(
            (name, expression(text, f"{entry.where}, {name}"))
            for name, text in entry.table("dims").items()
        )
        own = tuple(
            (name, expression(text, f"{entry.where}, {name}"))
            for name, text in entry.table("constants").items()
        )
        for name, _ in own:
            if name not in constants:
                raise SpecError(
                    f"{entry.where}, [constants] {name}: the kernel has no such constant",
                    code="unknown_constant",
                    mend="known: " + (", ".join(constants) or "none"),
                )
        when = entry.optional_expression("when")
        result = Check(
            checked_name(entry.get("name", str), entry.where),
            (*sizes, *own),
            entry.get("inputs", str),
            entry.one_of("layout", LAYOUTS, "contiguous"),
            entry.get("seeds", int, 3),
            when,
        )
        for name, _ in sizes:
            if name not in all_dims:
                raise SpecError(
                    f"{entry.where}, [dims] {name}: there is no such dim",
                    code="unknown_dim",
                    mend="known: " + ", ".join(dim.name for dim in dims),
                )
        sized = {name for name, _ in sizes} | compiled
        missing = [dim.name for dim in dims if dim.default is None and dim.name not in sized]
        if missing:
            raise SpecError(
                f"{entry.where}: the size of {', '.join(missing)} is missing",
                code="bad_spec",
                mend=f'write dims = {{ {missing[0]} = "32" }}',
            )
        if not 0 <= result.seeds <= MOST_SEEDS:
            raise SpecError(
                f"{entry.where}, seeds: {result.seeds} is not between 0 and {MOST_SEEDS}",
                code="bad_spec",
            )
        for needed in result.expressions:
            require_names(needed, known)
        entry.finish()
        return result

    return mistakes.each(table.tables("checks"), check)
