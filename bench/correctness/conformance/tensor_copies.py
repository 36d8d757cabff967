"""Tensor copies of one block: every rank, type and swizzle, and boxes that leave the tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from bench.correctness.conformance import copy_model
from bench.correctness.conformance.case import Case, blank, poisoned
from greenfast.search.devices.tensor_map import SWIZZLES_BYTES, UNIT_BYTES, TensorMap

RANKS = (1, 2, 3, 4)
TYPES = ("uint8", "fp16", "float32")  # elements of 1, 2 and 4 bytes
TILE_BYTES = 8192  # room in shared memory
STALE = 0xEE  # what shared memory holds before each load

# `plan`: how many copies, and the bytes of each; then for each copy the coordinates of the load
# and of the store, four numbers each, and where its tile begins, in units of 128 bytes.
COPIES = """
#include "gf/tensor_copy.cuh"
extern "C" __global__ void __launch_bounds__(128)
k(const unsigned char* source, const int* plan, unsigned char* tiles, unsigned char* stored,
  const __grid_constant__ gf::TensorMap from, const __grid_constant__ gf::TensorMap to) {
    alignas(1024) __shared__ unsigned char memory[%(room)d];
    __shared__ unsigned long long barrier;
    const int thread = threadIdx.x, copies = plan[0], bytes = plan[1];
    if (thread == 0) {
        gf::tensor_prefetch(&from);
        gf::mbarrier_init(&barrier, 1);
        gf::mbarrier_init_fence();
    }
    for (int i = 0; i < copies; i++) {
        const int* at = plan + 2 + i * 9;
        unsigned char* tile = memory + at[8] * 128;
        for (int b = thread; b < %(room)d; b += 128) memory[b] = %(stale)d;
        gf::proxy_fence_shared();
        __syncthreads();
        if (thread == 0) {
            gf::mbarrier_expect_bytes(&barrier, bytes);
            gf::tensor_load(tile, &from, &barrier, %(load)s);
        }
        gf::mbarrier_wait(&barrier, i & 1);
        for (int b = thread; b < %(room)d; b += 128) tiles[i * %(room)d + b] = memory[b];
        if (thread == 0) {
            gf::tensor_store(&to, tile, %(store)s);
            gf::bulk_commit();
            gf::bulk_wait<0>();
        }
        __syncthreads();
    }
}
"""


def tensor_copies() -> Iterator[Case]:
    yield from _refused()
    for rank in RANKS:
        for dtype in TYPES:
            for swizzle_bytes in SWIZZLES_BYTES:
                yield _every_place(rank, dtype, swizzle_bytes)
    for dtype in TYPES:
        yield _ragged(dtype)
    for dtype in ("fp16", "bf16", "float32"):
        yield _filled_with_nan(dtype)
    for row_bytes, swizzle_bytes in ((16, 32), (32, 64), (32, 128), (64, 128)):
        yield _narrow(row_bytes, swizzle_bytes)
    yield _strides("rows that lie between those of another axis", (32, 8, 5), (320, 64), 64)
    yield _strides("axes in another order in memory", (32, 6, 7), (448, 64), 64)
    yield _strides("rows that overlap", (64, 9, 3), (16, 256), 32)
    yield _strides("a stride of 0", (64, 4, 5), (64, 0), 0)
    yield _far_away()


# What a GPU does with a box there (measured on an H200): boxes begin at multiples of 16 bytes, and
# stores have no negative coordinates.
LOAD = """            gf::mbarrier_expect_bytes(&barrier, bytes);
            gf::tensor_load(tile, &from, &barrier, %(load)s);
"""
STORE = "            gf::tensor_store(&to, tile, %(store)s);\n"
NO_LOAD = "            gf::mbarrier_arrive(&barrier);\n"


def _refused() -> Iterator[Case]:
    """One load or one store each, which no GPU takes."""
    for dtype, unit in (("uint8", 16), ("fp16", 8), ("float32", 4)):
        for swizzle_bytes in (0, 128):
            for column in (1, unit // 2, -1):
                words = f"at column {column} of {dtype} with a swizzle of {swizzle_bytes} bytes"
                tensor_map = dense_map(2, dtype, swizzle_bytes)
                yield _fails(f"a tensor load {words}", tensor_map, (column, 1), STORE, "")
                yield _fails(f"a tensor store {words}", tensor_map, (column, 1), LOAD, NO_LOAD)
    for at in ((8, -1), (-8, 1), (-24, 1), (0, -6)):
        words = f"a tensor store at column {at[0]} and row {at[1]}"
        yield _fails(words, dense_map(2, "fp16", 0), at, LOAD, NO_LOAD)


def _fails(name: str, source: TensorMap, at: tuple[int, ...], old: str, new: str) -> Case:
    assert COPIES.count(old) == 1
    case = _case(name, source, [at], [at], text=COPIES.replace(old, new), seed=10)
    return replace(case, expected={}, fails=True)


def _every_place(rank: int, dtype: str, swizzle_bytes: int) -> Case:
    name = f"tensor copies {rank}-D {dtype} with a swizzle of {swizzle_bytes} bytes"
    return _case(name, dense_map(rank, dtype, swizzle_bytes), seed=rank)


def dense_map(rank: int, dtype: str, swizzle_bytes: int, row_bytes: int = 160) -> TensorMap:
    """A tensor of a few rows, with a gap of 32 bytes behind each; a box spans one swizzle."""
    element = TensorMap("", "", dtype, (), (), ()).element_bytes
    sizes = (row_bytes // element, 13, 5, 3)[:rank]
    strides, step = [], -(-row_bytes // 16) * 16 + 32
    for size in sizes[1:]:
        strides.append(step)
        step *= size
    box = ((swizzle_bytes or 48) // element, 6, 3, 2)[:rank]
    return TensorMap("from", "source", dtype, sizes, tuple(strides), box, swizzle_bytes)


def _ragged(dtype: str) -> Case:
    """Rows that end within a run of 16 bytes."""
    return _case(f"tensor copies of ragged rows of {dtype}", dense_map(2, dtype, 64, 148), seed=5)


def _filled_with_nan(dtype: str) -> Case:
    base = dense_map(2, dtype, 32)
    with_nan = replace(base, fill="nan")
    return _case(f"tensor copies filled with NaN of {dtype}", with_nan, seed=6)


def _narrow(row_bytes: int, swizzle_bytes: int) -> Case:
    """Rows of a box that are shorter than its swizzle."""
    base = dense_map(2, "fp16", swizzle_bytes)
    narrow = replace(base, box=(row_bytes // 2, 16))
    name = f"tensor copies of rows of {row_bytes} bytes with a swizzle of {swizzle_bytes}"
    return _case(name, narrow, seed=9)


def _strides(words: str, sizes: tuple[int, ...], strides: tuple[int, ...], swizzle: int) -> Case:
    box = (16, 4, 2)
    tensor_map = TensorMap("from", "source", "fp16", sizes, strides, box, swizzle)
    return _case(f"tensor copies of {words}", tensor_map, seed=7)


def _target(source: TensorMap) -> TensorMap:
    """The same tensor in the output. Where rows share memory, the output's do not."""
    row_bytes, strides = source.sizes[0] * source.element_bytes, source.strides_bytes
    if strides and min(strides) < row_bytes:
        strides = (row_bytes, row_bytes * source.sizes[1])
    return replace(source, name="to", buffer="stored", fill="zero", strides_bytes=strides)


