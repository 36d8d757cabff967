"""Texts examined in children: the same answers, and no verdict from a child that fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from greenfast.search.space.candidate import preset_candidate
from greenfast.search.targets.base import SourceRefused
from greenfast.search.targets.emulator import target as emulator_target
from greenfast.search.targets.emulator.examiners import Examiners, children_for


@pytest.fixture
def examining(artifacts, album, monkeypatch):
    """An emulator that examines in one child, and the texts that this process reads itself."""
    target = emulator_target.EmulatorTarget("h200", artifacts, album.include_dirs, 1, 10.0)
    monkeypatch.setattr(emulator_target, "children_for", lambda cores: 1)
    here, refusal = [], emulator_target.refusal

    def counted(build, text, unit, arch):
        here.append(text)
        return refusal(build, text, unit, arch)

    monkeypatch.setattr(emulator_target, "refusal", counted)
    yield target, here
    target.close()


@pytest.fixture
def sources(album, context_of_axpy):
    """A right text, one that claims another line, and one with host code."""
    right = context_of_axpy
    lines = (*right.lines, right.lines[-1])
    claims = replace(right, text=right.text + '#line 7 "other.cu"\n', lines=lines)
    host = "extern __thread int counter;\n"
    return right, claims, replace(right, unit=right.unit + host, text=right.text + host)


@pytest.fixture
def context_of_axpy(album):
    from greenfast.search.devices.facts import device
    from greenfast.search.render import render
    from greenfast.search.space.space import resolve

    kernel = album.kernel("axpy")
    template, compiled = kernel.template("right"), kernel.workload("line").compile_time(kernel)
    candidate = preset_candidate(template, template.presets[0].name, compiled)
    point = resolve(template, candidate.parameters, compiled, device("h200"))
    return render(kernel, template, candidate, point, album.include_dirs)


def answer(target, source):
    try:
        target.examine(source)
    except SourceRefused as refused:
        return str(refused)
    return None


def test_a_child_gives_the_answers_of_this_process(examining, sources):
    target, here = examining
    alone = [answer(target, source) for source in sources]
    assert alone[0] is None and "#line" in alone[1] and "__thread" in alone[2]
    assert len(here) == len(sources)
    target.expect_many()
    target.expect_many()  # once is enough
    assert [answer(target, source) for source in sources] == alone
    assert len(here) == len(sources)  # the child read them


def test_a_child_that_dies_tells_nothing_about_a_text(examining, sources):
    target, here = examining
    target.expect_many()
    assert answer(target, sources[0]) is None and not here
    pool = target._examiners.pool
    pool.kill()
    assert "#line" in answer(target, sources[1])  # from a new child, or read here
    pool._arguments = ("/dev/null/no-folder",)
    pool.kill()
    assert "__thread" in answer(target, sources[2]) and here == [sources[2].text]


def test_small_machines_have_no_children():
    assert [children_for(cores) for cores in (1, 2, 7, 8, 16, 32)] == [0, 0, 0, 2, 4, 8]
    Examiners(0, "", ()).pool.close()
