"""The stage that an explanation names, from reports and findings that it is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.correctness.explanations import RIGHT_STAGES
from bench.correctness.stage_mutants import FILES, PRESETS, STAGES, function_of, stage_mutants
from greenfast.search.diagnose.album import entries
from greenfast.search.diagnose.explanation import Explanation, StageReport, conclusion_of
from greenfast.search.diagnose.explanation_stage import (
    PROBES,
    SAFETY,
    first_stage,
    probe_tiles,
    stage_of_line,
)
from greenfast.search.diagnose.probes import ProbedCase, ProbeReport
from greenfast.search.shipped import KERNEL_TEMPLATES
from greenfast.search.verdict import SafetyFinding

STAGE_NAMES = ("qk", "softmax", "state", "pv", "single_tile", "output")


@pytest.fixture(scope="module")
def attention(catalogue):
    return catalogue.kernel("attention")


def reports(*outcomes, where=""):
    case = ProbedCase("tail", "S_q=8 S_kv=40", 0, "forward", 9, 3, 1.0, (0,), "", "", "", where)
    return [
        ProbeReport(name, outcome, f"{name} is {outcome}", "", "", (case,) * (outcome == "wrong"))
        for name, outcome in zip(STAGE_NAMES, outcomes, strict=False)
    ]


def bad_store(template):
    """A bad access in the function that stores O."""
    texts = template.text.split("\n")
    number = next(n for n, line in enumerate(texts) if "void store_output(" in line) + 4
    line = template.lines[number]
    return SafetyFinding("out_of_bounds", "a bad access", where=(line.file, line.number))


def test_where_no_stage_ran_to_its_end_none_is_named(attention):
    template = attention.template("wmma")
    all_failed = reports(*["failed"] * 6)
    named = first_stage(attention, template, {}, all_failed, [], "an access to address 0xf8")
    assert named == ("", "", "")
    some = first_stage(attention, template, {}, reports("right", "failed"), [], "")
    assert some == ("softmax", PROBES, "")
    stages = tuple(StageReport(each.probe, each.outcome, each.sentence, "") for each in all_failed)
    explanation = Explanation(
        "correctness", "device_fault", "s", "", "", stages, "", None, None, "", (), "", ""
    )
    sentence = conclusion_of(explanation)
    assert "no stage runs to its end" in sentence and "qk is failed" in sentence


def test_a_partly_filled_tile_blames_the_stage_before_only_without_a_finding_behind(attention):
    template, tiles = attention.template("wmma"), {"tile_kv": 32}
    wrong = reports("right", "right", "wrong", where="key tile 1")
    stage, _, why = first_stage(attention, template, tiles, wrong, [], "")
    assert (stage, "not full" in why) == ("softmax", True)
    behind = bad_store(template)
    stage, _, why = first_stage(attention, template, tiles, wrong, [behind], "")
    assert (stage, why) == ("state", "")


def test_mutants_have_a_known_stage_and_the_tables_name_real_functions():
    for number in range(12):
        mutant, again = next(stage_mutants(number, 0)), next(stage_mutants(number, 0))
        assert mutant == again and mutant.right and set(mutant.right) <= set(STAGE_NAMES)
        original = (KERNEL_TEMPLATES / "attention" / mutant.file).read_text().splitlines()
        changed = mutant.text.splitlines()
        differing = [
            n for n, pair in enumerate(zip(original, changed, strict=True), 1) if pair[0] != pair[1]
        ]
        assert differing == [mutant.line]
    for template, functions in STAGES.items():
        defined = set()
        for file in FILES[template]:
            lines = (KERNEL_TEMPLATES / "attention" / file).read_text().splitlines()
            defined |= {function_of(lines, at) for at in range(len(lines))}
        assert set(functions) <= defined, template
    assert {preset.partition(":")[0] for preset in PRESETS} == set(STAGES)


def line_of(template, file: str, words: str) -> tuple[str, int]:
    """The first line of a file of the template that holds the words."""
    texts = zip(template.lines, template.text.split("\n"), strict=False)
    return next(
        (line.file, line.number) for line, text in texts if line.file == file and words in text
    )


def outside_an_array(place):
    return SafetyFinding("out_of_bounds", "index 4 of an array of type 'float [4]'", where=place)


def test_a_line_belongs_where_it_is_called_or_to_the_stage_of_its_file_if_called_before(attention):
    template = attention.template("mma")
    order = [*STAGE_NAMES]
    file = "attention/mma/softmax.cu.j2"
    for words, stage in (
        ("softmax.sum[i][half] = 0.0f;", "softmax"),  # prepared before the first tile
        ("gf::mma_m16n8k16<Element>(o[i]", "pv"),  # in the same file, called behind the softmax
    ):
        assert stage_of_line(template, order, line_of(template, file, words)) == stage, words


def test_a_template_without_probes_has_the_stages_of_its_functions_twins(attention):
    template = replace(attention.template("decode"), probes=())
    for file, words, stage in (
        ("ring", "gf::async_copy", "qk"),
        ("products", "gf::mma_m16n8k16<Element>(output", "pv"),
        ("combine", "add_item(merged", "output"),
    ):
        place = line_of(template, f"attention/decode/{file}.cu.j2", words)
        finding = SafetyFinding("race", "a race", where=place)
        named, shown_by, _ = first_stage(attention, template, {}, [], [finding], "")
        assert (named, shown_by) == (stage, SAFETY), file


def test_an_access_outside_an_array_overrules_values_that_it_may_have_spoiled(attention):
    template = attention.template("mma")
    qk_wrong, pv_wrong = reports("wrong"), reports("right", "right", "right", "wrong")
    place = line_of(template, "attention/mma/softmax.cu.j2", "gf::mma_m16n8k16<Element>(o[i]")
    stage, shown_by, why = first_stage(
        attention, template, {}, qk_wrong, [outside_an_array(place)], ""
    )
    assert (stage, shown_by) == ("pv", SAFETY) and "spoils" in why
    # Where the line's function shows the wrong stage itself, the probe decides.
    scalar = attention.template("scalar")
    place = line_of(scalar, "attention/scalar.cu.j2", "row.o[c] = fmaf(p, v_share[c]")
    stage, shown_by, _ = first_stage(attention, scalar, {}, pv_wrong, [outside_an_array(place)], "")
    assert (stage, shown_by) == ("pv", PROBES)


def test_a_probe_with_tiles_of_its_own_has_them_checked_for_the_last_one(attention):
    template = attention.template("scalar")
    assert probe_tiles(template, {"keys_per_step": 4}) == {"tile of state": 4}
    assert probe_tiles(attention.template("wgmma"), {"lazy_rescale": False}) == {}


def test_every_wrong_attention_kernel_of_the_album_has_a_stage_to_be_measured_by():
    names = {each.name for each in entries() if (each.kernel, each.kind) == ("attention", "patch")}
    assert set(RIGHT_STAGES) == names


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("scores[i][j][half * 2 + c] = gf::minus_infinity();", "softmax"),
        ("gf::ldmatrix_transposed<4>(v, ", "pv"),
        ("gf::ldmatrix<4>(k, ", "qk"),
        ("take(scores, next);", "softmax"),
        ("update(softmax, o_part, scores, scale_log2", "softmax"),
    ],
)
def test_a_line_does_not_see_the_probes_in_other_branches_of_the_template(attention, text, stage):
    """attention/mma holds three walks, each with probes, in branches of one `if`."""
    template = attention.template("mma")
    order = (*(probe.name for probe in attention.probes), "output")
    number = next(n for n, line in enumerate(template.text.split("\n")) if text in line)
    origin = template.lines[number]
    assert stage_of_line(template, order, (origin.file, origin.number)) == stage
