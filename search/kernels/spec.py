"""The specifications of kernels and templates, as frozen values.

A *kernel* is an operation (`attention`): dims, options, arguments, workloads, checks. A *template*
is one way to write it: parameters, constraints, launches, presets. Sizes are in elements unless a
name ends in `bytes`. kernel_file.py and template_file.py read them from TOML.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from greenfast.search.errors import SpecError, UsageError, unknown_name
from greenfast.search.kernels.expressions import Expression, Value
from greenfast.search.kernels.probe_spec import ProbeSpec, TemplateProbe
from greenfast.search.kernels.reference_text import importable_name
from greenfast.search.kernels.template_text import Line, file_of
from greenfast.search.kernels.tensor_map_spec import TensorMapSpec
from greenfast.search.kernels.workloads import (
    Dim,
    Items,
    Option,
    Requirement,
    Workload,
    WorkloadForm,
    WorkloadValues,
    is_by_values,
)

ONE = Expression("1", frozenset())


@dataclass(frozen=True)
class Argument:
    """One entry of the kernel's parameter list, in order."""

    name: str
    kind: str  # "input" | "output" | "scalar"
    dtype: str  # fp16 | bf16 | float32 | int32 | int64 | uint8; "dtype": the option's value
    shape: tuple[str, ...]  # names of dims; empty for scalars
    value: Expression | None  # of scalars, over dims and constants
    # Of scalars written as stride(q, 0): the argument and axis whose element stride it is.
    stride_of: tuple[str, int] | None
    optional: bool
    contiguous: bool  # its strides are never padded or permuted
    # Of an input, over options: where it does not hold, the kernel gets a null pointer.
    read_when: Expression | None = None

    DIGEST_WHEN_SET = frozenset({"read_when"})

    def is_left_out(self, options: Mapping[str, Value]) -> bool:
        """Whether a kernel with these options gets no such input."""
        return self.read_when is not None and not self.read_when(options)


@dataclass(frozen=True)
class Check:
    """A case on which every candidate is checked; sizes may depend on its tiles."""

    name: str
    dims: tuple[tuple[str, Expression], ...]  # and values of constants that are this check's own
    inputs: str  # a recipe of the kernel's reference.py
    layout: str  # "contiguous" | "padded" | "bshd"
    seeds: int  # 0: nothing is compared; `safety` runs its first and last blocks
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
    numerics_same: bool  # results are bit for bit the same for all values
    when: Expression | None  # it is active only when this holds; else it has its default
    group: str = ""  # strategies move the parameters of a group together; empty: none is named

    DIGEST_EXCLUDES = frozenset({"group"})  # no source depends on it

    def has(self, value: object) -> bool:
        """Whether it is one of the values, and of their type: true is not 1."""
        return isinstance(value, Hashable) and (type(value), value) in self._typed_values

    @cached_property
    def _typed_values(self) -> frozenset[tuple[object, Value]]:
        return frozenset((type(value), value) for value in self.values)

    def parse(self, text: str) -> Value:
        """The value that `text` names on a command line; UsageError for any other text."""
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
    cluster: tuple[Expression, Expression, Expression] = (ONE, ONE, ONE)  # in blocks
    # Over parameters and locals: the entry exists, and is launched, only when this holds.
    when: Expression | None = None


@dataclass(frozen=True)
class Workspace:
    """Scratch memory that follows the kernel's arguments."""

    name: str
    bytes: Expression
    zero_fill: bool
    when: Expression | None = None  # over parameters and locals: it exists only when this holds


