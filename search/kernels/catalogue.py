"""Finding and reading kernels: folders with a kernel.toml, beside the package and on GREENFAST_TEMPLATE_PATH."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from greenfast.search.errors import GreenfastError, SpecError, UsageError, unknown_name
from greenfast.search.kernels.expressions import Expression, Value, expression, require_names
from greenfast.search.kernels.freshness import LoadedKernel
from greenfast.search.kernels.probe_spec import (
    check_template_probes,
    read_probes,
    read_template_probes,
)
from greenfast.search.kernels.reference_text import used_names, used_reference
from greenfast.search.kernels.spec import (
    Argument,
    Check,
    Constraint,
    Dim,
    KernelSpec,
    LaunchSpec,
    Option,
    Parameter,
    Preset,
    TemplateSpec,
    Workload,
    Workspace,
    tile_names,
)
from greenfast.search.kernels.tables import Table
from greenfast.search.kernels.template_text import read_template_text, read_text
from greenfast.search.shipped import KERNEL_TEMPLATES as REPOSITORY_TEMPLATES

PATH_VARIABLE = "GREENFAST_TEMPLATE_PATH"
LAYOUTS = ("contiguous", "padded", "bshd")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
_STRIDE = re.compile(r"stride\((\w+), (\d)\)\Z")


class Catalogue:
    """The kernels that can be asked for. A broken one is refused when it is asked for, not when others are."""

    def __init__(self, roots: Sequence[Path], headers: Sequence[Path] | None = None) -> None:
        """`headers`: the only folders for `#include "gf/..."`, where they are not those of the roots and ours."""
        self._roots = tuple(roots)
        self._headers = headers
        self._loaded: dict[str, LoadedKernel] = {}

    @classmethod
    def from_environment(cls) -> Catalogue:
        extra = os.environ.get(PATH_VARIABLE, "")
        return cls(
            [REPOSITORY_TEMPLATES, *(Path(word) for word in extra.split(os.pathsep) if word)]
        )

    @cached_property
    def include_dirs(self) -> tuple[Path, ...]:
        """Where `#include "gf/..."` is looked up; the shipped primitives are always there."""
        if self._headers is not None:
            return tuple(self._headers)
        folders = (root / "include" for root in (*self._roots, REPOSITORY_TEMPLATES))
        return tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))

    @property
    def folders(self) -> dict[str, Path]:
        """Kernel name -> folder; a later root wins, so that a user's kernel can replace ours."""
        found: dict[str, Path] = {}
        for root in self._roots:
            if not root.is_dir():
                raise UsageError(
                    f"the template folder {root} does not exist",
                    code="missing_template_path",
                    mend=f"correct {PATH_VARIABLE}",
                )
            found.update(
                {path.parent.name: path.parent for path in sorted(root.glob("*/kernel.toml"))}
            )
        return found

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.folders))

    def kernel(self, name: str) -> KernelSpec:
        """The kernel of that name, read again when its files have changed.

        UsageError when it is unknown, SpecError when its files contradict each other.
        """
        loaded = self._loaded.get(name)
        if loaded is not None and loaded.was_examined():
            return loaded.kernel
        folders = self.folders
        if name not in folders:
            raise unknown_name("kernel", name, folders)
        if loaded is None or not loaded.is_current(folders[name]):
            self._loaded.pop(name, None)
            loaded = self._loaded[name] = LoadedKernel.read(folders[name], load_kernel)
        return loaded.kernel

    def kernels(self) -> tuple[KernelSpec | GreenfastError, ...]:
        """Every kernel, or the error that stands in its place: one broken folder does not hide the others."""
        found: list[KernelSpec | GreenfastError] = []
        for name in self.names():
            try:
                found.append(self.kernel(name))
            except GreenfastError as error:
                found.append(error)
        return tuple(found)


