"""Reading a template: its .toml, with the text of its .cu.j2."""

from __future__ import annotations

from pathlib import Path

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import (
    SM_COUNT,
    Expression,
    Value,
    expression,
    require_names,
)
from greenfast.search.kernels.probe_spec import read_template_probes
from greenfast.search.kernels.spec import (
    Argument,
    Constraint,
    LaunchSpec,
    Parameter,
    Preset,
    TemplateSpec,
    Workspace,
)
from greenfast.search.kernels.tables import Table, checked_name, unreserved
from greenfast.search.kernels.template_text import read_template_text
from greenfast.search.kernels.tensor_map_spec import (
    KnownNames,
    MappedTensor,
    TensorMapSpec,
    read_tensor_maps,
)
from greenfast.search.kernels.workloads import Dim, Option

TMA_SM = 90  # PTX ISA, "cp.async.bulk.tensor" and ".target": both need sm_90 or later


def read_template(
    path: Path,
    folder: Path,
    dims: tuple[Dim, ...],
    options: tuple[Option, ...],
    arguments: tuple[Argument, ...] = (),
) -> TemplateSpec:
    """The template whose .toml is `path`, in a kernel's `folder`; SpecError when it is invalid.

    `arguments`: the kernel's, of which tensor maps are made.
    """
    shown = f"{folder.name}/{path.name}"
    table = Table.read(path, shown)
    name = checked_name(table.get("name", str), shown)
    if name != path.stem or table.get("kernel", str) != folder.name:
        raise SpecError(
            f"{shown}: name and kernel must be {path.stem!r} and {folder.name!r}", code="bad_spec"
        )
    dim_names, option_names = {dim.name for dim in dims}, {option.name for option in options}
    compiled = {dim.name for dim in dims if dim.time == "compile"} | option_names
    parameters = _parameters(table, compiled)
    own_names = {parameter.name for parameter in parameters}
    local = _locals(table.table("locals"), own_names | compiled | {SM_COUNT})
    # Names that are known when a candidate is rendered, and those known when it is launched.
    known = own_names | compiled | {SM_COUNT} | {key for key, _ in local}
    run_known = known | dim_names
    text = read_template_text(folder, name)
    tiles = _tiles(table.table("tiles"), known)
    probes, warp_rows = read_template_probes(
        table.table("probes"), known, run_known | {tile for tile, _ in tiles}
    )
    workspaces = tuple(_workspace(entry, known, run_known) for entry in table.tables("workspaces"))
    template = TemplateSpec(
        name=name,
        kernel=folder.name,
        idea=table.get("idea", str),
        minimum_sm=table.get("minimum_sm", int, 70),
        supports=_supports(table.table("supports"), dim_names | option_names),
        parameters=parameters,
        locals=local,
        constraints=_constraints(table, known),
        tiles=tiles,
        launches=tuple(_launch(entry, known, run_known) for entry in table.tables("launches")),
        workspaces=workspaces,
        presets=tuple(_preset(key, entry, parameters) for key, entry in table.named("presets")),
        deterministic=table.get("deterministic", bool, True),
        deterministic_when=_optional(table, "deterministic_when", own_names),
        text=text.text,
        lines=text.lines,
        path=folder / f"{name}.cu.j2",
        probes=probes,
        warp_rows=warp_rows,
        arch_specific=table.get("arch_specific", bool, False),
        tensor_maps=_tensor_maps(table, arguments, workspaces, known, run_known),
    )
    table.finish()
    if not template.launches:
        raise SpecError(f"{shown}: no [[launches]]", code="bad_spec")
    if (template.arch_specific or template.tensor_maps) and template.minimum_sm < TMA_SM:
        raise SpecError(
            f"{shown}: minimum_sm is {template.minimum_sm}, and tensor maps and "
            f"architecture-specific code begin with {TMA_SM}",
            code="bad_spec",
            mend=f"minimum_sm = {TMA_SM}",
        )
    return template


def _tensor_maps(
    table: Table,
    arguments: tuple[Argument, ...],
    workspaces: tuple[Workspace, ...],
    known: set[str],
    run_known: set[str],
) -> tuple[TensorMapSpec, ...]:
    tensors = (
        *(
            MappedTensor(argument.name, argument.shape, argument.dtype, argument.optional)
            for argument in arguments
            if argument.kind != "scalar"
        ),
        *(MappedTensor(workspace.name, (), "") for workspace in workspaces),
    )
    scalars = frozenset(argument.name for argument in arguments if argument.kind == "scalar")
    names = KnownNames(frozenset(known), frozenset(run_known), scalars, tensors)
    return read_tensor_maps(table.tables("tensor_maps"), names)


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


def _parameters(table: Table, compiled: set[str]) -> tuple[Parameter, ...]:
    parameters = tuple(_parameter(key, entry) for key, entry in table.named("parameters"))
    known = {parameter.name for parameter in parameters} | compiled
    for parameter in parameters:
        if parameter.when is not None:
            require_names(parameter.when, known)
    return parameters


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
    )
    table.finish()
    return parameter


def _locals(table: Table, known: set[str]) -> tuple[tuple[str, Expression], ...]:
    """Each may use the locals before it."""
    local: list[tuple[str, Expression]] = []
    for name, text in table.items():
        unreserved(name, table.where)
        earlier = {key for key, _ in local}
        local.append((name, _known(expression(text, f"{table.where} {name}"), known | earlier)))
    return tuple(local)


def _constraints(table: Table, known: set[str]) -> tuple[Constraint, ...]:
    constraints = []
    for entry in table.tables("constraints"):
        condition = _known(entry.expression("expr"), known)
        constraints.append(Constraint(condition, entry.get("because", str)))
        entry.finish()
    return tuple(constraints)


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
        table.get("entry", str),
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
        if key not in by_name or value not in by_name[key].values:
            raise SpecError(
                f"{table.where}: {key} = {value!r} is not a value of this template", code="bad_spec"
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
