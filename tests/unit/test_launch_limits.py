"""Launches that no device runs are refused, and named with the limit that they exceed."""

from __future__ import annotations

import pytest

from greenfast.search.toolchain.launch_bounds import over_launch_bounds

PTX = """
.visible .entry bound(
\t.param .u64 bound_param_0
)
.maxntid 64, 2, 1
.minnctapersm 2
{
\tret;
}
.visible .entry free()
{
\tret;
}
"""


@pytest.mark.parametrize(
    "entries, threads, is_over",
    [
        (("bound",), 128, False),
        (("bound",), 129, True),
        (("free",), 1024, False),
        (("bound", "free"), 1024, False),  # which one has the large block is not known
        (("other",), 1024, False),
    ],
)
def test_a_block_beyond_its_launch_bounds_is_named(entries, threads, is_over):
    sentence = over_launch_bounds(PTX, entries, threads)
    assert bool(sentence) == is_over
    assert not is_over or ("129 threads" in sentence and "at most 128" in sentence)
