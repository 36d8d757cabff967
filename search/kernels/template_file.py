"""Reading a template: its .toml, with the text of its .cu.j2."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from greenfast.search.errors import SpecError
from greenfast.search.kernels.argument_specs import SCALAR_DTYPES
from greenfast.search.kernels.expressions import (
    SM_COUNT,
    Expression,
    Value,
    expression,
    require_names,
)
from greenfast.search.kernels.mistakes import Mistakes
from greenfast.search.kernels.probe_spec import read_template_probes
from greenfast.search.kernels.spec import (
    Argument,
    Constraint,
    LaunchSpec,
    Parameter,
    Preset,
    TemplateScalar,
    TemplateSpec,
    Workspace,
)
from greenfast.search.kernels.tables import Table, checked_entry, checked_name, unreserved
from greenfast.search.kernels.template_text import read_template_text
from greenfast.search.kernels.tensor_map_spec import (
    KnownNames,
    MappedTensor,
    TensorMapSpec,
    read_tensor_maps,
)
from greenfast.search.kernels.workloads import Dim, Option
from greenfast.search.text import shortened

TMA_SM = 90  # PTX ISA, "cp.async.bulk.tensor" and ".target": both need sm_90 or later


def read_template(
    path: Path,
    folder: Path,
    dims: tuple[Dim, ...],
    options: tuple[Option, ...],
    arguments: tuple[Argument, ...],
    mistakes: Mistakes,
) -> TemplateSpec:
    """The template whose .toml is `path`, in a kernel's `folder`.

    `arguments`: the kernel's, of which tensor maps are made. The template must not be used once
    there is one of the `mistakes`. Raises SpecError for a mistake that makes reading on pointless.
    """
    table = _template_table(path, folder)
    names = _names(table, dims, options)
    parameters = _parameters(table, names.compiled, names.dims, mistakes)
    local = _locals(table.table("locals"), names.parameters | names.compiled | {SM_COUNT}, mistakes)
    text = read_template_text(folder, path.stem)
    tiles = mistakes.value(lambda: _tiles(table.table("tiles"), names.known), ())
    probes, warp_rows = read_template_probes(
        table.table("probes"), names.known, names.run_known | {tile for tile, _ in tiles}
    )
    workspaces = mistakes.each(
        table.tables("workspaces"), lambda entry: _workspace(entry, names.known, names.run_known)
    )
    template = TemplateSpec(
        name=path.stem,
        kernel=folder.name,
        parameters=parameters,
        locals=local,
        constraints=mistakes.each(
            table.tables("constraints"), lambda entry: _constraint(entry, names.known)
        ),
        tiles=tiles,
        launches=mistakes.each(
            table.tables("launches"), lambda entry: _launch(entry, names.known, names.run_known)
        ),
        workspaces=workspaces,
        presets=()
        if mistakes  # of a parameter, whose values would be missing
        else mistakes.each(table.named("presets"), lambda item: _preset(*item, parameters)),
        text=text.text,
        lines=text.lines,
        path=folder / f"{path.stem}.cu.j2",
        probes=probes,
        warp_rows=warp_rows,
        arch_specific=table.get("arch_specific", bool, False),
        scalars=()
        if mistakes  # of a workspace, whose name would be free
        else _scalars(table, arguments, workspaces, names.known, names.run_known),
        tensor_maps=()
        if mistakes  # of a workspace, of which a map may be made
        else _tensor_maps(table, arguments, workspaces, names.known, names.run_known),
        **_properties(table, names, mistakes),
    )
    if not mistakes:
        table.finish()
        _check_whole(template, table.where)
    return template


def _template_table(path: Path, folder: Path) -> Table:
    """A template's .toml, whose names must be the file's and the folder's."""
    table = Table.read(path, f"{folder.name}/{path.name}")
    name = checked_name(table.get("name", str), table.where)
    if name != path.stem or table.get("kernel", str) != folder.name:
        raise SpecError(
            f"{table.where}: name and kernel must be {path.stem!r} and {folder.name!r}",
            code="bad_spec",
        )
    return table


@dataclass(frozen=True)
class _Names:
    """The names that a template's expressions may use."""

    dims: set[str]
    options: set[str]
    compiled: set[str]  # compile-time dims, and options
    parameters: set[str]
    known: set[str]  # when a candidate is rendered
    run_known: set[str]  # when it is launched


