"""The kernels that launches name, in a text: `foo`, `foo<float, 4>`, `ns::foo`, `foo(int*, int)`.

Each gets an alias of its own, a reference to the function, by which the emulator calls it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from greenfast.search.diagnose.device_extract import Kernel
from greenfast.search.errors import UsageError
from greenfast.search.kernels.tables import ENTRY_ALIAS
from greenfast.search.text import file_line

_ENTRY = re.compile(
    r"\s*(?:::)?([A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)\s*(<.*>)?\s*(\(.+\))?\s*\Z", re.DOTALL
)
ALIAS = ENTRY_ALIAS


@dataclass(frozen=True)
class Entry:
    """A launch's kernel, and its name in the compiled text."""

    text: str  # as the launch names it
    kernel: Kernel
    expression: str  # C++ that denotes the function
    alias: str

    def bound(self, text: str) -> str:
        """A parameter's text with the template's arguments that the launch names."""
        given = self.expression.removeprefix(self.kernel.name).strip()
        if not given.startswith("<"):
            return text
        for parameter, argument in zip(
            self.kernel.template_parameters, given[1:-1].split(","), strict=False
        ):
            name = parameter.partition(" = ")[0].split()[-1]
            text = re.sub(rf"\b{re.escape(name)}\b", argument.strip(), text)
        return text

    @property
    def definition(self) -> str:
        return f"static constexpr auto& {self.alias} = {self.expression};"


def resolved(
    text: str, kernels: Sequence[Kernel], alias: str, file: str, launch_file: str = ""
) -> Entry:
    """The kernel that `text` names. Raises UsageError that lists the kernels of the file."""
    match = _ENTRY.match(text)
    if match is None:
        raise UsageError(
            f"the entry {text!r} is not a valid kernel name",
            code="unknown_entry",
            mend="write foo, ns::foo, foo<float, 4>, or foo(float*, int) for an overload",
        )
    name, arguments, types = match[1], match[2], match[3]
    named = [each for each in kernels if each.name == name or each.name.endswith("::" + name)]
    if not named:
        raise _unknown(name, kernels, file, launch_file)
    # A specialisation belongs to its template.
    named = [
        each for each in named if not (each.is_template and not each.template_parameters)
    ] or named
    if arguments:
        named = [each for each in named if each.is_template] or named
    if types:
        named = [each for each in named if _same_types(each, types)]
        if not named:
            raise _several(
                text,
                [each for each in kernels if each.name.split("::")[-1] == name.split("::")[-1]],
                "no kernel has these parameters",
            )
    if len({each.name for each in named}) > 1 or len({each.parameters for each in named}) > 1:
        raise _several(text, named, "several kernels have this name")
    kernel = named[0]
    if arguments and not kernel.is_template:
        raise UsageError(
            f"{kernel.name} ({place_of(kernel)}) is not a template, so it takes no {arguments}",
            code="unknown_entry",
        )
    expression = kernel.name + (arguments or _default_arguments(kernel))
    overloads = {each.parameters for each in kernels if each.name == kernel.name}
    if len(overloads) > 1 and not arguments:
        expression = (
            f"static_cast<void (&)({', '.join(map(_type_of, kernel.parameters))})>({expression})"
        )
    return Entry(text, kernel, expression, alias)


def _default_arguments(kernel: Kernel) -> str:
    if not kernel.is_template:
        return ""
    if all(" = " in parameter or "..." in parameter for parameter in kernel.template_parameters):
        return "<>"
    listed = ", ".join(kernel.template_parameters)
    raise UsageError(
        f"{kernel.name} ({place_of(kernel)}) is a template <{listed}>; "
        "the entry needs its arguments",
        code="unknown_entry",
        mend=f"for example --entry '{kernel.name}<{_example(kernel)}>'",
    )


def _example(kernel: Kernel) -> str:
    def value(parameter: str) -> str:
        word = parameter.split()[0]
        return {"typename": "float", "class": "float", "bool": "true"}.get(word, "4")

    return ", ".join(value(each) for each in kernel.template_parameters if " = " not in each)


def _unknown(name: str, kernels: Sequence[Kernel], file: str, launch_file: str) -> UsageError:
    if not kernels:
        return UsageError(
            f"{file} has no __global__ function with a body",
            code="unknown_entry",
            mend="give the file that defines the kernel; -I FOLDER finds its includes",
        )
    names = sorted({kernel.name for kernel in kernels})
    shorts = {each.rpartition("::")[2]: each for each in names}
    close = get_close_matches(name, names, n=1) or [
        shorts[each] for each in get_close_matches(name.rpartition("::")[2], shorts, n=1)
    ]
    hint = f"did you mean {close[0]!r}? " if close else ""
    return UsageError(
        f"{launch_file}{': ' if launch_file else ''}the entry {name!r} is not in {file}",
        code="unknown_entry",
        mend=f"{hint}known: {', '.join(names)}",
    )


def _several(text: str, kernels: Sequence[Kernel], why: str) -> UsageError:
    known = "; ".join(
        dict.fromkeys(f"{kernel.signature} at {place_of(kernel)}" for kernel in kernels)
    )
    return UsageError(
        f"the entry {text!r}: {why}",
        code="unknown_entry",
        mend=f"name its namespace or its parameters' types; known: {known}",
    )


def place_of(kernel: Kernel) -> str:
    return file_line(kernel.where.file, kernel.where.number)


def _same_types(kernel: Kernel, types: str) -> bool:
    declared = [_plain(_type_of(parameter)) for parameter in kernel.parameters]
    return declared == [_plain(part) for part in types.strip()[1:-1].split(",")]


def _plain(text: str) -> str:
    return re.sub(r"\s+|\b(?:__restrict__|restrict|const)\b", "", text)


def _type_of(parameter: str) -> str:
    """A parameter's type, without its name."""
    text = re.sub(r"\b(?:__restrict__|__restrict|restrict)\b", "", parameter)
    array = re.search(r"\[.*\]\s*$", text)
    if array:
        text = text[: array.start()]
    named = re.match(r"(.*[\s*&>])[A-Za-z_]\w*\s*$", text, re.DOTALL)
    words = text.split()
    is_type_alone = named is None or (
        len(words) == 2 and words[0] in ("const", "unsigned", "struct")
    )
    return (text if is_type_alone else named[1]).strip() + ("*" if array else "")  # type: ignore[index]


def parameter_name(parameter: str) -> str:
    """The name of a parameter; empty if it has none."""
    text = re.sub(r"\[.*\]\s*$", "", parameter)
    match = re.match(r".*[\s*&>]([A-Za-z_]\w*)\s*$", text, re.DOTALL)
    return match[1] if match else ""
