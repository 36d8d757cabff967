"""Case data is computed once and kept within a byte limit; the least recently used goes first."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest

from greenfast.search.oracle import reference
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.read_tiles import WatchedTiles
from greenfast.search.oracle.reference import CaseDataCache


@pytest.fixture
def cases(album):
    kernel = album.kernel("axpy")
    derived = derived_cases(kernel, kernel.workload("odd").compile_time(kernel), {}, 0)
    return kernel, [replace(derived[0], seed=number) for number in range(6)]


@pytest.fixture
def computed(monkeypatch):
    """Seeds of the cases that were computed, in order."""
    seen, compute = [], reference.compute_case_data

    def noted(kernel, case, by):
        seen.append(case.seed)
        return compute(kernel, case, by)

    monkeypatch.setattr(reference, "compute_case_data", noted)
    return seen


def test_what_was_used_least_recently_is_given_up_first(cases, computed):
    kernel, (zero, one, two, three, *_) = cases
    cache = CaseDataCache(kept_bytes=3 * CaseDataCache(0).get(kernel, zero, None).nbytes)
    computed.clear()
    for case in (zero, one, two, zero, three):  # the fourth to come takes the place of `one`
        cache.get(kernel, case, None)
    assert computed == [0, 1, 2, 3]
    cache.get(kernel, zero, None)
    cache.get(kernel, two, None)
    assert computed == [0, 1, 2, 3]
    cache.get(kernel, one, None)
    assert computed == [0, 1, 2, 3, 1]


def test_one_that_is_larger_than_the_room_is_still_given(cases, computed):
    kernel, (zero, one, *_) = cases
    cache = CaseDataCache(kept_bytes=1)
    assert cache.get(kernel, zero, None) is cache.get(kernel, zero, None)
    cache.get(kernel, one, None)
    cache.get(kernel, zero, None)
    assert computed == [0, 1, 0]


READS = """
import numpy as np

def make_inputs(dims, options, recipe, seed, tiles):
    size = 0 if recipe == "normal" else tiles["tile"]
    if size > 2:
        size += tiles.get("depth", 0)
    return {"x": np.full(dims["N"], size + seed, np.float16)}

def reference(dims, options, inputs):
    return {"y": {"value": inputs["x"].astype(float), "bound": 1.0, "rounded": None}}
"""


def test_cases_share_what_follows_from_tiles_that_their_recipe_does_not_read(cases, computed):
    kernel, (case, *_) = cases
    kernel = replace(kernel, reference_text=READS)
    cache = CaseDataCache(kept_bytes=2**20)

    def first(recipe, **tiles):
        asked = replace(case, name=f"{tiles}", inputs=recipe, tiles=tuple(sorted(tiles.items())))
        return cache.get(kernel, asked, None).inputs["x"][0]

    assert [first("normal", tile=tile, depth=1) for tile in (1, 2, 3, 4)] == [0, 0, 0, 0]
    assert len(computed) == 2  # the first call tells which tiles the recipe reads
    computed.clear()
    assert [first("edge", tile=2, depth=depth) for depth in (1, 2, 3)] == [2, 2, 2]
    assert len(computed) == 2
    computed.clear()
    # It looks at the depth only now, so that calls which did not are no guide.
    assert [first("edge", tile=3, depth=depth) for depth in (1, 2, 1, 2)] == [4, 5, 4, 5]
    assert len(computed) == 3


@pytest.mark.parametrize(
    "use",
    [
        *(dict, sorted, len, repr, json.dumps, copy.copy),
        lambda tiles: {**tiles},
        lambda tiles: tiles | {},
        lambda tiles: tiles != {},
        lambda tiles: tiles.items(),
        lambda tiles: tiles.pop("depth"),
    ],
)
def test_a_call_that_may_have_seen_every_tile_counts_as_one_that_read_them(use):
    tiles = WatchedTiles((("depth", 2), ("tile", 64)))
    use(tiles)
    assert tiles.read.names is None
    assert tiles.read.agrees((("depth", 2), ("tile", 64)))
    assert not tiles.read.agrees((("depth", 3), ("tile", 64)))


def test_a_tile_that_is_missing_is_read_too():
    tiles = WatchedTiles((("tile", 64),))
    assert "depth" not in tiles and tiles.get("depth", 1) == 1 and tiles["tile"] == 64
    assert tiles.read.names == {"depth", "tile"}
    assert tiles.read.agrees((("other", 1), ("tile", 64)))
    assert not tiles.read.agrees((("depth", 1), ("tile", 64)))
