"""Checked runs of attention: each planted bug is reported with its line, the original passes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from emulator_harness import ORDERS, only_right, prepared
from slow_cases import quick_first

from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.problem import lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve
from greenfast.search.targets.emulator.build import Module
from greenfast.search.targets.emulator.execute import execute
from greenfast.search.targets.emulator.problem_run import emulated_run


@pytest.fixture(scope="session")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.fixture(scope="module")
def attention():
    return Catalogue.from_environment().kernel("attention")


COMPILED = (("D", 64), ("dtype", "fp16"), ("mask", "none"))


def before(text, anchor, old, new=""):
    """`text` with the last `old` ahead of `anchor` replaced."""
    end = text.index(anchor)
    start = text.rindex(old, 0, end)
    return text[:start] + new + text[start + len(old) :]


def anywhere(text, old, new=""):
    assert old in text
    return text.replace(old, new)


SYNC = "__syncthreads();"
# name: the template's parameters, the change of its text, the kind of finding in every order, and
# the text of one of the lines in the finding
PLANTED = {
    "no barrier after P": (
        {"pipeline_depth": 2},
        lambda t: before(t, "multiply_p_v(tiles", SYNC),
        "race",
        "p[lane + i * softmax_lanes] =",
    ),
    "no barrier after S": (
        {"pipeline_depth": 2},
        lambda t: before(t, "softmax(state, tiles", SYNC),
        "race",
        "store_matrix_sync(scores",
    ),
    "O not cleared": (
        {},
        lambda t: before(t, "for (int tile = 0; tile < tile_count", "clear(tiles.o);"),
        "uninitialised",
        "load_matrix_sync(sum[j]",
    ),
    "no wait for the copy": (
        {"pipeline_depth": 2},
        lambda t: before(t, "multiply_q_k(tiles", "gf::async_copy_wait<0>();"),
        "in_flight_read",
        "gf::async_copy<16>(tile",
    ),
    "no trailing barrier": (
        {"pipeline_depth": 1},
        lambda t: before(t, "gf::async_copy_wait<0>();\n    __syncthreads", SYNC),
        "race",
        "gf::async_copy<16>(tile",
    ),
    "no __syncwarp before P in place": (
        {"s_p_alias": True},
        lambda t: anywhere(t, "__syncwarp();"),
        "race",
        "p[lane + i * softmax_lanes] =",
    ),
    "tail not predicated": (
        {},
        lambda t: anywhere(
            anywhere(t, "exists ? 16 : 0", "16"),
            "(exists ? first_row + row : 0)",
            "(first_row + row)",
        ),
        "out_of_bounds",
        "gf::async_copy<16>(tile",
    ),
    "barrier in one warp": (
        {"pipeline_depth": 1},
        lambda t: before(
            t,
            "gf::async_copy_wait<0>();\n    __syncthreads",
            SYNC,
            "if (threadIdx.x < 32) __syncthreads();",
        ),
        "divergence",
        "__syncthreads",
    ),
    "wrong shuffle mask": (
        {},
        lambda t: anywhere(
            t, "gf::warp_sum<softmax_lanes>(sum)", "__shfl_xor_sync(0x0fffffffu, sum, 1)"
        ),
        "divergence",
        "gf::warp_sum",
    ),
}


def attention_runs(emulator, attention, parameters, change=lambda text: text):
    """Each order's checked run of template wmma over three KV tiles or more, the last partial."""
    template = attention.template("wmma")
    preset = preset_candidate(template, "stage2", COMPILED)
    candidate = replace(preset, parameters=tuple({**dict(preset.parameters), **parameters}.items()))
    point = resolve(template, candidate.parameters, COMPILED, device("h200"))
    catalogue = Catalogue.from_environment()
    source = render(attention, template, point, catalogue.include_dirs)
    changed = change(source.unit)
    module = emulator.build_module(changed, source.entries, flavour="checked", deadline_s=60)
    assert isinstance(module, Module), module.log
    cases = derived_cases(attention, COMPILED, point.tiles, 0)
    case = max(cases, key=lambda case: dict(case.dims)["S_kv"] + dict(case.dims)["S_q"] % 16)
    case = replace(case, layout="contiguous")  # where the last row ends, its buffer ends
    problem = lay_out(attention, template, point, case, case_data(attention, case))
    runs = [
        emulated_run(problem, order, order, device=device("h200"), check=True) for order in ORDERS
    ]
    return execute(emulator, module, runs, workers=2, deadline_s=20, memory_bytes=2**32)


@pytest.mark.parametrize("name", quick_first(PLANTED, 1))
def test_a_bug_planted_into_attention_is_reported_in_every_order(emulator, attention, name):
    parameters, change, kind, text_of_line = PLANTED[name]
    files = {
        name: path.read_text().splitlines()
        for name, path in attention.template("wmma").files.items()
    }
    for result in attention_runs(emulator, attention, parameters, change):
        findings = [finding for finding in result.findings if finding.kind == kind]
        assert findings, (result.name, result.findings, result.faults)
        named = {
            where for finding in findings for where in (finding.where, finding.other_where) if where
        }
        assert all(file in files for file, _ in named), named
        assert any(text_of_line in files[file][line - 1] for file, line in named), (
            result.name,
            findings,
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters",
    quick_first(
        [
            {},
            {"pipeline_depth": 1},
            {"s_p_alias": True},
            {"o_in": "fragments"},
            {"split_kv_wait": True},
            {"q_in_fragments": True},
        ],
        2,
    ),
    ids=str,
)
def test_no_alarm_on_the_right_attention_kernel(emulator, attention, parameters):
    only_right(attention_runs(emulator, attention, parameters))
