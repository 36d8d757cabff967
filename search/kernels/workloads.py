"""Workloads: the shapes and options that a kernel runs on, by name or by values.

A workload given by values is written `B=8,H=16,S_q=577,D=64,dtype=bf16`, with an optional label
before it: `vit(B=8,H=16,S_q=577,D=64,dtype=bf16)`. Its name is that text with the names in the
kernel's order and without the values that equal their defaults, so it can be looked up again from
the name alone, by a later run, a bundle or another machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from greenfast.search.errors import GreenfastError, SpecError, UsageError
from greenfast.search.kernels.expressions import Expression, Value
from greenfast.search.text import filled, shortened, visible

Items = tuple[tuple[str, Value], ...]

LARGEST_DIM = 2**31 - 1  # dims are int32 arguments of a launch
LONGEST_TEXT = 1000
_LABEL = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
_LABELLED = re.compile(r"([^(]*)\((.*)\)\Z", re.DOTALL)
_WHOLE = re.compile(r"[+-]?\d{1,30}\Z", re.ASCII)
_SPACED = re.compile(r"\s\w+\s*=")  # a value that goes on with another name


@dataclass(frozen=True)
class Option:
    """A compile-time choice that a workload makes (dtype, mask kind)."""

    name: str
    values: tuple[str, ...]
    default: str


@dataclass(frozen=True)
class Dim:
    """A size of the operation.

    `compile` dims are constants in a candidate's text; `run` dims are arguments of the launch.
    """

    name: str
    time: str  # "compile" | "run"
    doc: str
    default: Expression | None
    values: tuple[int, ...]  # allowed values; empty: any


@dataclass(frozen=True)
class WorkloadValues:
    """A workload that a request gives by values; the kernel's defaults complete it."""

    values: tuple[tuple[str, object], ...]  # dims and options
    label: str = ""


class HasDims(Protocol):
    @property
    def dims(self) -> tuple[Dim, ...]: ...


@dataclass(frozen=True)
class Requirement:
    """A condition that the values of a workload must satisfy, over dims and options."""

    expression: Expression
    because: str


@dataclass(frozen=True)
class Workload:
    """A named shape and option set; every dim and option has a value."""

    name: str
    title: str
    dims: Items
    options: Items

    def compile_time(self, kernel: HasDims) -> Items:
        """The values that a candidate's text contains: compile-time dims, then options."""
        compiled = {dim.name for dim in kernel.dims if dim.time == "compile"}
        return tuple(item for item in self.dims if item[0] in compiled) + self.options


@dataclass(frozen=True)
class WorkloadForm:
    """The part of a kernel that defines the values that a workload may have."""

    dims: tuple[Dim, ...]
    options: tuple[Option, ...]
    requirements: tuple[Requirement, ...] = ()
    empty_dims: tuple[str, ...] = ()  # those that may be 0
    # Dims that are rows of contiguous tensors, and the multiple that a row's stride has to be.
    row_dims: tuple[tuple[str, int], ...] = ()
    constants: tuple[tuple[str, Expression], ...] = ()  # which requirements may use

    def workload(self, values: Mapping[str, object], *, label: str = "", where: str) -> Workload:
        """The workload of these values, with defaults for those left out.

        `where` begins the sentence of the UsageError for values that do not fit the kernel; it
        names every value that is wrong.
        """
        values = {**values, **dict(_option_texts(self.options, values))}
        faults = [self._unknown(name) for name in values if name not in self.names]
        if label and not _LABEL.match(label):
            faults.append(f"the name {_shown(label)!r}; names are small letters, digits and _")
        faults += [fault for dim in self.dims if (fault := self._size_fault(dim, values))]
        faults += [fault for option in self.options if (fault := _option_fault(option, values))]
        missing = [dim.name for dim in self.dims if dim.name not in values and dim.default is None]
        if missing:
            faults.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
        if faults:
            raise self._refusal(where, faults)
        dims = complete_dims(_part(values, self.dims), self.dims, where)
        options = complete_options(_part(values, self.options), self.options, where)
        self._check_complete(dims, options, where)
        text = self._text(dict(dims), dict(options))
        return Workload(
            f"{label}({text})" if label else text, text.replace(",", ", "), dims, options
        )

    def parsed(self, text: str) -> Workload:
        """The workload that `text` gives by values; UsageError for any other text."""
        shown = f"the workload {shortened(visible(text), 120)}"
        if len(text) > LONGEST_TEXT:
            raise UsageError(f"{shown}: longer than {LONGEST_TEXT} characters", code="bad_workload")
        match = _LABELLED.match(text.strip())
        if match is None and text.count("(") != text.count(")"):
            raise UsageError(
                f"{shown}: its brackets do not match",
                code="bad_workload",
                mend=f"write for example own({self.example})",
            )
        label, body = match.groups() if match else ("", text)
        label = label.strip()
        values: dict[str, object] = {}
        for part in filter(str.strip, body.split(",")):
            name, equals, value = (word.strip() for word in part.partition("="))
            if not equals or not name or not value or _SPACED.search(value):
                raise UsageError(
                    f"{shown}: {visible(part.strip())!r} is not NAME=VALUE",
                    code="bad_workload",
                    mend=f"write for example {self.example}, with commas between",
                )
            if name in values:
                raise UsageError(f"{shown}: {visible(name)} is given twice", code="bad_workload")
            values[name] = int(value) if _WHOLE.match(value) else value
        return self.workload(values, label=label, where=shown)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of dims and options, in the kernel's order."""
        return (*(dim.name for dim in self.dims), *(option.name for option in self.options))

    def _unknown(self, name: str) -> str:
        """The sentence for a name that is no dim and no option; another spelling is suggested."""
        meant = next((each for each in self.names if each.lower() == name.lower()), None)
        return f"{name} is unknown" + (f", did you mean {meant}?" if meant else "")

    @property
    def example(self) -> str:
        """A workload by values, for messages."""
        multiples = dict(self.row_dims)
        sizes = [
            f"{dim.name}={dim.values[0] if dim.values else max(8, multiples.get(dim.name, 1))}"
            for dim in self.dims
            if dim.default is None
        ]
        return ",".join(
            [*sizes, *(f"{option.name}={option.values[-1]}" for option in self.options[:1])]
        )

    def _text(self, dims: dict[str, Value], options: dict[str, Value]) -> str:
        """The canonical text: defaults are left out."""
        words = []
        for dim in self.dims:
            earlier = {name: dims[name] for name in self.names if name in dims and name != dim.name}
            if dim.default is None or _folded(dim.default, earlier) != dims[dim.name]:
                words.append(f"{dim.name}={dims[dim.name]}")
        words += [
            f"{option.name}={options[option.name]}"
            for option in self.options
            if options[option.name] != option.default
        ]
        return ",".join(words)

    def _size_fault(self, dim: Dim, values: Mapping[str, object]) -> str:
        """Why the size given for a dim does not fit; empty when it fits or is left out."""
        if dim.name not in values:
            return ""
        size, smallest = values[dim.name], 0 if dim.name in self.empty_dims else 1
        if not isinstance(size, int) or isinstance(size, bool):
            but = ", but text" if isinstance(size, str) and size.isdecimal() else ""
            return f"{dim.name}={_shown(size)} is not a whole number{but}"
        if dim.values:
            known = ", ".join(map(str, dim.values))
            return "" if size in dim.values else f"{dim.name}={size} is not one of {known}"
        if not smallest <= size <= LARGEST_DIM:
            return f"{dim.name}={size} is not between {smallest} and {LARGEST_DIM}"
        return ""

    def _check_complete(self, dims: Items, options: Items, where: str) -> None:
        """UsageError when defaults or combinations of values do not fit."""
        values = dict((*dims, *options))
        faults = [
            f"{name}={size} is not between 0 and {LARGEST_DIM}"
            for name, size in dims
            if not 0 <= int(size) <= LARGEST_DIM
        ]
        if not faults and self.requirements:
            for name, constant in self.constants:
                values[name] = constant(values)
        # An author's sentence says more than the derived dims behind it.
        faults = faults or [
            filled(requirement.because, values)
            for requirement in self.requirements
            if not requirement.expression(values)
        ]
        faults = faults or [
            f"{name}={values[name]} is not a multiple of {multiple}, as a row's stride must be "
            "(stride_elements in kernel.toml)"
            for name, multiple in self.row_dims
            if int(values[name]) % multiple
        ]
        if faults:
            raise self._refusal(where, faults)

    def _refusal(self, where: str, faults: Iterable[str]) -> UsageError:
        return UsageError(
            f"{where}: {'; '.join(map(visible, faults))}",
            code="bad_workload",
            mend=f"it has {', '.join(self.names)}; for example {self.example}",
        )


