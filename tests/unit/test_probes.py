"""A fault in a stage of attention is found in that stage, with its place; correct stages pass."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from planted_stages import PLANTED, changed, probed, probed_fault

from greenfast.app.cli.probe import show_reports
from greenfast.search.devices.facts import device
from greenfast.search.diagnose.probe_patterns import pattern
from greenfast.search.diagnose.probes import first_wrong, probe_command
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Space
from greenfast.search.targets import TargetSettings, open_target

STAGES = ["qk", "softmax", "state", "pv", "single_tile", "output"]


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    return open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2, run_deadline_s=20.0)
    )


def marked_faults():
    """All faults; the first of a stage in the middle runs by default."""
    stages = ["state"]
    for name, fault in PLANTED.items():
        is_quick = fault.stage in stages
        if is_quick:
            stages.remove(fault.stage)
        yield pytest.param(name, marks=() if is_quick else pytest.mark.slow)


@pytest.mark.parametrize("name", list(marked_faults()))
def test_a_planted_fault_is_named_by_its_stage(name, tmp_path, emulator, toolchain):
    fault = PLANTED[name]
    reports = probed_fault(fault, tmp_path, emulator, toolchain)
    first = first_wrong(reports)
    assert first is not None and first.probe == fault.stage, [
        (report.probe, report.outcome, report.sentence) for report in reports
    ]
    assert first.outcome == "wrong" and first.suspect and fault.says in first.sentence, (
        first.sentence
    )
    worst = next(case for case in first.cases if case.wrong)
    assert worst.worst_index and worst.worst_value != worst.worst_expected


def test_the_report_of_the_docs_is_what_is_printed(tmp_path, emulator, toolchain, capsys):
    show_reports(
        "scalar",
        probed_fault(
            PLANTED["the sum counts some rows' lanes only"], tmp_path, emulator, toolchain
        ),
    )
    printed = {line.rstrip() for line in capsys.readouterr().out.splitlines()}
    page = (Path(__file__).parents[2] / "docs" / "probes.md").read_text()
    (shown,) = [
        block
        for block in re.findall(r"^```\n(.*?)^```", page, re.S | re.M)
        if block.startswith("stage")
    ]
    assert set(shown.splitlines()) <= printed
    says = PLANTED["a fused softmax takes an element for another row's"].says
    assert says in " ".join(page.split())


def test_the_page_names_every_stage_of_attention_and_gemm(catalogue):
    page = (Path(__file__).parents[2] / "docs" / "probes.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.M) == [
        name
        for kernel in ("attention", "gemm")
        for name in (*(probe.name for probe in catalogue.kernel(kernel).probes), "output")
    ]


@pytest.mark.parametrize(
    ("preset", "workload", "changes"),
    [
        pytest.param("vec", "mission_bf16", {}, marks=pytest.mark.slow),
        pytest.param("minimal", "mission_causal", {}, marks=pytest.mark.slow),
        pytest.param("vec", "d96", {"softmax_exp": "exp"}, marks=pytest.mark.slow),
    ],
)
def test_every_stage_of_the_right_template_is_right(
    preset, workload, changes, catalogue, emulator, toolchain
):
    reports = probed(catalogue, emulator, toolchain, "scalar", preset, workload, **changes)
    assert [(report.probe, report.outcome) for report in reports] == [
        (name, "right") for name in STAGES
    ], reports
    assert all(
        report.cases and sum(case.compared for case in report.cases) > 100 for report in reports
    )


@pytest.mark.slow
def test_a_probe_that_a_template_lacks_is_missing_and_not_right(tmp_path, emulator, toolchain):
    catalogue = changed(tmp_path, "pv = {}", 'pv = { when = "keys_per_step == 1" }', "scalar.toml")
    outcome = {
        report.probe: report.outcome
        for report in probed(catalogue, emulator, toolchain, cases=("tile_exact",))
    }
    assert outcome == {**dict.fromkeys(STAGES, "right"), "pv": "missing"}


@pytest.mark.slow
def test_a_stage_that_writes_nothing_says_so(tmp_path, emulator, toolchain):
    catalogue = changed(tmp_path, "probe.out[first_key + j] = product;", "")
    report = first_wrong(probed(catalogue, emulator, toolchain, cases=("tile_exact",)))
    assert report.probe == "qk" and "never written" in report.sentence


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("single_tile = {}", "half_tile = {}", "unknown_probe"),
        (
            'state = { tile = "keys_per_step" }',
            'state = { tiles = "keys_per_step" }',
            "unknown_name",
        ),
        ('state = { tile = "keys_per_step" }', 'state = { tile = "keys_a_step" }', "unknown_name"),
    ],
)
def test_unknown_probes_and_values_are_refused_when_the_kernel_is_read(old, new, code, tmp_path):
    with pytest.raises(SpecError) as caught:
        changed(tmp_path, old, new, "scalar.toml").kernel("attention")
    assert caught.value.code == code


def test_an_unknown_case_is_refused_with_the_known_ones(catalogue, emulator, toolchain):
    with pytest.raises(UsageError, match="tile_exact"):
        probed(catalogue, emulator, toolchain, cases=("tile_exakt",))


def test_the_command_names_what_is_not_default_and_the_check(catalogue):
    kernel = catalogue.kernel("attention")
    parameters = dict(kernel.template("scalar").preset("minimal").parameters)
    command = probe_command(kernel, "scalar", parameters, "mission", "emulator:h200", "tile_exact")
    assert command == (
        "greenfast probe attention --template scalar --set tile_m=4 --set row_threads=32 "
        "--set vector_elements=1 --set keys_per_step=1 --set kv_in_shared=false --workload mission "
        "--target emulator:h200 --case tile_exact"
    )
    assert not probe_command(kernel, "scalar", parameters, "mission", "cuda:0", "mission").count(
        "--case"
    )


def _set(shape, *places):
    mask = np.zeros(shape, bool)
    for place in places:
        mask[place] = True
    return mask


AXES, TILES = ("row", "key"), {"row": 64, "key": 32}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (_set((64, 96), (slice(None), slice(None))), "everywhere"),
        (
            _set(
                (64, 96),
                *((slice(start + 8, start + 16), slice(32, None)) for start in range(0, 64, 16)),
            ),
            "rows 8..15 of each 16, key tiles from 1 on",
        ),
        (_set((64, 96), (slice(None), slice(64, 65))), "key tile 2, key 64"),
        (_set((64, 96), (slice(17, None), slice(None))), "rows from 17 on"),
        (_set((64, 96), (5, slice(None))), "row 5"),
        (_set((64, 96), *((index, index + 1) for index in range(60))), "key = row + 1"),
        (_set((64, 96), *((slice(None), index) for index in range(1, 96, 2))), "keys 1 of each 2"),
        (
            _set(
                (64, 96),
                *(
                    (slice(row + half, row + half + 8), slice(key + 8 - half, key + 16 - half))
                    for row in range(0, 64, 16)
                    for key in range(0, 96, 16)
                    for half in (0, 8)
                ),
            ),
            (
                "rows 0..7 of each 16 at keys 8..15 of each 16, "
                "rows 8..15 of each 16 at keys 0..7 of each 16"
            ),
        ),
        (np.random.default_rng(1).random((64, 96)) < 0.5, "scattered"),
    ],
)
def test_patterns_say_where_in_a_few_words(wrong, says):
    assert pattern(wrong, np.ones_like(wrong), AXES, TILES, {}) == says


def test_rows_that_one_warp_owns_are_named_by_the_warp():
    wrong = _set((128, 96), (slice(16, 32), slice(None)), (slice(80, 96), slice(None)))
    description = pattern(wrong, np.ones_like(wrong), AXES, TILES, {}, warp_rows=16)
    assert description == "rows of warp 1 (16..31 of each 64)"


def test_every_point_of_scalar_can_be_rendered_for_each_head_size(catalogue):
    kernel = catalogue.kernel("attention")
    template = kernel.template("scalar")
    for width in (32, 64, 96, 128, 256):
        compiled = (("D", width), ("dtype", "fp16"), ("mask", "none"))
        space = Space(template, compiled, device("h200"))
        assert all(
            space.why_not(preset_candidate(template, preset.name, compiled).parameters) is None
            for preset in template.presets
        ), width
