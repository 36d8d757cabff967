"""An index outside one part of an object is found, though it lies in another part of it."""

from __future__ import annotations

import pytest
from checked_runs import HEAD, checked
from emulator_harness import only_right, prepared

TILE = HEAD + "__shared__ float tile[4][16];\nconst int t = threadIdx.x;\ntile[t / 16][t % 16] = 1;"
PAIR = HEAD + "__shared__ struct { float a[16], b[48]; } s;\nconst int t = threadIdx.x;\n"
OWN = HEAD + "const int t = threadIdx.x;\nstruct { float a[4], b[4]; } s = {};\n"
ROWS = "\n__syncthreads();\nc[t] = "
INDICES = {
    "a row": TILE + ROWS + "tile[1][int(a[t]) + 15];\n}",  # 16 and more
    "a member in shared memory": PAIR + "s.a[int(a[t]) + 15] = 1;\n}",
    "a member of a thread's own": OWN + "s.a[int(a[t]) + 3] = 1;\nc[t] = s.b[t % 4];\n}",
}


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.mark.parametrize("name", INDICES)
def test_an_index_outside_its_part_is_found(emulator, name):
    (result,) = checked(emulator, INDICES[name], orders=("forward",))
    assert {finding.kind for finding in (*result.findings, *result.faults)} == {"out_of_bounds"}


def test_a_pointer_within_the_object_is_not_found(emulator):
    """The limit that docs/emulator.md states."""
    text = TILE + ROWS.replace("c[t] =", "const float* row = tile[0];\nc[t] =") + "row[t];\n}"
    only_right(checked(emulator, text, block=64, orders=("forward",)))
