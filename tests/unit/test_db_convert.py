"""Domain values survive their stored form unchanged, and unknown or damaged forms are refused."""

from __future__ import annotations

import dataclasses
import json
import math
import zlib

import numpy as np
import pytest
import store_values as values

from greenfast.db import convert
from greenfast.search.errors import Fault
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.verdict import (
    CorrectnessEvidence,
    Green,
    LineCost,
    Passed,
    PerformanceEvidence,
    SafetyEvidence,
    SafetyFinding,
    SafetyRun,
    TimeKind,
    Timing,
    Unavailable,
    gate_result,
)

VERDICTS = [
    values.green(),
    values.accepted(1, 0.1 + 0.2),
    values.rejected(),
    values.faulted(),
    values.rejected(log="\0\udcff\x1b[31m" + "x" * 100_000),
]


def annotated() -> Green:
    """A verdict with everything that is known of single lines."""
    line = LineCost("attention/wmma.cu.j2", 120, 240, "shared_read", 8, 4096, 64, 32, 0, 0)
    finding = SafetyFinding(
        "race",
        "thread 1 reads what thread 0 writes",
        ("attention/wmma.cu.j2", 120),
        ("attention/wmma.cu.j2", 99),
        240,
        219,
        (0, 0, 0),
        (1, 0, 0),
        (0, 0, 0),
        "shared",
        4,
        7,
    )
    gates = list(values.gates())
    timings = tuple(
        dataclasses.replace(timing, lines=(line, line)) for timing in gates[2].evidence.timings
    )
    gates[2] = dataclasses.replace(
        gates[2], evidence=dataclasses.replace(gates[2].evidence, timings=timings)
    )
    gates[3] = dataclasses.replace(
        gates[3],
        evidence=SafetyEvidence(
            (), (finding,), (SafetyRun("one", "N=1", "forward", 1),), ("races",)
        ),
    )
    return Green(tuple(gates))


def timing(time_us: float) -> Green:
    return Green(
        (
            Unavailable(
                "performance",
                "",
                PerformanceEvidence((Timing("w", time_us, TimeKind.MODELLED, "x"),), None, 1.1),
            ),
        )
    )


@pytest.mark.parametrize(
    "verdict", [*VERDICTS, annotated()], ids=lambda value: type(value).__name__
)
def test_a_verdict_comes_back_as_it_was(verdict):
    document, details = convert.verdict_json(verdict)
    assert convert.verdict_of(document, details) == verdict
    assert json.loads(document)["schema"] == 1 and document.isascii()


def test_lines_are_details_and_findings_are_not():
    document, _ = convert.verdict_json(annotated())
    short = convert.verdict_of(document)
    assert gate_result(short, "performance").evidence.timings[0].lines == ()
    assert gate_result(short, "safety").evidence == gate_result(annotated(), "safety").evidence
    assert "240" not in json.dumps(json.loads(document)["verdict"]["gates"][2])


def test_a_verdict_that_was_stored_before_lines_and_findings_is_still_read():
    document, details = convert.verdict_json(annotated())
    old = json.loads(document)
    for timing_of_it in old["verdict"]["gates"][2]["evidence"]["timings"]:
        del timing_of_it["lines"]
    old["verdict"]["gates"][3]["evidence"] = {"type": "SafetyEvidence", "reports": ["a"]}
    inflated = json.loads(zlib.decompress(details))
    del inflated["lines"]
    back = convert.verdict_of(json.dumps(old), zlib.compress(json.dumps(inflated).encode()))
    assert gate_result(back, "safety").evidence == SafetyEvidence(("a",))
    assert gate_result(back, "performance").evidence.timings[0].lines == ()
    assert gate_result(back, "correctness") == gate_result(annotated(), "correctness")
    assert convert.gates_plain(back)["safety"]["findings"] == []


def test_checks_that_were_stored_as_objects_are_still_read():
    verdict = values.green()
    document, details = convert.verdict_json(verdict)
    inflated = json.loads(zlib.decompress(details))
    assert inflated["schema"] == 2
    checks = gate_result(verdict, "correctness").evidence.checks
    old = {**inflated, "schema": 1, "checks": {"correctness": convert.encode(checks)}}
    before = zlib.compress(json.dumps(old).encode())
    assert convert.verdict_of(document, before) == convert.verdict_of(document, details) == verdict


