"""What a kernel and its templates say of themselves, as frozen values (read from TOML by search/kernels/catalogue.py).

A *kernel* is an operation (`attention`): dims, options, arguments, workloads, checks. A *template* is one way to
write it: parameters, constraints, launches, presets. Sizes are elements unless a name says bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.errors import UsageError, unknown_name
from greenfast.search.kernels.expressions import Expression, Value
from greenfast.search.kernels.probe_spec import ProbeSpec, TemplateProbe
from greenfast.search.kernels.reference_text import importable_name
from greenfast.search.kernels.template_text import Line

Items = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Option:
    """A compile-time choice that a workload makes (dtype, mask kind)."""

    name: str
    values: tuple[str, ...]
    default: str


@dataclass(frozen=True)
class Dim:
    """A size. `compile` dims are baked into a candidate's text, `run` dims are arguments of the launch."""

    name: str
    time: str  # "compile" | "run"
    doc: str
    default: Expression | None
    values: tuple[int, ...]  # allowed values; empty: any


@dataclass(frozen=True)
class Argument:
    """One entry of the kernel's parameter list, in order."""

    name: str
    kind: str  # "input" | "output" | "scalar"
    dtype: str  # "fp16" | "bf16" | "float32" | "int32" | "int64" | "uint8"; "dtype": the option's value
    shape: tuple[str, ...]  # names of dims; empty for scalars
    value: Expression | None  # scalars: over dims, constants
    stride_of: (
        tuple[str, int] | None
    )  # scalars written stride(q, 0): element stride of an argument's axis
    optional: bool
    contiguous: bool  # never given padded or permuted strides


@dataclass(frozen=True)
class Workload:
    """One named shape and option set; every dim and option has its value."""

    name: str
    title: str
    dims: Items
    options: Items

    def compile_time(self, kernel: KernelSpec) -> Items:
        """The values that a candidate's text is rendered for: compile-time dims, then options."""
        compiled = {dim.name for dim in kernel.dims if dim.time == "compile"}
        return tuple(one for one in self.dims if one[0] in compiled) + self.options


@dataclass(frozen=True)
class Check:
    """A case that every candidate is checked on; sizes may depend on its tiles."""

    name: str
    dims: tuple[tuple[str, Expression], ...]
    inputs: str  # a recipe of the kernel's reference.py
    layout: str  # "contiguous" | "padded" | "bshd"
    seeds: int
    when: Expression | None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return (*(size for _, size in self.dims), *([self.when] if self.when is not None else []))


@dataclass(frozen=True)
class Parameter:
    """A tunable value of a template."""

    name: str
    type: str  # "int" | "bool" | "choice"
    values: tuple[Value, ...]
    default: Value
    doc: str
    numerics_same: bool  # results are bit for bit the same whatever the value
    when: Expression | None  # active only then; otherwise it takes its default

    def parse(self, text: str) -> Value:
        """The value that a person wrote on a command line; UsageError with the allowed ones."""
        for value in self.values:
            if str(value).lower() == text.strip().lower():
                return value
        raise unknown_name("value", text, self.values, where=f"parameter {self.name}")


@dataclass(frozen=True)
class Constraint:
    expression: Expression
    because: str  # a sentence; may name values as {tile_m}


@dataclass(frozen=True)
class LaunchSpec:
    """One launch of a template; expressions over dims, options, parameters and locals."""

    entry: str
    grid: tuple[Expression, Expression, Expression]
    block: tuple[Expression, Expression, Expression]
    smem_dynamic_bytes: Expression
    cluster: tuple[Expression, Expression, Expression] = (
        Expression("1", frozenset()),
    ) * 3  # in blocks
    when: Expression | None = (
        None  # over parameters and locals: the entry exists, and is launched, only then
    )


@dataclass(frozen=True)
class Workspace:
    """Scratch memory that follows the kernel's arguments."""

    name: str
    bytes: Expression
    zero_fill: bool
    when: Expression | None = None  # over parameters and locals: an argument only then


@dataclass(frozen=True)
class Preset:
    """A named point of a template: a documented design, runnable by name."""

    name: str
    doc: str
    parameters: Items


