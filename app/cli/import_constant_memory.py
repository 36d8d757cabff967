"""Constant memory that a host program fills, as parameters of the kernel.

A launch of greenfast passes tensors and numbers, and fills no `__constant__` memory. Where the
command or the script has its values (`--arg`, `cmem_args`), the kernel gets a parameter of that
name, which hides the constant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from greenfast.app.cli.import_constant_readers import passed_to_readers
from greenfast.app.cli.import_parameters import QUALIFIERS
from greenfast.app.cli.import_source import CONSTANT, CudaText, known_entry, without_comments

FLAT = "_values"  # ends the parameter of an array of arrays


@dataclass(frozen=True)
class _Constant:
    name: str
    kind: str  # its type, as the text has it
    sizes: tuple[str, ...]  # empty: a number

    @property
    def parameter(self) -> str:
        """The name of the parameter that has its values."""
        return self.name + FLAT if len(self.sizes) > 1 else self.name

    @property
    def declared(self) -> str:
        pointer = "* __restrict__" if self.sizes else ""
        return f"const {self.kind}{pointer} {self.parameter}"

    @property
    def in_function(self) -> str:
        """The parameter of a device function that reads it."""
        if len(self.sizes) < 2:
            return self.declared
        return f"const {self.kind} (*{self.name}){self._row}"

    @property
    def _row(self) -> str:
        return "".join(f"[{size}]" for size in self.sizes[1:])

    @property
    def statement(self) -> str:
        """What gives an array of arrays its name in the kernel."""
        if len(self.sizes) < 2:
            return ""
        return f" {self.in_function} = (const {self.kind} (*){self._row}){self.parameter};"


def with_constants(
    source: CudaText, entry: str | None, file: str, given: Collection[str]
) -> tuple[CudaText, tuple[str, ...]]:
    """The text whose kernel gets the given constants as parameters, and these parameters.

    Device functions that read one get it from their callers.
    """
    bare = without_comments(source.text)
    every = {each.name: each for each in _constants(bare)}  # an extern one is declared twice
    constants = [
        each for each in every.values() if not {each.name, each.parameter}.isdisjoint(given)
    ]
    if not constants:
        return source, ()
    for constant in constants:
        source = passed_to_readers(source, constant.name, constant.in_function)
    bare = without_comments(source.text)
    _, kernel = known_entry(bare, entry, file)
    body = kernel.end()
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
        yield _Constant(match["name"], kind, sizes)


def as_parameters(arguments: Collection[str], constants: Collection[str]) -> list[str]:
    """--arg texts, where those of arrays of arrays have the names of their parameters."""
    named = [each.partition(":") for each in arguments]
    return [
        (name + FLAT if name + FLAT in constants else name) + colon + rest
        for name, colon, rest in named
    ]