def _names(table: Table, dims: tuple[Dim, ...], options: tuple[Option, ...]) -> _Names:
    dim_names, option_names = {dim.name for dim in dims}, {option.name for option in options}
    compiled = {dim.name for dim in dims if dim.time == "compile"} | option_names
    # A parameter or local with a mistake of its own is known to the expressions that use it.
    parameters = {key for key, _ in table.items_of("parameters")}
    known = parameters | compiled | {SM_COUNT} | {key for key, _ in table.items_of("locals")}
    return _Names(dim_names, option_names, compiled, parameters, known, known | dim_names)


class _Properties(TypedDict):
    """The single values of a template."""

    idea: str
    minimum_sm: int
    supports: tuple[tuple[str, tuple[Value, ...]], ...]
    deterministic: bool
    deterministic_when: Expression | None
    worthwhile_when: Expression | None


def _properties(table: Table, names: _Names, mistakes: Mistakes) -> _Properties:
    shape_names = names.dims | names.options
    return {
        "idea": mistakes.value(lambda: table.get("idea", str), ""),
        "minimum_sm": mistakes.value(lambda: table.get("minimum_sm", int, 70), 70),
        "supports": mistakes.value(lambda: _supports(table.table("supports"), shape_names), ()),
        "deterministic": mistakes.value(lambda: table.get("deterministic", bool, True), True),
        "deterministic_when": mistakes.value(
            lambda: _optional(table, "deterministic_when", names.parameters), None
        ),
        "worthwhile_when": mistakes.value(
            lambda: _optional(table, "worthwhile_when", shape_names), None
        ),
    }


def _check_whole(template: TemplateSpec, shown: str) -> None:
    if not template.launches:
        raise SpecError(f"{shown}: no [[launches]]", code="bad_spec")
    if (template.arch_specific or template.tensor_maps) and template.minimum_sm < TMA_SM:
        raise SpecError(
            f"{shown}: minimum_sm is {template.minimum_sm}, and tensor maps and "
            f"architecture-specific code begin with {TMA_SM}",
            code="bad_spec",
            mend=f"minimum_sm = {TMA_SM}",
        )


def _tensor_maps(
    table: Table,
    arguments: tuple[Argument, ...],
    workspaces: tuple[Workspace, ...],
    known: set[str],
    run_known: set[str],
) -> tuple[TensorMapSpec, ...]:
    tensors = (
        *(
            MappedTensor(
                argument.name,
                argument.shape,
                argument.dtype,
                argument.optional or argument.read_when is not None,
            )
            for argument in arguments
            if argument.kind != "scalar"
        ),
        *(MappedTensor(workspace.name, (), "") for workspace in workspaces),
    )
    scalars = frozenset(argument.name for argument in arguments if argument.kind == "scalar")
    names = KnownNames(frozenset(known), frozenset(run_known), scalars, tensors)
    return read_tensor_maps(table.tables("tensor_maps"), names)


def _scalars(
    table: Table,
    arguments: tuple[Argument, ...],
    workspaces: tuple[Workspace, ...],
    known: set[str],
    run_known: set[str],
) -> tuple[TemplateScalar, ...]:
    taken = {argument.name for argument in arguments} | {each.name for each in workspaces}
    taken |= {str(each.get("name", str, "")) for each in table.tables("tensor_maps")}
    scalars: list[TemplateScalar] = []
    for entry in table.tables("scalars"):
        scalar = TemplateScalar(
            checked_name(entry.get("name", str), entry.where),
            entry.one_of("dtype", SCALAR_DTYPES),
            _known(entry.expression("value"), run_known),
            _optional(entry, "when", known),
        )
        if scalar.name in taken:
            raise SpecError(
                f"{entry.where}: {scalar.name!r} is the name of another argument",
                code="bad_spec",
                mend="give it a name that no argument, workspace or tensor map has",
            )
        entry.finish()
        taken.add(scalar.name)
        scalars.append(scalar)
    return tuple(scalars)


def _known(checked: Expression, known: set[str]) -> Expression:
    require_names(checked, known)
    return checked


def _optional(table: Table, key: str, known: set[str]) -> Expression | None:
    optional = table.optional_expression(key)
    return None if optional is None else _known(optional, known)


def _tiles(table: Table, known: set[str]) -> tuple[tuple[str, Expression], ...]:
    return tuple(
        (unreserved(key, table.where), _known(expression(text, f"{table.where} {key}"), known))
        for key, text in table.items()
    )


def _supports(table: Table, known: set[str]) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    for name, values in table.items():
        if name not in known or not isinstance(values, list):
            raise SpecError(
                f"{table.where}: {name!r} must be a dim or option with a list of values",
                code="bad_spec",
                mend="known: " + ", ".join(sorted(known)),
            )
    return tuple((name, tuple(values)) for name, values in table.items())