def complete_dims(given: Mapping[str, Value], dims: tuple[Dim, ...], where: str) -> Items:
    """Every dim with its value: the given one, else its default.

    Defaults may use the dims before them. Raises SpecError for an unknown dim, a missing value, or
    a value that is not allowed.
    """
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


def complete_options(given: Mapping[str, Value], options: tuple[Option, ...], where: str) -> Items:
    """Every option with its value: the given one, else its default. SpecError for unknown ones."""
    for name, value in given.items():
        option = next((option for option in options if option.name == name), None)
        if option is None or value not in option.values:
            known = option.values if option else tuple(option.name for option in options)
            raise SpecError(
                f"{where}: unknown option {name} = {value!r}",
                code="unknown_option",
                mend="known: " + ", ".join(known),
            )
    return tuple((option.name, given.get(option.name, option.default)) for option in options)


def is_by_values(text: str) -> bool:
    """Whether `text` writes a workload by values instead of naming one."""
    return "=" in text


def _option_texts(
    options: Iterable[Option], values: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    """The text of each option whose value was read as a number: `1` of the values "1" and "2"."""
    for option in options:
        given = values.get(option.name)
        if isinstance(given, int | float) and not isinstance(given, bool):
            meant = [text for text in option.values if _number(text) == given]
            if len(meant) == 1:
                yield option.name, meant[0]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def unwritable_values(kernel: str, options: Iterable[Option]) -> Iterator[SpecError]:
    """Values of options that the text of a workload by values cannot give."""
    for option in options:
        for value in option.values:
            if value.strip() != value or not value.isprintable() or set(value or ",") & set(",()"):
                yield SpecError(
                    f"{kernel}/kernel.toml, [options] {option.name}: no workload by values can "
                    f"name {value!r}",
                    code="option_value",
                    mend="write the value without commas, brackets and spaces at its ends",
                )


def _option_fault(option: Option, values: Mapping[str, object]) -> str:
    """Why the value given for an option does not fit; empty when it fits or is left out."""
    value = values.get(option.name, option.default)
    if value in option.values:
        return ""
    return f"{option.name}={_shown(value)} is not one of {', '.join(option.values)}"


def _part(values: Mapping[str, Any], named: Iterable[Dim | Option]) -> dict[str, Any]:
    return {entry.name: values[entry.name] for entry in named if entry.name in values}


def _folded(default: Expression, values: Mapping[str, Value]) -> Value | None:
    """The default's value; None when it needs a value that is not known."""
    try:
        value: Value = default(values)
    except GreenfastError:
        return None
    return value


def _shown(value: object) -> str:
    return shortened(visible(value), 40)