def test_text_that_all_checks_share_is_stored_once():
    checks = gate_result(values.green(), "correctness").evidence.checks
    first = dataclasses.replace(checks[0], sentence="", mean_abs_error=-0.0, sign_bias=math.nan)
    many = tuple(dataclasses.replace(first, seed=seed, output="ab"[seed % 2]) for seed in range(9))
    verdict = Green((Passed("correctness", "", CorrectnessEvidence(many)),))
    document, details = convert.verdict_json(verdict)
    stored = json.loads(zlib.decompress(details))["checks"]["correctness"]
    assert (stored["sentence"], stored["count"]) == ("", 9) and len(stored["output"]) == 9
    back = gate_result(convert.verdict_of(document, details), "correctness").evidence.checks
    assert repr(back) == repr(many)  # NaN is no equal of itself


@pytest.mark.parametrize(
    "damage",
    [{"count": None}, {"seed": [1]}, {"seed": 7}, {"seed": None}, {"added": [1, 2]}],
)
def test_damaged_checks_are_a_fault(damage):
    document, details = convert.verdict_json(values.green())
    inflated = json.loads(zlib.decompress(details))
    inflated["checks"]["correctness"].update(damage)
    if damage == {"count": None}:
        del inflated["checks"]["correctness"]["count"]
    with pytest.raises(Fault) as refused:
        convert.verdict_of(document, zlib.compress(json.dumps(inflated).encode()))
    assert refused.value.code == "record_unreadable"


def test_a_plan_and_a_candidate_come_back_as_they_were():
    for plan in (values.plan(), values.plan(trials=None, seconds=1e-3)):
        assert convert.plan_of(convert.plan_json(plan)) == plan
    for number in range(6):
        back = convert.candidate_of(convert.candidate_json(values.candidate(number)))
        assert back == values.candidate(number) and back.digest == values.candidate(number).digest
        assert [type(parameter) for _, parameter in back.parameters] == [int, bool, str, float]


def test_every_field_of_a_plan_is_stored():
    stored = json.loads(convert.plan_json(values.plan()))["plan"]
    assert stored.keys() == {field.name for field in dataclasses.fields(SearchPlan)} | {"type"}


@pytest.mark.parametrize(
    "number", [0.1 + 0.2, 5e-324, 1.7976931348623157e308, -0.0, 1 / 3, 2.0**-1074]
)
def test_floats_keep_every_bit(number):
    back = convert.verdict_of(convert.verdict_json(timing(number))[0])
    assert back.gates[0].evidence.timings[0].time_median_us.hex() == number.hex()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_stored_apart_from_text_and_shown_by_its_name(number):
    document, _ = convert.verdict_json(timing(number))
    assert "NaN" not in document and "Infinity" not in document
    back = convert.verdict_of(document)
    assert repr(back.gates[0].evidence.timings[0].time_median_us) == repr(number)
    assert (
        convert.gates_plain(back)["performance"]["timings"][0]["time_median_us"]
        == {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(number)]
    )


def test_numpy_numbers_become_plain_ones():
    check = dataclasses.replace(
        values.check(0),
        max_abs_error=np.float32(0.1),
        mean_abs_error=np.float64(0.2),
        seed=np.int64(7),
        passed=np.bool_(True),
        worst_index=tuple(np.arange(3)),
    )
    document, details = convert.verdict_json(
        Green((Passed("correctness", "", CorrectnessEvidence((check,))),))
    )
    (back,) = gate_result(convert.verdict_of(document, details), "correctness").evidence.checks
    assert back == check and back.passed is True
    assert (
        type(back.max_abs_error) is float
        and type(back.mean_abs_error) is float
        and type(back.seed) is int
    )
    assert [type(index) for index in back.worst_index] == [int, int, int]


def test_a_sampler_comes_back_and_what_has_no_json_form_is_refused():
    sampler = {
        "nsga2:generation": 3,
        "parents": [1, 2],
        "deep": {"x": [None, True, "ü"]},
        "rate": 0.1,
    }
    assert convert.sampler_of(convert.sampler_json(sampler)) == sampler
    for wrong in ({"x": object()}, {"x": {1: 2}}, {"x": b"bytes"}):
        with pytest.raises(Fault) as refused:
            convert.sampler_json(wrong)
        assert refused.value.code == "record_unwritable"