@dataclass(frozen=True)
class TemplateScalar:
    """A number that an entry cannot derive from the kernel's arguments, which it follows."""

    name: str
    dtype: str  # int32 | int64 | float32 | float64
    value: Expression  # over dims, options, parameters and locals
    when: Expression | None = None  # over parameters and locals: it exists only when this holds


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
    text: str  # the .cu.j2 with its parts, so that an identity covers it
    lines: tuple[Line, ...]  # the origin of each line of the text
    path: Path
    probes: tuple[TemplateProbe, ...] = ()
    # Over parameters: two runs of points for which it does not hold may differ in their last bits.
    deterministic_when: Expression | None = None
    # Rows of a tile that a warp owns, so that a report can name warps.
    warp_rows: Expression | None = None
    # Compiled for `sm_90a` and the like: it runs on exactly the architecture `minimum_sm`.
    arch_specific: bool = False
    tensor_maps: tuple[TensorMapSpec, ...] = ()  # the last arguments of every entry, in order
    # Over dims and options: the workloads for which a search that names no templates takes it.
    worthwhile_when: Expression | None = None
    scalars: tuple[TemplateScalar, ...] = ()  # arguments of every entry, after the kernel's

    DIGEST_EXCLUDES = frozenset({"path", "lines", "worthwhile_when"})
    DIGEST_WHEN_SET = frozenset({"arch_specific", "tensor_maps", "scalars"})

    @cached_property
    def by_need(self) -> tuple[Parameter, ...]:
        """The parameters, each after those that its `when` uses; else in the template's order."""
        order: dict[str, Parameter] = {}
        left = list(self.parameters)
        while left:
            waiting = {parameter.name for parameter in left}
            ready = next(
                each for each in left if each.when is None or not each.when.names & waiting
            )
            order[ready.name] = ready
            left.remove(ready)
        return tuple(order.values())

    @property
    def files(self) -> dict[str, Path]:
        """The template's file and its parts, by the names that messages use."""
        return {
            name: file_of(self.path.parent, name)
            for name in dict.fromkeys(line.file for line in self.lines)
        }

    def origin(self, number: int) -> Line:
        """The origin of line `number` of the text, from 1; the last line's for larger numbers."""
        return self.lines[min(number, len(self.lines)) - 1]

    def parameter(self, name: str) -> Parameter:
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise unknown_name(
            "parameter",
            name,
            [parameter.name for parameter in self.parameters],
            where=f"template {self.name}",
        )

    def preset(self, name: str) -> Preset:
        for preset in self.presets:
            if preset.name == name:
                return preset
        raise unknown_name(
            "preset", name, [preset.name for preset in self.presets], where=f"template {self.name}"
        )

    def launched(self, values: Mapping[str, Value]) -> tuple[LaunchSpec, ...]:
        """The launches of a point; `values` holds its parameters and locals."""
        return tuple(
            launch for launch in self.launches if launch.when is None or launch.when(values)
        )

    def scratch(self, values: Mapping[str, Value]) -> tuple[Workspace, ...]:
        """The workspaces of a point; `values` holds its parameters and locals."""
        return tuple(
            workspace
            for workspace in self.workspaces
            if workspace.when is None or workspace.when(values)
        )

    def own_scalars(self, values: Mapping[str, Value]) -> tuple[TemplateScalar, ...]:
        """The scalars of a point; `values` holds its parameters and locals."""
        return tuple(each for each in self.scalars if each.when is None or each.when(values))

    def mapped(self, values: Mapping[str, Value]) -> tuple[TensorMapSpec, ...]:
        """The tensor maps of a point; `values` holds its parameters and locals."""
        return tuple(each for each in self.tensor_maps if each.when is None or each.when(values))

    def is_worthwhile(self, workload: Workload) -> bool:
        """Whether a search that names no templates tries this one on the workload."""
        values = dict((*workload.dims, *workload.options))
        return self.worthwhile_when is None or bool(self.worthwhile_when(values))

    def check_supports(self, workload: Workload) -> None:
        """UsageError when this template cannot compute the workload."""
        workload_values = dict((*workload.dims, *workload.options))
        for name, values in self.supports:
            if workload_values[name] not in values:
                raise UsageError(
                    f"template {self.name} does not support {name}={workload_values[name]} "
                    f"of workload {workload.name}",
                    code="unsupported_workload",
                    mend=f"{name} may be " + ", ".join(map(str, values)),
                )


def tile_names(templates: Iterable[TemplateSpec]) -> tuple[str, ...]:
    """Names of tiles, by which a kernel's checks may be sized.

    A template without a tile of that name counts as having a tile of 1.
    """
    return tuple(dict.fromkeys(name for template in templates for name, _ in template.tiles))


