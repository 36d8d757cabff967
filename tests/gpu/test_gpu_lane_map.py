"""A GPU's own wmma lane map is the one that gf/wmma_lanes.cuh and gf/wmma_fragment.cuh say."""

from __future__ import annotations

import numpy as np
import pytest
from lane_kernels import ACCUMULATOR, OPERANDS, described_by_script, operand_text, operand_tile

from greenfast.search.kernels.template_text import Line
from greenfast.search.render import assemble
from greenfast.search.toolchain import Cubin


@pytest.fixture
def launch(catalogue, toolchain, tmp_path):
    """Compile a text and run its entry `k` on one warp; arrays in and out."""
    import cupy

    def run(text: str, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> list[np.ndarray]:
        capability = cupy.cuda.Device().compute_capability
        body = [
            (line, Line("lane_kernels.py", number))
            for number, line in enumerate(text.splitlines(), 1)
        ]
        cubin = toolchain.compile(
            assemble(body, ("k",), catalogue.include_dirs), f"sm_{capability}"
        )
        assert isinstance(cubin, Cubin), cubin
        (tmp_path / "k.cubin").write_bytes(cubin.code)
        arrays = [cupy.asarray(input_) for input_ in (*inputs, *outputs)]
        cupy.RawModule(path=str(tmp_path / "k.cubin")).get_function("k")((1,), (32,), tuple(arrays))
        return [cupy.asnumpy(array) for array in arrays[len(inputs) :]]

    return run


def test_an_accumulators_map_is_where_the_hardware_stores_it(launch):
    stored, described, _ = launch(
        ACCUMULATOR,
        [],
        [np.zeros((16, 16), np.float32), np.zeros(256, np.int32), np.zeros(256, np.int32)],
    )
    assert (stored == described_by_script()).all(), stored
    assert (stored.ravel()[described] == np.arange(256)).all()


@pytest.mark.parametrize(("use", "order", "dtype"), OPERANDS)
def test_an_operand_loaded_from_anywhere_is_what_the_hardware_loads(launch, use, order, dtype):
    theirs, ours = launch(
        operand_text(use, order, dtype),
        [operand_tile(dtype)],
        [np.full((32, 16), -1, np.float32)] * 2,
    )
    assert (theirs == ours).all(), (theirs[:2], ours[:2])