def load_kernel(folder: Path) -> KernelSpec:
    """Read one kernel's folder: kernel.toml, reference.py, and each template's .toml with its .cu.j2 and parts.

    Kernels that its reference.py builds on are looked up beside it, then among the shipped ones.
    """
    table = Table.read(folder / "kernel.toml", f"{folder.name}/kernel.toml")
    name = _name(table.get("name", str), table.where)
    if name != folder.name:
        raise SpecError(
            f"{table.where}: name is {name!r} in a folder called {folder.name!r}", code="bad_spec"
        )
    options, dims = _options(table.table("options")), _dims(table.table("dims"))
    constants = tuple(
        (key, expression(text, f"{table.where}, [constants] {key}"))
        for key, text in table.table("constants").items()
    )
    known = {option.name for option in (*options, *dims)} | {key for key, _ in constants}
    work, alignment = table.table("work"), table.table("alignment")
    work_flop, work_bytes = work.expression("flop"), work.expression("bytes")
    for one in (work_flop, work_bytes):
        require_names(one, known)
    templates = tuple(
        _template(path, folder, dims, options)
        for path in sorted(folder.glob("*.toml"))
        if path.name != "kernel.toml"
    )
    spec = KernelSpec(
        name=name,
        title=table.get("title", str),
        baseline=table.get("baseline", str),
        options=options,
        dims=dims,
        arguments=_arguments(table, known),
        constants=constants,
        work_flop=work_flop,
        work_bytes=work_bytes,
        pointer_bytes=alignment.get("pointer_bytes", int, 16),
        stride_elements=alignment.get("stride_elements", int, 1),
        workloads=tuple(
            _workload(key, one, dims, options) for key, one in table.named("workloads")
        ),
        checks=_checks(table, dims, options, templates),
        templates=templates,
        reference_text=read_text(folder / "reference.py", f"{folder.name}/reference.py"),
        folder=folder,
        probes=read_probes(table, known | set(tile_names(templates))),
        probe_cases=table.strings("probe_cases", []),
        reference_uses=tuple(
            (
                _name(one, table.where),
                used_reference(one, folder, (folder.parent, REPOSITORY_TEMPLATES)),
            )
            for one in used_names(table)
        ),
    )
    for one in (work, alignment, table):
        one.finish()
    for template in spec.templates:
        check_template_probes(f"{name}/{template.name}.toml", template.probes, spec.probes)
    try:
        spec.preset(spec.baseline)
    except UsageError as error:
        raise SpecError(f"{table.where}: the baseline: {error}", code="bad_spec") from error
    return spec


def _name(text: str, where: str) -> str:
    if not _NAME.match(text):
        raise SpecError(
            f"{where}: the name {text!r}; names are small letters, digits and _", code="bad_spec"
        )
    return text


def _options(table: Table) -> tuple[Option, ...]:
    found = []
    for name, data in table.items():
        one = Table(data, f"{table.where} {name}")
        values = one.strings("values")
        found.append(Option(_name(name, one.where), values, one.one_of("default", values)))
        one.finish()
    return tuple(found)


def _dims(table: Table) -> tuple[Dim, ...]:
    found = []
    for name, data in table.items():
        one = Table(data, f"{table.where} {name}")
        found.append(
            Dim(
                name,
                one.one_of("time", ("compile", "run")),
                one.get("doc", str, ""),
                one.expression("default", None),
                tuple(one.get("values", list, [])),
            )
        )
        one.finish()
    return tuple(found)


def _arguments(table: Table, known: set[str]) -> tuple[Argument, ...]:
    found: list[Argument] = []
    for one in table.tables("arguments"):
        kind = one.one_of("kind", ("input", "output", "scalar"))
        value, stride_of = None, None
        if kind == "scalar":
            text = str(one.get("value", (str, int, float)))
            if match := _STRIDE.match(text):
                stride_of = (match.group(1), int(match.group(2)))
                owner = next((a for a in found if a.name == stride_of[0]), None)
                if owner is None or stride_of[1] >= len(owner.shape):
                    raise SpecError(
                        f"{one.where}: {text} names no axis of an argument before it",
                        code="bad_spec",
                    )
            else:
                value = expression(text, f"{one.where}, value")
                require_names(value, known)
        shape = () if kind == "scalar" else one.strings("shape")
        found.append(
            Argument(
                one.get("name", str),
                kind,
                one.one_of(
                    "dtype", ("dtype", "fp16", "bf16", "float32", "int32", "int64", "uint8")
                ),
                shape,
                value,
                stride_of,
                one.get("optional", bool, False),
                one.get("contiguous", bool, False),
            )
        )
        one.finish()
    if not any(one.kind == "output" for one in found):
        raise SpecError(f"{table.where}: no [[arguments]] of kind output", code="bad_spec")
    return tuple(found)


def _workload(
    name: str, table: Table, dims: tuple[Dim, ...], options: tuple[Option, ...]
) -> Workload:
    given = dict(table.table("dims").items())
    chosen = dict(table.table("options").items())
    title = table.get("title", str, name)
    table.finish()
    return Workload(
        _name(name, table.where),
        title,
        complete_dims(given, dims, table.where),
        complete_options(chosen, options, table.where),
    )


