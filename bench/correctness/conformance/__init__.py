"""Every primitive of the emulator as a kernel whose outputs a GPU must give bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

from bench.correctness.conformance import (
    barriers,
    bulk_copies,
    cooperation,
    formats,
    matrices,
    reductions,
    tensor_copies,
    warpgroups,
)
from bench.correctness.conformance.case import Case

__all__ = ["Case", "all_cases", "cases"]


def cases() -> Iterator[Case]:
    yield from matrices.wmma_maps()
    yield from matrices.matrix_moves()
    yield from matrices.products()
    yield from formats.float8_conversions()
    yield from formats.float16_conversions()
    yield from formats.register_conversions()
    yield formats.approximations()
    yield cooperation.async_copies()
    yield from cooperation.warp_collectives()
    yield cooperation.barrier_votes()
    yield cooperation.half_atomics()
    yield from cooperation.clusters()
    yield from barriers.barriers()
    yield from bulk_copies.bulk_copies()
    yield from reductions.all_reductions()
    yield from tensor_copies.tensor_copies()


def all_cases() -> Iterator[Case]:
    """Those and the products of warpgroups, which take minutes to compile for the emulator."""
    yield from cases()
    yield from warpgroups.warpgroup_products()
