"""The fused softmax's lane map against the emulator's store (tests/gpu: against a GPU's)."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_harness import Kernel, prepared, values
from lane_kernels import ACCUMULATOR, OPERANDS, described_by_script, operand_text, operand_tile


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def test_an_accumulators_map_is_where_the_store_puts_it(emulator):
    outputs = {
        "stored": np.zeros((16, 16), np.float32),
        "described": np.zeros(256, np.int32),
        "half": np.zeros(256, np.int32),
    }
    result = Kernel(emulator, ACCUMULATOR)({}, outputs)
    stored = values(result, "stored").reshape(16, 16).astype(int)
    assert (stored == described_by_script()).all()
    described, half = values(result, "described", np.int32), values(result, "half", np.int32)
    assert (stored.ravel()[described] == np.arange(256)).all()
    rows = described.reshape(32, 8) // 16
    for lane in range(32):  # a half is a row, and four neighbours share both
        for which in (0, 1):
            assert set(rows[lane][half.reshape(32, 8)[lane] == which]) == {
                rows[lane // 4 * 4][2 * which]
            }


@pytest.mark.parametrize(("use", "order", "dtype"), OPERANDS)
@pytest.mark.slow
def test_an_operand_loaded_from_anywhere_is_what_load_matrix_sync_loads(
    emulator, use, order, dtype
):
    outputs = {name: np.full((32, 16), -1, np.float32) for name in ("theirs", "ours")}
    result = Kernel(emulator, operand_text(use, order, dtype))(
        {"matrix": operand_tile(dtype)}, outputs
    )
    theirs, ours = (values(result, name) for name in ("theirs", "ours"))
    assert (theirs == ours).all()
    assert set(ours) == set(range(256))