def complete_dims(
    given: dict[str, Value], dims: tuple[Dim, ...], where: str
) -> tuple[tuple[str, Value], ...]:
    """Every dim with a value: the given ones, then defaults over them. SpecError for unknown or missing ones."""
    for name in given:
        if name not in {dim.name for dim in dims}:
            raise SpecError(
                f"{where}: unknown dim {name!r}",
                code="unknown_dim",
                mend="known: " + ", ".join(dim.name for dim in dims),
            )
    values = dict(given)
    for dim in dims:
        if dim.name not in values:
            if dim.default is None:
                raise SpecError(f"{where}: dim {dim.name} has no value", code="bad_spec")
            values[dim.name] = dim.default(values)
        if dim.values and values[dim.name] not in dim.values:
            raise SpecError(
                f"{where}: {dim.name} = {values[dim.name]}; it may be "
                + ", ".join(map(str, dim.values)),
                code="bad_spec",
            )
    return tuple((dim.name, values[dim.name]) for dim in dims)


def complete_options(
    given: dict[str, Value], options: tuple[Option, ...], where: str
) -> tuple[tuple[str, Value], ...]:
    for name, value in given.items():
        option = next((one for one in options if one.name == name), None)
        if option is None or value not in option.values:
            known = [one.name for one in options] if option is None else option.values
            raise SpecError(
                f"{where}: unknown option {name} = {value!r}",
                code="unknown_option",
                mend="known: " + ", ".join(map(str, known)),
            )
    return tuple((one.name, given.get(one.name, one.default)) for one in options)


def _checks(
    table: Table,
    dims: tuple[Dim, ...],
    options: tuple[Option, ...],
    templates: tuple[TemplateSpec, ...],
) -> tuple[Check, ...]:
    compiled = {dim.name for dim in dims if dim.time == "compile"}
    known = set(tile_names(templates)) | compiled | {option.name for option in options}
    found = []
    for one in table.tables("checks"):
        sizes = tuple(
            (name, expression(text, f"{one.where}, {name}"))
            for name, text in one.table("dims").items()
        )
        when = one.expression("when", None)
        found.append(
            Check(
                _name(one.get("name", str), one.where),
                sizes,
                one.get("inputs", str),
                one.one_of("layout", LAYOUTS, "contiguous"),
                one.get("seeds", int, 3),
                when,
            )
        )
        for each in found[-1].expressions:
            require_names(each, known)
        one.finish()
    return tuple(found)


def _template(
    path: Path, folder: Path, dims: tuple[Dim, ...], options: tuple[Option, ...]
) -> TemplateSpec:
    shown = f"{folder.name}/{path.name}"
    table = Table.read(path, shown)
    name = _name(table.get("name", str), shown)
    if name != path.stem or table.get("kernel", str) != folder.name:
        raise SpecError(
            f"{shown}: name and kernel must be {path.stem!r} and {folder.name!r}", code="bad_spec"
        )
    parameters = tuple(_parameter(key, one) for key, one in table.named("parameters"))
    compiled = {dim.name for dim in dims if dim.time == "compile"} | {
        option.name for option in options
    }
    known = {parameter.name for parameter in parameters} | compiled
    for parameter in parameters:
        if parameter.when is not None:
            require_names(parameter.when, known)
    local = _locals(table.table("locals"), known)
    known |= {key for key, _ in local}
    run_known = known | {dim.name for dim in dims}
    written = read_template_text(folder, name)
    tiles = tuple(
        (key, _known(expression(text, f"{shown}, [tiles] {key}"), known))
        for key, text in table.table("tiles").items()
    )
    probes, warp_rows = read_template_probes(
        table.table("probes"), known, run_known | {one for one, _ in tiles}
    )
    spec = TemplateSpec(
        name=name,
        kernel=folder.name,
        idea=table.get("idea", str),
        minimum_sm=table.get("minimum_sm", int, 70),
        supports=_supports(
            table.table("supports"),
            {dim.name for dim in dims} | {option.name for option in options},
        ),
        parameters=parameters,
        locals=local,
        constraints=_constraints(table, known),
        tiles=tiles,
        launches=tuple(_launch(one, known, run_known) for one in table.tables("launches")),
        workspaces=tuple(_workspace(one, known, run_known) for one in table.tables("workspaces")),
        presets=tuple(_preset(key, one, parameters) for key, one in table.named("presets")),
        deterministic=table.get("deterministic", bool, True),
        deterministic_when=_when(
            table, {parameter.name for parameter in parameters}, "deterministic_when"
        ),
        text=written.text,
        lines=written.lines,
        path=folder / f"{name}.cu.j2",
        probes=probes,
        warp_rows=warp_rows,
    )
    table.finish()
    if not spec.launches:
        raise SpecError(f"{shown}: no [[launches]]", code="bad_spec")
    return spec