def _far_away() -> Case:
    """Coordinates at the ends of their range: nothing lies there."""
    tensor_map = dense_map(2, "fp16", 64)
    most, least = 2**31 - 1, -(2**31)
    last = most // 8 * 8
    places = [(last, 0), (least, 0), (0, most), (0, least), (last, most), (0, 0)]
    return _case("tensor copies at far coordinates", tensor_map, places, seed=8)


def places_of(tensor_map: TensorMap, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Boxes inside, across each border of each axis, outside, and anywhere that a load takes."""
    sizes, box = tensor_map.sizes, tensor_map.box
    inside = tuple((size - length) // 2 for size, length in zip(sizes, box, strict=True))
    places = [(0,) * len(sizes), inside]
    for axis, (size, length) in enumerate(zip(sizes, box, strict=True)):
        for start in (-1, 1 - length, size - length + 1, size - 1, -length, size):
            places.append((*inside[:axis], start, *inside[axis + 1 :]))
    places += [
        tuple(int(rng.integers(-length, size + 1)) for size, length in zip(sizes, box, strict=True))
        for _ in range(6)
    ]
    return [aligned(tensor_map, at) for at in places]


def aligned(tensor_map: TensorMap, at: Sequence[int]) -> tuple[int, ...]:
    """The nearest place before that begins at a multiple of 16 bytes."""
    unit = UNIT_BYTES // tensor_map.element_bytes
    return (at[0] // unit * unit, *at[1:])


def for_stores(places: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Those without negative coordinates."""
    return [at for at in places if min(at) >= 0]


def _case(
    name: str,
    source: TensorMap,
    places: list[tuple[int, ...]] | None = None,
    store_places: list[tuple[int, ...]] | None = None,
    *,
    text: str = COPIES,
    seed: int,
) -> Case:
    rng = np.random.default_rng(seed)
    places = places or places_of(source, rng)
    store_places = store_places or for_stores(places)
    target = _target(source)
    memory = random_memory(source, rng)
    bytes_ = copy_model.box_bytes(source)
    plan, tiles, stored = [len(places), bytes_], [], poisoned(random_memory(target, rng).size)
    for number, at in enumerate(places):
        # A tile may begin within its swizzle's pattern, which follows the address.
        begin = number % 8
        store_at = store_places[(number * 5 + 3) % len(store_places)]
        padding = [0] * (4 - len(at))
        plan += [*at, *padding, *store_at, *padding, begin]
        box = copy_model.loaded(source, memory, at)
        tile = np.full(TILE_BYTES, STALE, np.uint8)
        tile[copy_model.box_places(source, begin * 128)] = box
        tiles.append(tile)
        copy_model.store(target, stored, store_at, box)
    names = {"room": TILE_BYTES, "stale": STALE}
    for offset, word in ((0, "load"), (4, "store")):
        names[word] = ", ".join(f"at[{offset + axis}]" for axis in range(source.rank))
    return Case(
        name,
        text % names,
        {"source": memory, "plan": np.array(plan, np.int32)},
        {"tiles": blank(np.uint8, len(places), TILE_BYTES), "stored": blank(np.uint8, stored.size)},
        maps=(source, target),
        block=(128, 1, 1),
        architecture=90,
        expected={"tiles": np.array(tiles), "stored": stored},
    )


def random_memory(tensor_map: TensorMap, rng: np.random.Generator) -> np.ndarray:
    """Bytes for all of the tensor and what may lie behind its last row."""
    last = sum(
        (size - 1) * stride
        for size, stride in zip(tensor_map.sizes[1:], tensor_map.strides_bytes, strict=True)
    )
    count = last + tensor_map.sizes[0] * tensor_map.element_bytes
    return rng.integers(0, 256, -(-count // 256) * 256 + 256, dtype=np.uint8)
