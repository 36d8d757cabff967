"""The stage that an explanation names, from reports and findings that it is given."""

from __future__ import annotations

import pytest

from bench.correctness.stage_mutants import FILES, PRESETS, STAGES, function_of, stage_mutants
from greenfast.search.diagnose.explanation import Explanation, StageReport, conclusion_of
from greenfast.search.diagnose.explanation_stage import PROBES, first_stage
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
