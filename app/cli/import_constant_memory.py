"""Constant memory that a host program fills, as parameters of the kernel.

A launch of greenfast passes tensors and numbers, and fills no `__constant__` memory. Where the
command or the script has its values (`--arg`, `cmem_args`), the kernel gets a parameter of that
name, which hides the constant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from greenfast.app.cli.import_parameters import QUALIFIERS
from greenfast.app.cli.import_source import (
    CONSTANT,
    CudaText,
    end_of_block,
    known_entry,
    without_comments,
)
from greenfast.search.errors import UsageError

FLAT = "_values"  # ends the parameter of an array of arrays
_DEVICE_FUNCTION = re.compile(
    r"__device__[^;{}()=]*?\b(?P<name>\w+)\s*\((?:[^()]|\([^()]*\))*\)[^;{}()]*\{"
)


@dataclass(frozen=True)
class _Constant:
    name: str
    kind: str  # its type, as the text has it
    sizes: tuple[str, ...]  # empty: a number
    begin: int
    end: int

    @property
    def parameter(self) -> str:
        """The name of the parameter that has its values."""
        return self.name + FLAT if len(self.sizes) > 1 else self.name

    @property
    def declared(self) -> str:
        pointer = "* __restrict__" if self.sizes else ""
        return f"const {self.kind}{pointer} {self.parameter}"

    @property
    def statement(self) -> str:
        """What gives an array of arrays its name in the kernel."""
        if len(self.sizes) < 2:
            return ""
        form = "".join(f"[{size}]" for size in self.sizes[1:])
        pointer = f"const {self.kind} (*{self.name}){form}"
        return f" {pointer} = (const {self.kind} (*){form}){self.parameter};"


def with_constants(
    source: CudaText, entry: str | None, file: str, given: Collection[str]
) -> tuple[CudaText, tuple[str, ...]]:
    """The text whose kernel gets the given constants as parameters, and these parameters.

    UsageError for a constant that a function reads which the kernel may call.
    """
    bare = without_comments(source.text)
    constants = [each for each in _constants(bare) if each.name in given or each.parameter in given]
    if not constants:
        return source, ()
    _, kernel = known_entry(bare, entry, file)
    body = kernel.end()
    for constant in constants:
        _check_functions(bare, constant, source)
    text, spot = source.text, kernel.span("parameters")
    own = text[slice(*spot)].strip()
    own = "" if own == "void" else own
    parameters = ", ".join([*([own] if own else []), *(each.declared for each in constants)])
    statements = "".join(each.statement for each in constants)
    text = text[: spot[0]] + parameters + text[spot[1] : body] + statements + text[body:]
    return replace(source, text=text), tuple(each.parameter for each in constants)


def _constants(bare: str) -> Iterator[_Constant]:
    """The constant memory that the text declares without values."""
    for match in CONSTANT.finditer(bare):
        if "=" in match["rest"] or "{" in match["rest"]:
            continue
        kind = " ".join(QUALIFIERS.sub(" ", match["type"]).split())
        sizes = tuple(each.strip() for each in re.findall(r"\[([^\]]*)\]", match["rest"]))
        yield _Constant(match["name"], kind, sizes, *match.span())


def _check_functions(bare: str, constant: _Constant, source: CudaText) -> None:
    for function in _DEVICE_FUNCTION.finditer(bare):
        end = end_of_block(bare, function.end())
        used = re.compile(rf"\b{re.escape(constant.name)}\b").search(bare, function.end(), end)
        if used is not None:
            raise UsageError(
                f"{source.places[bare.count(chr(10), 0, used.start())]}: {function['name']} reads "
                f"{constant.name}, constant memory that a host program fills and a launch does not",
                code="bad_source",
                mend=f"pass it to {function['name']} as a parameter: {constant.declared}",
            )