@dataclass(frozen=True)
class TemplateSpec:
    """One way to write a kernel."""

    name: str
    kernel: str
    idea: str
    minimum_sm: int
    supports: tuple[tuple[str, tuple[Value, ...]], ...]
    parameters: tuple[Parameter, ...]
    locals: tuple[tuple[str, Expression], ...]
    constraints: tuple[Constraint, ...]
    tiles: tuple[tuple[str, Expression], ...]
    launches: tuple[LaunchSpec, ...]
    workspaces: tuple[Workspace, ...]
    presets: tuple[Preset, ...]
    deterministic: bool
    text: str  # the .cu.j2 itself with its parts, so that an identity covers it
    lines: tuple[Line, ...]  # where each line of the text stands
    path: Path
    probes: tuple[TemplateProbe, ...] = ()
    deterministic_when: Expression | None = (
        None  # over parameters: two runs of other points may differ in last bits
    )
    warp_rows: Expression | None = (
        None  # rows of a tile that one warp owns, where a report may name warps
    )

    DIGEST_EXCLUDES = frozenset({"path", "lines"})

    @property
    def files(self) -> dict[str, Path]:
        """The template's file and its parts, by the names that messages call them by."""
        return {
            name: self.path.parent.parent / name
            for name in dict.fromkeys(line.file for line in self.lines)
        }

    def origin(self, number: int) -> Line:
        """Where line `number` of the text stands, from 1; the last line for what follows it."""
        return self.lines[min(number, len(self.lines)) - 1]

    def parameter(self, name: str) -> Parameter:
        for one in self.parameters:
            if one.name == name:
                return one
        raise unknown_name(
            "parameter", name, [p.name for p in self.parameters], where=f"template {self.name}"
        )

    def preset(self, name: str) -> Preset:
        for one in self.presets:
            if one.name == name:
                return one
        raise unknown_name(
            "preset", name, [p.name for p in self.presets], where=f"template {self.name}"
        )

    def launched(self, values: Mapping[str, Value]) -> tuple[LaunchSpec, ...]:
        """The launches that a point has; `values` are its parameters and locals."""
        return tuple(
            launch for launch in self.launches if launch.when is None or launch.when(values)
        )

    def scratch(self, values: Mapping[str, Value]) -> tuple[Workspace, ...]:
        """The workspaces that a point has."""
        return tuple(
            workspace
            for workspace in self.workspaces
            if workspace.when is None or workspace.when(values)
        )

    def check_supports(self, workload: Workload) -> None:
        """Refuse, before anything is compiled, a workload that this template cannot serve."""
        have = {**dict(workload.dims), **dict(workload.options)}
        for name, values in self.supports:
            if have[name] not in values:
                raise UsageError(
                    f"template {self.name} does not support {name}={have[name]} of workload {workload.name}",
                    code="unsupported_workload",
                    mend=f"{name} may be " + ", ".join(map(str, values)),
                )


def tile_names(templates: Iterable[TemplateSpec]) -> tuple[str, ...]:
    """What a kernel's checks may be sized by: the names that its templates give their tiles; 1 where one gives none."""
    return tuple(dict.fromkeys(name for one in templates for name, _ in one.tiles))


@dataclass(frozen=True)
class KernelSpec:
    """An operation to compute, with everything that is needed to check and time it."""

    name: str
    title: str
    baseline: str  # template:preset
    options: tuple[Option, ...]
    dims: tuple[Dim, ...]
    arguments: tuple[Argument, ...]
    constants: tuple[tuple[str, Expression], ...]
    work_flop: Expression
    work_bytes: Expression
    pointer_bytes: int  # every tensor starts at a multiple of this
    stride_elements: int  # row, head and batch strides are multiples of this
    workloads: tuple[Workload, ...]
    checks: tuple[Check, ...]
    templates: tuple[TemplateSpec, ...]
    reference_text: str
    folder: Path
    probes: tuple[ProbeSpec, ...] = ()  # in the order of the stages
    probe_cases: tuple[str, ...] = ()  # names of checks that they run on
    reference_uses: tuple[
        tuple[str, str], ...
    ] = ()  # kernels that reference.py builds on, each with its reference.py

    DIGEST_EXCLUDES = frozenset({"folder"})
    DIGEST_WHEN_SET = frozenset({"reference_uses"})

    @property
    def reference_files(self) -> dict[str, str]:
        """Texts by file name, as they stand in a bundle: reference.py, and those that it imports."""
        used = {f"{importable_name(name)}.py": text for name, text in self.reference_uses}
        return {"reference.py": self.reference_text, **used}

    def workload(self, name: str) -> Workload:
        for one in self.workloads:
            if one.name == name:
                return one
        raise unknown_name(
            "workload", name, [w.name for w in self.workloads], where=f"kernel {self.name}"
        )

    def template(self, name: str) -> TemplateSpec:
        for one in self.templates:
            if one.name == name:
                return one
        raise unknown_name(
            "template", name, [t.name for t in self.templates], where=f"kernel {self.name}"
        )

    def preset(self, reference: str) -> tuple[TemplateSpec, Preset]:
        """The point that `template:preset` names."""
        template_name, separator, preset_name = reference.partition(":")
        if not separator:
            raise UsageError(
                f"{reference!r} does not name a preset",
                code="bad_preset",
                mend="write template:preset, for example " + self.baseline,
            )
        template = self.template(template_name)
        return template, template.preset(preset_name)

    def values_of(
        self, dims: Mapping[str, Value], options: Mapping[str, Value]
    ) -> dict[str, Value]:
        """Dims, options and constants by name: what launch and work expressions are computed over."""
        values: dict[str, Value] = {**dims, **options}
        for name, constant in self.constants:
            values[name] = constant(values)
        return values
