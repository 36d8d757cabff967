"""A finding's line in a template for Hopper names the stage that the line serves."""

from __future__ import annotations

import pytest

from greenfast.search.diagnose.explanation_stage import stage_of_line

LINES = {
    "attention/wgmma": {
        "gf::mbarrier_expect_bytes(full, consumers * q_elements * 2);": "qk",
        "gf::mbarrier_wait(&empty[place.slot], place.parity ^ 1);": "qk",
        "load_kv(loads.v, shared.v": "pv",
        "gf::wgmma<Element, {{ keys }}>(scores": "qk",
        "gf::wgmma<Element, head_dim, true>(output": "pv",
        "scores[4 * j + 2 * half + c] = minus_infinity();": "softmax",
        "gf::warp_sum<4>(softmax.sum[half])": "state",
        "gf::stmatrix<4>(tile": "single_tile",
    },
    "attention_fp8/wgmma": {
        "gf::stmatrix<4>(turned": "pv",
        "gf::mbarrier_wait(&barriers.turned_empty": "pv",
        "gf::pack_fp8x4<Number>(scores[near]": "softmax",
        "gf::mbarrier_expect_bytes(&full[place.slot], kv_bytes);": "qk",
    },
    "gemm/wgmma": {
        "gf::mbarrier_expect_bytes(full": "products",
        "gf::wgmma_wait<1>();": "products",
        "finished[i][j] += four.x;": "products",
        "gf::bulk_wait_read<store_buffers - 1>();": "output",
    },
}


@pytest.mark.parametrize("name", LINES)
def test_the_stage_of_a_line(catalogue, name):
    kernel_name, _, template_name = name.partition("/")
    kernel = catalogue.kernel(kernel_name)
    template = kernel.template(template_name)
    order = [*(probe.name for probe in kernel.probes), "output"]
    text = template.text.split("\n")
    for words, stage in LINES[name].items():
        (at,) = [number for number, line in enumerate(text) if words in line][:1]
        place = template.lines[at].file, template.lines[at].number
        assert stage_of_line(template, order, place) == stage, words