def test_a_newer_document_is_refused_by_name():
    document = convert.plan_json(values.plan()).replace('"schema":1', '"schema":2')
    with pytest.raises(Fault, match=r"schema 2.*up to 1") as refused:
        convert.plan_of(document)
    assert refused.value.code == "record_newer"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: "[]",
        lambda text: "null",
        lambda text: text.replace('"type":"Candidate"', '"type":"X"'),
        lambda text: text.replace('"kernel"', '"kern"'),
        lambda text: text.replace('"sampled"', '"dreamt"'),
        lambda text: text.replace('"parents":[]', '"parents":7'),
        lambda text: text.replace('["padding",true]', '["padding"]'),
        lambda text: text.replace('"schema":1', '"schema":"1"'),
    ],
)
def test_a_damaged_document_is_a_fault_and_no_traceback(damage):
    document = convert.candidate_json(values.candidate(1))
    assert damage(document) != document
    with pytest.raises(Fault) as refused:
        convert.candidate_of(damage(document))
    assert refused.value.code == "record_unreadable"


def test_damaged_details_are_a_fault():
    document, details = convert.verdict_json(values.green())
    spoilt = (zlib.compress(b"\xff"), zlib.compress(b'{"schema":1}'))
    for damaged in (b"", details[:-5], b"y" + details[1:], *spoilt):
        with pytest.raises(Fault) as refused:
            convert.verdict_of(document, damaged)
        assert refused.value.code == "record_unreadable"


def test_a_field_that_is_added_with_a_default_reads_old_documents():
    @dataclasses.dataclass(frozen=True)
    class Old:
        text: str

    @dataclasses.dataclass(frozen=True)
    class New:
        text: str
        added: int = 3

    New.__name__ = "Old"
    assert convert.decoder(New)(convert.encode(Old("x"))) == New("x", 3)


GOLDEN = (
    '{"schema":1,"candidate":{"type":"Candidate","kernel":"attention","template":"wmma","parameters":'
    '[["tile_m",32],["padding",true],["scale",0.5]],"origin":{"type":"Origin","kind":"crossed",'
    '"parents":["ab"],"preset":""}}}'
)


def test_a_document_of_schema_1_is_read_for_ever():
    candidate = convert.candidate_of(GOLDEN)
    written = GOLDEN.replace('"preset":""', '"preset":"","wanted":[]')  # a field that came later
    assert isinstance(candidate, Candidate) and convert.candidate_json(candidate) == written


def test_text_for_people_has_no_nul_and_no_broken_surrogate():
    plain = convert.gates_plain(Green((Passed("ptxas", "a\0b\udcff"),)))
    json.dumps(plain, ensure_ascii=False).encode()
    assert "\0" not in plain["ptxas"]["sentence"]


def test_a_plan_that_was_stored_before_champions_is_still_read():
    old = json.loads(convert.plan_json(values.plan()))
    for name in ("compiled", "champion", "confirm"):
        del old["plan"][name]
    back = convert.plan_of(json.dumps(old))
    assert back == values.plan() and (back.compiled, back.champion) == ((), None)


def test_a_plan_with_a_champion_comes_back_as_it_was():
    plan = values.plan(
        baseline="champion s_aaaaaaaaaaaa/3", champion=values.candidate(3), compiled=(("D", 64),)
    )
    assert convert.plan_of(convert.plan_json(plan)) == plan


def test_a_candidate_stored_as_mutated_before_parents_were_recorded_was_repaired():
    stored = dataclasses.replace(values.candidate(1), origin=Origin(OriginKind.MUTATED))
    assert convert.candidate_of(convert.candidate_json(stored)).origin == Origin(
        OriginKind.REPAIRED
    )
    mutated = dataclasses.replace(stored, origin=Origin(OriginKind.MUTATED, parents=("a" * 64,)))
    assert convert.candidate_of(convert.candidate_json(mutated)) == mutated
    repaired = dataclasses.replace(
        stored, origin=Origin(OriginKind.REPAIRED, ("a" * 64,), wanted=(("k_layout", "rows"),))
    )
    assert convert.candidate_of(convert.candidate_json(repaired)) == repaired