def _parameters(
    table: Table, compiled: set[str], dim_names: set[str], mistakes: Mistakes
) -> tuple[Parameter, ...]:
    known = {name for name, _ in table.items_of("parameters")} | compiled

    def parameter(item: tuple[str, Table]) -> Parameter:
        name, entry = item
        if name in compiled or name in dim_names:
            raise SpecError(
                f"{entry.where}: the kernel has a dim or option of this name",
                code="bad_spec",
                mend="rename the parameter",
            )
        read = _parameter(name, entry)
        if read.when is not None:
            require_names(read.when, known)
        return read

    parameters = mistakes.each(table.named("parameters"), parameter)
    if circular := _circular(parameters):
        mistakes.add(
            SpecError(
                f"{table.where}, [parameters.{circular[0]}], when: the conditions of "
                f"{', '.join(circular)} depend on each other",
                code="bad_spec",
                mend="a `when` may use parameters whose own `when` does not lead back to it",
            )
        )
    return parameters


def _circular(parameters: tuple[Parameter, ...]) -> list[str]:
    """The parameters whose `when` leads back to them, or to others of which that is true."""
    left = {each.name: each.when.names for each in parameters if each.when is not None}
    while free := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in free:
            del left[name]
    return list(left)


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
    parameter = Parameter(
        unreserved(checked_name(name, table.where), table.where),
        kind,
        values,
        default,
        table.get("doc", str, ""),
        numerics == "same",
        table.optional_expression("when"),
        _group(table),
    )
    table.finish()
    return parameter


def _group(table: Table) -> str:
    """The name of the parameter's group; empty where the template names none."""
    group = table.get("group", str, None)
    return "" if group is None else checked_name(group, f"{table.where}, group")


def _locals(
    table: Table, known: set[str], mistakes: Mistakes
) -> tuple[tuple[str, Expression], ...]:
    """Each may use the locals before it."""
    earlier: set[str] = set()

    def local(item: tuple[str, Any]) -> tuple[str, Expression]:
        name, text = item
        names = known | earlier
        earlier.add(name)
        unreserved(name, table.where)
        if name in known:
            raise SpecError(
                f"{table.where} {name}: a parameter, dim or option has this name",
                code="bad_spec",
                mend="rename the local",
            )
        return name, _known(expression(text, f"{table.where} {name}"), names)

    return mistakes.each(table.items(), local)


def _constraint(table: Table, known: set[str]) -> Constraint:
    condition = _known(table.expression("expr"), known)
    constraint = Constraint(condition, table.get("because", str))
    table.finish()
    return constraint


def _launch(table: Table, known: set[str], run_known: set[str]) -> LaunchSpec:
    def three(
        key: str, names: set[str], *default: list[str]
    ) -> tuple[Expression, Expression, Expression]:
        texts = table.get(key, list, *default)
        if len(texts) != 3:
            raise SpecError(f"{table.where}: {key} needs three expressions", code="bad_spec")
        x, y, z = (_known(expression(text, f"{table.where}, {key}"), names) for text in texts)
        return x, y, z

    launch = LaunchSpec(
        checked_entry(table.get("entry", str), table.where),
        three("grid", run_known),
        three("block", known),
        _known(table.expression("smem_dynamic_bytes", 0), known),
        three("cluster", known, ["1", "1", "1"]),
        _optional(table, "when", known),
    )
    table.finish()
    return launch


def _workspace(table: Table, known: set[str], run_known: set[str]) -> Workspace:
    workspace = Workspace(
        checked_name(table.get("name", str), table.where),
        _known(table.expression("bytes"), run_known),
        table.get("zero_fill", bool, False),
        _optional(table, "when", known),
    )
    table.finish()
    return workspace


def _preset(name: str, table: Table, parameters: tuple[Parameter, ...]) -> Preset:
    given = dict(table.table("parameters").items())
    by_name = {parameter.name: parameter for parameter in parameters}
    for key, value in given.items():
        if key not in by_name:
            raise SpecError(
                f"{table.where}: {key!r} is not a parameter of this template",
                code="bad_spec",
                mend="known: " + ", ".join(by_name),
            )
        if value not in by_name[key].values:
            raise SpecError(
                f"{table.where}: {key} = {value!r} is not among the parameter's values",
                code="bad_spec",
                mend="known: " + shortened(", ".join(map(str, by_name[key].values)), 200),
            )
    preset = Preset(
        checked_name(name, table.where),
        table.get("doc", str, ""),
        tuple(
            (parameter.name, given.get(parameter.name, parameter.default))
            for parameter in parameters
        ),
    )
    table.finish()
    return preset
