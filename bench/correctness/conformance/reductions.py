"""Reductions by the copy engine: of plain bytes, and of boxes of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import ml_dtypes
import numpy as np

from bench.correctness.conformance import copy_model
from bench.correctness.conformance.case import Case, blank
from bench.correctness.conformance.tensor_copies import (
    dense_map,
    for_stores,
    places_of,
    random_memory,
)

Update = Callable[[np.ndarray, np.ndarray], np.ndarray]

# The operations of reductions by their PTX names.
UPDATES: dict[str, Update] = {
    "add": lambda old, new: old + new,
    "min": np.minimum,
    "max": np.maximum,
    "inc": lambda old, new: np.where(old >= new, 0, old + 1),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
REDUCED = {
    "u32": (np.uint32, tuple(UPDATES)),
    "s32": (np.int32, ("add", "min", "max")),
    "u64": (np.uint64, ("add", "min", "max")),
    "s64": (np.int64, ("min", "max")),
    "b64": (np.uint64, ("and", "or", "xor")),
    "f16": (np.float16, ("add",)),
    "bf16": (ml_dtypes.bfloat16, ("add",)),
    "f32": (np.float32, ("add",)),
    "f64": (np.float64, ("add",)),
}
REDUCTION_BYTES = 256

REDUCTIONS = """
#include "gf/tensor_copy.cuh"
extern "C" __global__ void __launch_bounds__(64)
k(const unsigned char* before, const unsigned char* values, unsigned char* after) {
    alignas(128) __shared__ unsigned char memory[%(count)d * 256];
    for (int b = threadIdx.x; b < %(count)d * 256; b += 64) {
        memory[b] = values[b];
        after[b] = before[b];
    }
    gf::proxy_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
%(calls)s
        gf::bulk_commit();
        gf::bulk_wait<0>();
    }
}
"""
REDUCTION = """        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.%(op)s "
                     "[%%0], [%%1], %%2;" ::"l"(after + %(at)d),
                     "r"(gf::shared_address(memory + %(at)d)), "n"(256)
                     : "memory");"""


def reduction_name(operation: str, kind: str) -> str:
    """As the instruction spells it: sums of small floats say that they keep subnormals."""
    if operation in ("and", "or", "xor"):
        kind = kind.replace("u", "b")
    return f"{operation}.noftz.{kind}" if kind in ("f16", "bf16") else f"{operation}.{kind}"


def reductions() -> Case:
    rng = np.random.default_rng(21)
    before, values, after, calls = [], [], [], []
    for kind, (dtype, operations) in REDUCED.items():
        for operation in operations:
            pair = [reducible(dtype, REDUCTION_BYTES, rng) for _ in range(2)]
            names = {"op": reduction_name(operation, kind), "at": len(calls) * REDUCTION_BYTES}
            calls.append(REDUCTION % names)
            before.append(pair[0].view(np.uint8))
            values.append(pair[1].view(np.uint8))
            after.append(UPDATES[operation](*pair).astype(dtype).view(np.uint8))
    text = REDUCTIONS % {"count": len(calls), "calls": "\n".join(calls)}
    return Case(
        "bulk reductions",
        text,
        {"before": np.concatenate(before), "values": np.concatenate(values)},
        {"after": blank(np.uint8, len(calls), REDUCTION_BYTES)},
        block=(64, 1, 1),
        architecture=90,
        expected={"after": np.array(after)},
    )


def reducible(dtype: type, bytes_: int, rng: np.random.Generator) -> np.ndarray:
    """Elements of which every sum is exact: any bits, or small integers of a float type."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        words = rng.integers(0, 256, bytes_, dtype=np.uint8).view(dtype)
        words[::3] %= 5  # equal ones, zeros and small ones, for inc, dec, min and max
        return words
    return rng.integers(-60, 61, bytes_ // dtype.itemsize).astype(dtype)


# `plan`: for each reduction its operation and two coordinates. Its values lie in `values`.
TENSOR_REDUCTIONS = """
#include "gf/tensor_copy.cuh"
extern "C" __global__ void __launch_bounds__(64)
k(const unsigned char* before, const unsigned char* values, const int* plan, unsigned char* after,
  const __grid_constant__ gf::TensorMap map) {
    alignas(1024) __shared__ unsigned char memory[2048];
    const int thread = threadIdx.x, bytes = plan[1];
    for (int b = thread; b < plan[2]; b += 64) after[b] = before[b];
    gf::proxy_fence();
    for (int i = 0; i < plan[0]; i++) {
        for (int b = thread; b < bytes; b += 64) memory[b] = values[i * bytes + b];
        gf::proxy_fence();
        __syncthreads();
        const int* at = plan + 3 + i * 3;
        if (thread == 0) {
            switch (at[0]) {
%(calls)s
            }
            gf::bulk_commit();
            gf::bulk_wait<0>();
        }
        __syncthreads();
    }
}
"""
TENSOR_REDUCTION = """                case %(number)d:
                    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.%(op)s.tile."
                                 "bulk_group [%%0, {%%2, %%3}], [%%1];" ::"l"(&map),
                                 "r"(gf::shared_address(memory)), "r"(at[1]), "r"(at[2])
                                 : "memory");
                    break;"""
MAPPED = {
    "uint32": (np.uint32, tuple(UPDATES)),
    "int32": (np.int32, ("add", "min", "max", "and", "or", "xor")),
    "uint64": (np.uint64, ("add", "min", "max", "and", "or", "xor")),
    "fp16": (np.float16, ("add",)),
    "bf16": (ml_dtypes.bfloat16, ("add",)),
    "float32": (np.float32, ("add",)),
}


def tensor_reductions() -> Iterator[Case]:
    for number, dtype in enumerate(MAPPED):
        yield _tensor_reduction(dtype, (0, 32, 64, 128)[number % 4], seed=30 + number)


def _tensor_reduction(name: str, swizzle_bytes: int, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    dtype, operations = MAPPED[name]
    mapped = dense_map(2, name, swizzle_bytes)
    tensor_map = replace(mapped, buffer="after")
    before = reducible(dtype, random_memory(tensor_map, rng).size, rng).view(np.uint8)
    bytes_, after = copy_model.box_bytes(tensor_map), before.copy()
    # Sums of sums stay small, so that they are exact in every type.
    places = for_stores(places_of(tensor_map, rng))[:: 1 if len(operations) > 1 else 2]
    plan, values = [len(places), bytes_, before.size], []
    for number, at in enumerate(places):
        operation = operations[number % len(operations)]
        plan += [list(UPDATES).index(operation), *at]
        box = reducible(dtype, bytes_, rng).view(np.uint8)
        tile = np.zeros_like(box)
        tile[copy_model.box_places(tensor_map, 0)] = box
        values.append(tile)
        copy_model.reduce(tensor_map, after, at, box, UPDATES[operation], np.dtype(dtype))
    calls = (TENSOR_REDUCTION % {"number": n, "op": op} for n, op in enumerate(UPDATES))
    return Case(
        f"tensor reductions of {name}",
        TENSOR_REDUCTIONS % {"calls": "\n".join(calls)},
        {"before": before, "values": np.array(values), "plan": np.array(plan, np.int32)},
        {"after": blank(np.uint8, before.size)},
        maps=(tensor_map,),
        block=(64, 1, 1),
        architecture=90,
        expected={"after": after},
    )


def all_reductions() -> Iterator[Case]:
    yield reductions()
    yield from tensor_reductions()
