"""The tiles that a call of make_inputs reads, so that candidates with other tiles share its data.

The same arguments give the same bits, and most recipes look at one tile, or at none. Two calls that
read equal values therefore return equal arrays, also where the tiles that neither reads differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tiles = tuple[tuple[str, int], ...]  # of a case
_OF_ONE = {"get", "__getitem__", "__contains__"}  # methods of a dict that look up one name
_OF_NONE = {"__new__", "__init__", "__doc__", "__hash__", "__getattribute__", "__class_getitem__"}


@dataclass(frozen=True)
class TilesRead:
    """Names and values; None: the recipe asked for a tile that does not exist."""

    values: frozenset[tuple[str, int | None]] = frozenset()
    every: Tiles | None = None  # all tiles, where the call may have seen each

    def agrees(self, tiles: Tiles) -> bool:
        """Whether a call with `tiles` reads the same."""
        if self.every is not None:
            return self.every == tiles
        known = dict(tiles)
        return all(known.get(name) == value for name, value in self.values)

    @property
    def names(self) -> frozenset[str] | None:
        """The tiles that were read; None: all."""
        return None if self.every is not None else frozenset(name for name, _ in self.values)


class WatchedTiles(dict[str, int]):
    """A case's tiles, which note what is read of them.

    Any other method than one that looks up a name counts as reading all tiles. Python calls them
    for copies, `**tiles` and JSON, too.
    """

    def __init__(self, tiles: Tiles) -> None:
        super().__init__(tiles)
        self._tiles, self.reads_all = tiles, False
        self._values: dict[str, int | None] = {}

    @property
    def read(self) -> TilesRead:
        return TilesRead(frozenset(self._values.items()), self._tiles if self.reads_all else None)

    def __getitem__(self, name: str) -> int:
        self._note(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._note(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self._note(name)
        return super().__contains__(name)

    def _note(self, name: object) -> None:
        if isinstance(name, str):
            self._values[name] = super().get(name)


def _reads_all(name: str) -> Callable[..., Any]:
    """The dict's method of that name, which may see every tile."""

    def method(tiles: WatchedTiles, *arguments: Any, **named: Any) -> Any:
        tiles.reads_all = True
        return getattr(dict, name)(tiles, *arguments, **named)

    return method


for _name in dict.__dict__.keys() - _OF_ONE - _OF_NONE:
    setattr(WatchedTiles, _name, _reads_all(_name))