def _known(found: Expression, known: set[str]) -> Expression:
    require_names(found, known)
    return found


def _supports(table: Table, known: set[str]) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    for name, values in table.items():
        if name not in known or not isinstance(values, list):
            raise SpecError(
                f"{table.where}: {name!r} must be a dim or option with a list of values",
                code="bad_spec",
                mend="known: " + ", ".join(sorted(known)),
            )
    return tuple((name, tuple(values)) for name, values in table.items())


def _parameter(name: str, table: Table) -> Parameter:
    kind = table.one_of("type", ("int", "bool", "choice"))
    python = {"int": int, "bool": bool, "choice": str}[kind]
    values = tuple(table.get("values", list, [False, True] if kind == "bool" else None) or ())
    if (
        not values
        or any(type(value) is not python for value in values)
        or len(set(values)) != len(values)
    ):
        raise SpecError(
            f"{table.where}: values must be a list of different {kind} values", code="bad_spec"
        )
    default = table.get("default", python)
    if default not in values:
        raise SpecError(
            f"{table.where}: the default {default!r} is not among the values", code="bad_spec"
        )
    numerics = table.one_of("numerics", ("same", "own"), "own")
    found = Parameter(
        _name(name, table.where),
        kind,
        values,
        default,
        table.get("doc", str, ""),
        numerics == "same",
        table.expression("when", None),
    )
    table.finish()
    return found


def _locals(table: Table, known: set[str]) -> tuple[tuple[str, Expression], ...]:
    found: list[tuple[str, Expression]] = []
    for name, text in table.items():
        one = expression(text, f"{table.where} {name}")
        require_names(one, known | {key for key, _ in found})
        found.append((name, one))
    return tuple(found)


def _constraints(table: Table, known: set[str]) -> tuple[Constraint, ...]:
    found = []
    for one in table.tables("constraints"):
        found.append(Constraint(_known(one.expression("expr"), known), one.get("because", str)))
        one.finish()
    return tuple(found)


def _launch(table: Table, known: set[str], run_known: set[str]) -> LaunchSpec:
    def three(
        key: str, names: set[str], *default: list[str]
    ) -> tuple[Expression, Expression, Expression]:
        texts = table.get(key, list, *default)
        if len(texts) != 3:
            raise SpecError(f"{table.where}: {key} needs three expressions", code="bad_spec")
        x, y, z = (_known(expression(text, f"{table.where}, {key}"), names) for text in texts)
        return x, y, z

    found = LaunchSpec(
        table.get("entry", str),
        three("grid", run_known),
        three("block", known),
        _known(table.expression("smem_dynamic_bytes", 0), known),
        three("cluster", known, ["1", "1", "1"]),
        _when(table, known),
    )
    table.finish()
    return found


def _workspace(table: Table, known: set[str], run_known: set[str]) -> Workspace:
    found = Workspace(
        _name(table.get("name", str), table.where),
        _known(table.expression("bytes"), run_known),
        table.get("zero_fill", bool, False),
        _when(table, known),
    )
    table.finish()
    return found


def _when(table: Table, known: set[str], key: str = "when") -> Expression | None:
    found = table.expression(key, None)
    return None if found is None else _known(found, known)


def _preset(name: str, table: Table, parameters: tuple[Parameter, ...]) -> Preset:
    given = dict(table.table("parameters").items())
    by_name = {parameter.name: parameter for parameter in parameters}
    for key, value in given.items():
        if key not in by_name or value not in by_name[key].values:
            raise SpecError(
                f"{table.where}: {key} = {value!r} is not a value of this template", code="bad_spec"
            )
    found = Preset(
        _name(name, table.where),
        table.get("doc", str, ""),
        tuple(
            (parameter.name, given.get(parameter.name, parameter.default))
            for parameter in parameters
        ),
    )
    table.finish()
    return found
