"""A plain kernel as `greenfast import` has read it, before its files are written."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

from greenfast.app.cli.import_source import Entry, ImportedArgument, Tuning
from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import SM_COUNT, Value, expression

_WORD = re.compile(r"[A-Za-z_]\w*")

_TILED = re.compile(r"ceil_div\(\s*(?P<dim>\w+)\s*,(?P<tile>.+)\)\Z")


def _has_only(text: str, names: Container[str]) -> bool:
    """Whether a text is an expression over these names alone, and has one of them."""
    try:
        used = expression(text, "a tile").names
    except SpecError:  # it is the middle of a longer expression
        return False
    return bool(used) and all(name in names for name in used)


@dataclass(frozen=True)
class Imported:
    """A plain kernel, with everything that its files need; expressions have been checked."""

    name: str
    source: str  # the file's name
    text: str
    entry: Entry
    arguments: tuple[ImportedArgument, ...]  # but for scratch memory
    scratch: tuple[ImportedArgument, ...]  # its sizes are expressions
    tuning: Tuning
    defines: Mapping[str, str]  # a parameter's name in the file, by its own
    defaults: Mapping[str, Value]
    grid: list[str]
    block: list[str]
    cluster: list[str]  # empty: none is declared
    smem: str
    tolerance: float | None  # None: 0 for whole numbers, and a small one for others
    multiples: Mapping[str, int]  # of sizes by name; of others any size is checked

    @cached_property
    def dims(self) -> dict[str, int]:
        """Sizes by name: integers that a shape, a range or the grid uses, and literal sizes."""
        used = {size for argument in self.arguments for size in argument.shape}
        texts = {*used, *self.grid, *(argument.fill for argument in self.arguments)}
        texts |= {size for argument in self.scratch for size in argument.shape}
        words = {word for text in texts for word in _WORD.findall(text)} | self._words_of_block
        dims = {
            argument.name: int(argument.value)
            for argument in self.arguments
            if argument.is_size and argument.name in words and argument.value > 0
        }
        return {**dims, **{f"size_{size}": int(size) for size in sorted(used) if size.isdigit()}}

    @property
    def _words_of_block(self) -> set[str]:
        return {word for text in (*self.block, self.smem) for word in _WORD.findall(text)}

    @property
    def compiled_dims(self) -> dict[str, int]:
        """The dims that a block or its shared memory depends on."""
        return {name: size for name, size in self.dims.items() if name in self._words_of_block}

    @cached_property
    def repeated(self) -> dict[str, str]:
        """Sizes by name whose number, or product with others, is also a literal size of a shape.

        The values are these literal sizes. A shape may mean the name, so the size cannot change.
        """
        named = [name for name in self.dims if not name.startswith("size_") and self.dims[name] > 1]
        literal = {size for name, size in self.dims.items() if name.startswith("size_")}
        return {
            name: str(size)
            for count in (1, 2, 3)
            for names in combinations_with_replacement(named, count)
            if (size := math.prod(self.dims[each] for each in names)) in literal
            for name in names
        }

    @cached_property
    def constants(self) -> dict[str, int | float]:
        """Scalars that are no sizes, with their values."""
        return {
            argument.name: argument.value
            for argument in self.arguments
            if argument.role == "scalar" and argument.name not in (*self.dims, SM_COUNT)
        }

    @cached_property
    def computed_dims(self) -> dict[str, str]:
        """Expressions over the dims, by the names that shapes have for them."""
        return {
            name: text for argument in self.arguments for name, text in argument.computed.items()
        }

    @cached_property
    def tiles(self) -> dict[str, str]:
        """The elements that a block takes along a dim, where the grid is ceil_div(dim, tile)."""
        matches = [_TILED.match(text) for text in self.grid]
        tiles = {match["dim"]: match["tile"].strip() for match in matches if match is not None}
        return {
            dim: tile
            for dim, tile in tiles.items()
            if dim in self.dims.keys() - self.compiled_dims.keys()
            and _has_only(tile, self.tuning.parameters)
        }

    @property
    def truth(self) -> str:
        """The sentence on what candidates are compared with."""
        values = ", ".join(f"{self.defines[name]}={value}" for name, value in self.defaults.items())
        return (
            f"the reference is the unmodified kernel {self.entry.name} of {self.source} at "
            f"{values}, run on the emulator, so a mistake that it makes itself is not found"
        )
