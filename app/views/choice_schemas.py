"""The models of what a search chooses from: kernels, workloads, templates, targets."""

from __future__ import annotations

from pydantic import Field

from greenfast.app.views.base_schemas import Output, ScalarValue


class ParameterOut(Output):
    name: str
    type: str
    values: list[ScalarValue]
    default: ScalarValue
    doc: str
    when: str | None


class PresetOut(Output):
    name: str
    doc: str
    parameters: dict[str, ScalarValue]


class TemplateOut(Output):
    name: str
    kernel: str
    idea: str
    minimum_sm: int
    arch_specific: bool  # it runs on exactly that architecture
    supports: dict[str, list[ScalarValue]]
    parameters: list[ParameterOut]
    constraints: list[str]
    presets: list[PresetOut]


class WorkloadOut(Output):
    name: str
    title: str
    dims: dict[str, ScalarValue]
    options: dict[str, ScalarValue]
    flop: float
    bytes: float


class DimOut(Output):
    name: str
    doc: str
    values: list[int] = Field(description="allowed values; empty: any whole number above 0")
    default: str | None = Field(description="an expression over the dims before; null: required")


class OptionOut(Output):
    name: str
    values: list[str]
    default: str


class KernelOut(Output):
    name: str
    title: str
    baseline: str
    dims: list[DimOut]
    options: list[OptionOut]
    workloads: list[WorkloadOut]
    templates: list[str]


class BrokenOut(Output):
    """A kernel that cannot be loaded."""

    name: str
    error: str
    code: str


class TargetOut(Output):
    name: str
    title: str
    time_kind: str
    available: bool
    why: str = Field(description="why it is not available")
    kernel: str | None = Field(
        default=None, description="the only kernel that a recording answers for; null: any"
    )


class StrategyOut(Output):
    name: str
    doc: str
