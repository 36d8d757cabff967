"""Describes the wrong elements in a few words: `rows 8..15 of each 16, key tiles from 1 on`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

PERIODS = (2, 4, 8, 16, 32, 64)
MOST_NAMED = 6
MOST_GROUPS = 4


def pattern(
    wrong: np.ndarray,
    compared: np.ndarray,
    axes: Sequence[str],
    tiles: Mapping[str, int],
    labels: Mapping[str, Sequence[str]],
    warp_rows: int = 0,
) -> str:
    """Describe where `wrong` (bool, one axis per name) is set among the `compared` elements.

    "everywhere" when no pattern is narrower. `tiles`: elements of a tile along an axis. `labels`:
    names of an axis's positions. `warp_rows`: rows of a tile that a warp owns, in order.
    """
    names = list(axes)
    diagonal = _diagonal(wrong, compared, names)
    labelled: list[str] = []
    words: list[str] = []
    for axis, name in enumerate(names):
        others = tuple(other for other in range(wrong.ndim) if other != axis)
        bad, there = (np.asarray(where.any(axis=others)) for where in (wrong, compared))
        if name in labels:
            labelled += [labels[name][int(position)] for position in np.flatnonzero(bad)]
        elif not (diagonal and name in ("row", "key")):
            words += _axis(name, bad, there, tiles.get(name, 0), warp_rows if name == "row" else 0)
    everywhere = wrong.sum() == compared.sum()
    words = diagonal + words or ([] if everywhere else _checkered(wrong, compared, names))
    return ", ".join([*labelled, *(words or ["everywhere" if everywhere else "scattered"])])


def _diagonal(wrong: np.ndarray, compared: np.ndarray, names: list[str]) -> list[str]:
    """`key = row + 1`, when all wrong elements lie on one diagonal of at least three."""
    if "row" not in names or "key" not in names:
        return []
    places = np.nonzero(wrong)
    rows, keys = places[names.index("row")], places[names.index("key")]
    offsets = np.unique(keys - rows)
    if len(offsets) != 1 or len(np.unique(rows)) < 3:
        return []
    offset = int(offsets[0])
    return [f"key = row {'+' if offset >= 0 else '-'} {abs(offset)}" if offset else "key = row"]


def _checkered(wrong: np.ndarray, compared: np.ndarray, names: list[str]) -> list[str]:
    """The pattern of a wrong lane map: rows of each 8, 16 or 32, wrong in certain columns only."""
    if "row" not in names or names[-1] not in ("key", "column"):
        return []
    row = names.index("row")
    others = tuple(axis for axis in range(wrong.ndim - 1) if axis != row)
    bad, there = wrong.sum(axis=others), compared.sum(axis=others)  # [rows, keys]
    for period in (8, 16, 32):
        if 2 * period > max(bad.shape):
            break
        sums = np.zeros((2, period, period))
        for total, counts in zip(sums, (bad, there), strict=True):
            np.add.at(
                total,
                (np.arange(bad.shape[0])[:, None] % period, np.arange(bad.shape[1])[None] % period),
                counts,
            )
        share = sums[0] / np.maximum(sums[1], 1.0)
        if (
            ((share < 0.02) | (share > 0.9)).all()
            and (share > 0.9).any()
            and (share[sums[1] > 0] < 0.02).any()
        ):
            return _groups(share > 0.9, period, names[-1])
    return []


def _groups(wrong: np.ndarray, period: int, name: str) -> list[str]:
    """Group the rows that are wrong in the same columns."""
    rows: dict[bytes, list[int]] = {}
    for row, places in enumerate(wrong):
        if places.any():
            rows.setdefault(places.tobytes(), []).append(row)
    if len(rows) > MOST_GROUPS:
        return []
    places = [
        f"{name}s {_ranges(np.flatnonzero(wrong[group[0]]))} of each {period}"
        if not wrong[group[0]].all()
        else f"all {name}s"
        for group in rows.values()
    ]
    return [
        f"rows {_ranges(np.array(group))} of each {period} at {place}"
        for group, place in zip(rows.values(), places, strict=True)
    ]


def _axis(name: str, bad: np.ndarray, there: np.ndarray, tile: int, warp_rows: int) -> list[str]:
    """The wrong tiles along one axis, and the wrong places inside them. Empty for all of them."""
    if bad[there].all():
        return []
    words = []
    positions = np.flatnonzero(there)
    if 1 < tile < len(bad):
        words = _warps(bad, positions, tile, warp_rows) or _periodic(name, bad, positions, tile)
    if 1 < tile < len(bad) and not words:
        count = -(-len(bad) // tile)
        of_tile = [
            bad[tile_number * tile : (tile_number + 1) * tile].any() for tile_number in range(count)
        ]
        seen = [
            there[tile_number * tile : (tile_number + 1) * tile].any()
            for tile_number in range(count)
        ]
        if not np.array(of_tile)[np.array(seen)].all():
            words.append(_places(f"{name} tile", np.array(of_tile), np.flatnonzero(seen)))
            positions = positions[np.array(of_tile)[positions // tile]]
        if not bad[positions].all():
            words += (
                _warps(bad, positions, tile, warp_rows)
                or _periodic(name, bad, positions, tile)
                or [_places(name, bad, positions)]
            )
    return words or _periodic(name, bad, positions, 0) or [_places(name, bad, positions)]


def _warps(bad: np.ndarray, positions: np.ndarray, tile: int, warp_rows: int) -> list[str]:
    """The warps that own exactly the wrong rows, when they do."""
    if not warp_rows or tile <= warp_rows:
        return []
    warp = positions % tile // warp_rows
    wrong = np.unique(warp[bad[positions]])
    if not (bad[positions] == np.isin(warp, wrong)).all():
        return []
    rows = ", ".join(
        f"{number * warp_rows}..{number * warp_rows + warp_rows - 1}" for number in wrong
    )
    return [f"rows of warp {_ranges(wrong)} ({rows} of each {tile})"]


def _periodic(name: str, bad: np.ndarray, positions: np.ndarray, tile: int) -> list[str]:
    """The positions modulo 2, 4, 8 ... or the tile size, when these alone are wrong."""
    wrong = positions[bad[positions]]
    span = positions[-1] - positions[0] + 1
    for period in sorted({*PERIODS, *([tile] if tile > 1 else [])}):
        residues = np.unique(wrong % period)
        if (
            len(wrong) > 1
            and 2 * period <= span
            and len(residues) < period
            and (bad[positions] == np.isin(positions % period, residues)).all()
        ):
            return [f"{name}s {_ranges(residues)} of each {period}"]
    return []


def _places(name: str, bad: np.ndarray, positions: np.ndarray) -> str:
    """The wrong positions: `from 3 on`, `up to 7`, or listed."""
    wrong = positions[bad[positions]]
    if len(wrong) == 1 and len(positions) > 1:
        return f"{name} {wrong[0]}"
    if (np.diff(np.searchsorted(positions, wrong)) == 1).all():
        if wrong[-1] == positions[-1]:
            return f"{name}s from {wrong[0]} on"
        return (
            f"{name}s up to {wrong[-1]}"
            if wrong[0] == positions[0]
            else f"{name}s {wrong[0]}..{wrong[-1]}"
        )
    shown = _ranges(wrong[:MOST_NAMED]) + (" ..." if len(wrong) > MOST_NAMED else "")
    return f"{len(wrong)} of {len(positions)} {name}s ({shown})"


def _ranges(numbers: np.ndarray) -> str:
    """1, 4..7"""
    ranges: list[list[int]] = []
    for number in numbers.tolist():
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}..{high}" for low, high in ranges)