@dataclass(frozen=True)
class KernelSpec:
    """An operation to compute, with the data needed to check and time it."""

    name: str
    title: str
    baseline: str  # template:preset
    options: tuple[Option, ...]
    dims: tuple[Dim, ...]
    arguments: tuple[Argument, ...]
    constants: tuple[tuple[str, Expression], ...]
    work_flop: Expression
    work_bytes: Expression
    pointer_bytes: int  # every tensor starts at a multiple of it
    stride_elements: int  # row, head and batch strides are multiples of it
    workloads: tuple[Workload, ...]
    checks: tuple[Check, ...]
    templates: tuple[TemplateSpec, ...]
    reference_text: str
    folder: Path
    probes: tuple[ProbeSpec, ...] = ()  # in the order of the stages
    probe_cases: tuple[str, ...] = ()  # names of the checks on which probes run
    # Kernels whose reference.py this one imports: name and text.
    reference_uses: tuple[tuple[str, str], ...] = ()
    # They restrict workloads, of which no candidate's source depends.
    requirements: tuple[Requirement, ...] = ()
    empty_dims: tuple[str, ...] = ()  # dims that may be 0
    # Workloads that kernel.toml names and that cannot be used: name and sentence.
    broken_workloads: tuple[tuple[str, str], ...] = ()

    DIGEST_EXCLUDES = frozenset({"folder", "requirements", "empty_dims", "broken_workloads"})
    DIGEST_WHEN_SET = frozenset({"reference_uses"})

    @property
    def reference_files(self) -> dict[str, str]:
        """Texts by file name, as in a bundle: reference.py, and the references that it imports."""
        used = {f"{importable_name(name)}.py": text for name, text in self.reference_uses}
        return {"reference.py": self.reference_text, **used}

    def argument(self, name: str) -> Argument:
        """The argument of that name, which the kernel has."""
        return next(argument for argument in self.arguments if argument.name == name)

    @property
    def workload_form(self) -> WorkloadForm:
        """The values that a workload of this kernel may have."""
        row_dims = tuple(
            dict.fromkeys(
                (argument.shape[-1], self.stride_elements)
                for argument in self.arguments
                if len(argument.shape) > 1 and not argument.contiguous
            )
        )
        return WorkloadForm(
            self.dims,
            self.options,
            self.requirements,
            self.empty_dims,
            row_dims,
            self.constants,
        )

    def workload(self, name: str | WorkloadValues) -> Workload:
        """The workload of this name, or of these values (workloads.py); UsageError otherwise.

        Values of a workload with a name give that workload.
        """
        if isinstance(name, WorkloadValues):
            where = f"the workload {name.label}" if name.label else "the workload by values"
            return self.named(
                self.workload_form.workload(dict(name.values), label=name.label, where=where)
            )
        if is_by_values(name):
            return self.named(self.workload_form.parsed(name))
        for workload in self.workloads:
            if workload.name == name:
                return workload
        if sentence := dict(self.broken_workloads).get(name):
            raise SpecError(sentence, code="bad_workload")
        unknown = unknown_name(
            "workload",
            name,
            [workload.name for workload in self.workloads],
            where=f"kernel {self.name}",
        )
        unknown.mend += f"; or values, such as {self.workload_form.example}"
        raise unknown

    def named(self, workload: Workload) -> Workload:
        """The kernel's own workload of the same values, where it has one."""
        values = (workload.dims, workload.options)
        return next(
            (known for known in self.workloads if (known.dims, known.options) == values), workload
        )

    def template(self, name: str) -> TemplateSpec:
        for template in self.templates:
            if template.name == name:
                return template
        raise unknown_name(
            "template",
            name,
            [template.name for template in self.templates],
            where=f"kernel {self.name}",
        )

    def preset(self, reference: str) -> tuple[TemplateSpec, Preset]:
        """The template and preset that `template:preset` names; UsageError when unknown."""
        template_name, separator, preset_name = reference.partition(":")
        if not separator:
            raise UsageError(
                f"{reference!r} does not name a preset",
                code="bad_preset",
                mend="write TEMPLATE:PRESET, for example "
                + next(
                    f"{template.name}:{preset.name}"
                    for template in self.templates
                    for preset in template.presets[:1]
                )
                if any(template.presets for template in self.templates)
                else "no template has a preset",
            )
        template = self.template(template_name)
        return template, template.preset(preset_name)

    def values_of(
        self, dims: Mapping[str, Value], options: Mapping[str, Value]
    ) -> dict[str, Value]:
        """Dims, options and constants by name, over which expressions are computed.

        The dims of a case may hold values of constants (`Check.dims`).
        """
        values: dict[str, Value] = {**dims, **options}
        for name, constant in self.constants:
            if name not in values:
                values[name] = constant(values)
        return values
