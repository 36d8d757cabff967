"""Wrong twins of pipelines: every operator finds its place, and each twin differs in one."""

from __future__ import annotations

import random

import pytest

from bench.correctness.asynchronous_mutation import (
    ASYNCHRONOUS,
    EARLY_RELEASE,
    asynchronous_mutants,
)
from bench.correctness.candidates_and_twins import (
    TEMPLATES,
    failures,
    outcome,
    tasks,
    template_summary,
    with_verdict,
)
from bench.correctness.known_asynchronous import KNOWN
from greenfast.search.devices.facts import device
from greenfast.search.render import render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Space, resolve


@pytest.fixture(scope="module")
def units(catalogue):
    """The text of every preset that its kernel's first workloads can have."""
    texts = {}
    for name in TEMPLATES:
        kernel_name, _, template_name = name.partition("/")
        kernel = catalogue.kernel(kernel_name)
        template = kernel.template(template_name)
        for workload in kernel.workloads:
            compiled = workload.compile_time(kernel)
            if any(dict(compiled)[key] not in allowed for key, allowed in template.supports):
                continue
            for preset in template.presets:
                candidate = preset_candidate(template, preset.name, compiled)
                if Space(template, compiled, device("h200")).why_not(candidate.parameters):
                    continue
                point = resolve(template, candidate.parameters, compiled, device("h200"))
                source = render(kernel, template, point, catalogue.include_dirs)
                texts[name, preset.name] = source.unit
            break
    return texts


def test_every_operator_has_a_place_in_some_template(units):
    assert len(units) > 20
    used = {
        mutant.operator
        for text in units.values()
        for mutant in asynchronous_mutants(text, random.Random(1))
    }
    # __threadfence belongs to a way of decode to combine splits that no first workload has.
    assert {*ASYNCHRONOUS, EARLY_RELEASE} - used <= {"remove __threadfence", "remove a turn"}


def test_a_twin_differs_in_its_lines_only(units):
    text = units["gemm/wgmma", "wide"]
    lines = text.splitlines()
    for mutant in asynchronous_mutants(text, random.Random(2)):
        changed = mutant.unit.splitlines()
        differ = [i for i, (a, b) in enumerate(zip(lines, changed, strict=True)) if a != b]
        assert differ and differ[0] == mutant.number
        assert len(differ) == (2 if mutant.operator == EARLY_RELEASE else 1)
        assert mutant.before in lines[mutant.number]


def test_equal_seeds_give_equal_twins(units):
    text = units["attention/wgmma", "fa3"]
    first, again = (
        [mutant.unit for mutant in asynchronous_mutants(text, random.Random(3))] for _ in range(2)
    )
    assert first == again and len(set(first)) == len(first)


def test_tasks_take_turns_over_templates():
    keys = [task.key for task in tasks(("a/x", "b/y"), 2, 1)]
    assert keys == [
        "a/x candidate 0",
        "a/x twin 0",
        "b/y candidate 0",
        "b/y twin 0",
        "a/x candidate 1",
        "b/y candidate 1",
    ]


def row(gate="", checker="", twin=False, before="gf::wgmma_commit();"):
    return {
        "template": "gemm/wgmma",
        "twin": twin,
        "outcome": outcome(gate, checker),
        "gate": gate,
        "reason": "race" if gate else "",
        "checker": checker,
        "operator": "remove wgmma commit" if twin else "",
        "before": before,
        "following": "",
        "compiled": {},
        "parameters": {},
        "seconds": 1.0,
    }


class Options:
    seed, count = 0, 3


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([row(), row("safety", "wrong", twin=True)], 0),
        ([row("correctness", "")], 1),  # right rejected
        ([row("", "wrong")], 1),  # wrong accepted
        ([row("", "", twin=True)], 1),  # a twin that nobody explains
        ([row("safety", "", twin=True)], 0),  # the checker alone overlooks it
    ],
)
def test_disagreements_and_missed_twins_fail_the_run(rows, count):
    summary = template_summary("gemm/wgmma", [with_verdict(each) for each in rows], Options)
    assert failures([summary]) == count


def test_explanations_name_operators_that_exist():
    for known in KNOWN:
        assert known.operator in {*ASYNCHRONOUS, EARLY_RELEASE} and known.why
        assert known.verdict in ("equivalent", "not seen", "missed")
