"""`replay:NAME` searches a recording without compiler or GPU and is never a measurement."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from drawn_gpu import DrawnGpu, law_us
from test_run import ListSink

from greenfast.search.errors import Fault, UsageError
from greenfast.search.gates import GateLimits
from greenfast.search.kernels.spec import Parameter
from greenfast.search.loop.evaluate import EvaluationContext, evaluate
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import Ended, History
from greenfast.search.loop.sweep import Sweep, SweepOrder
from greenfast.search.recordings.file import SUFFIX, read, write
from greenfast.search.recordings.lattice import lattice_of
from greenfast.search.recordings.shelf import PATH_VARIABLE, SHIPPED, recording_names
from greenfast.search.recordings.space import RecordedSpace
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.targets import TargetSettings, check_target_name, open_target
from greenfast.search.targets.base import runner
from greenfast.search.targets.replay import require_current
from greenfast.search.verdict import (
    Green,
    Outcome,
    Rejected,
    TimeKind,
    gate_result,
    performance_of,
    verdict_name,
)

SETTINGS = ("threads=32,128,256", "per_thread=1,2")


class NoToolchain:
    """Whoever compiles here has misunderstood."""

    def compile(self, *arguments):
        raise AssertionError("compiled")

    def interrupt(self):
        """Nothing runs."""


@pytest.fixture(scope="module")
def recorded(album, toolchain, tmp_path_factory):
    """(folder, recording) of axpy: one candidate wrong, one that breaks."""
    folder = tmp_path_factory.mktemp("recordings")
    kernel = album.kernel("axpy")
    order = SweepOrder(
        "axpy-small",
        kernel,
        (kernel.workload("odd"),),
        "right",
        lattice_of(kernel.template("right"), SETTINGS),
        "right:plain",
    )
    first = Sweep(order, DrawnGpu(), toolchain, album.include_dirs, "test")
    digests = [first._context.render(other).digest for other in first._others()]
    sweep = Sweep(
        order,
        DrawnGpu(wrong=digests[:1], broken=digests[1:2]),
        toolchain,
        album.include_dirs,
        "test",
    )
    return folder, sweep.run(folder / f"axpy-small{SUFFIX}", 2).recording


@pytest.fixture
def shelf(recorded, monkeypatch):
    monkeypatch.setenv(PATH_VARIABLE, str(recorded[0]))
    return recorded[1]


@pytest.fixture
def target(shelf, tmp_path):
    opened = open_target("replay:axpy-small", TargetSettings(tmp_path, (), 1))
    opened.prepare()
    return opened


@pytest.fixture
def context(target, shelf, album):
    kernel = album.kernel("axpy")
    workloads = (kernel.workload("odd"),)
    return EvaluationContext(
        kernel,
        workloads[0].compile_time(kernel),
        workloads,
        target,
        NoToolchain(),
        album.include_dirs,
        GateLimits(),
        0,
        baseline=shelf.candidate(shelf.rows[0]),
        min_gain=0.01,
    )


def _search(album, context, strategy="random", trials=None, **more):
    request = SearchRequest(
        "axpy", target="replay:axpy-small", strategy=strategy, trials=trials or 50, seed=3, **more
    )
    plan = make_plan(request, album)
    sink = ListSink()
    return (
        plan,
        SearchRun(plan, replace(context, limits=plan.limits), sink, History()).run(),
        sink.trials,
    )


@pytest.mark.parametrize("strategy", ["random", "tpe", "nsga2"])
def test_a_search_tries_every_recorded_candidate_and_no_other_without_compiling(
    strategy, shelf, album, context
):
    plan, result, trials = _search(album, context, strategy)
    assert result.ended is Ended.COMPLETED and result.why == "every valid candidate was tried"
    assert (
        plan.workloads == ("odd",)
        and plan.templates == ("right",)
        and plan.baseline == "right:plain"
    )
    tried = [trial.candidate.parameters for trial in trials]
    assert sorted(tried) == sorted(map(shelf.parameters, shelf.rows)) and tried[
        0
    ] == shelf.parameters(shelf.rows[0])


def test_nothing_replayed_is_accepted_and_each_time_says_what_it_is(shelf, album, context):
    _, _, trials = _search(album, context)
    names = [verdict_name(trial.verdict) for trial in trials]
    assert set(names) == {"green", "rejected"} and names.count("rejected") == 2
    for trial in trials:
        for gate in trial.verdict.gates:
            if gate.outcome in (Outcome.PASSED, Outcome.FAILED):
                assert gate.gate != "performance" and gate.sentence.startswith(
                    "replayed from axpy-small"
                )
        if isinstance(trial.verdict, Green):
            gate = gate_result(trial.verdict, "performance")
            assert gate.outcome is Outcome.UNAVAILABLE and gate.sentence.startswith(
                "replayed, not measured now"
            )
            assert {timing.time_kind for timing in gate.evidence.timings} == {TimeKind.REPLAYED}
            assert all(
                timing.samples == () and "axpy-small" in timing.note and timing.mode == "hot"
                for timing in gate.evidence.timings
            )
            assert gate_result(trial.verdict, "safety").outcome is Outcome.UNAVAILABLE
        else:
            assert isinstance(trial.verdict, Rejected) and "replayed from" in trial.verdict.sentence


def test_ratios_are_those_of_the_recorded_blocks(shelf, context):
    baseline = performance_of(evaluate(context.baseline, context).verdict).timings
    for row in shelf.rows[1:]:
        evidence = performance_of(evaluate(shelf.candidate(row), context, lambda: baseline).verdict)
        if evidence is not None:
            true = law_us(row.source_digest) / law_us(shelf.rows[0].source_digest)
            assert abs(evidence.ratio_to_baseline / true - 1) < 0.004
            assert (
                evidence.ratio_interval[0]
                <= evidence.ratio_to_baseline
                <= evidence.ratio_interval[1]
            )


def test_another_baseline_is_compared_by_medians(shelf, context):
    other = next(row for row in shelf.rows[1:] if row.times)
    context = replace(context, baseline=shelf.candidate(other))
    baseline = performance_of(evaluate(context.baseline, context).verdict).timings
    evidence = performance_of(
        evaluate(shelf.candidate(shelf.rows[0]), context, lambda: baseline).verdict
    )
    true = law_us(shelf.rows[0].source_digest) / law_us(other.source_digest)
    assert abs(evidence.ratio_to_baseline / true - 1) < 0.006 and evidence.ratio_interval is None


def test_stricter_limits_reject_by_recorded_figures_and_looser_ones_are_refused(
    shelf, album, context
):
    verdict = evaluate(
        context.baseline, replace(context, limits=GateLimits(max_registers=1))
    ).verdict
    assert (verdict.stage, verdict.reason) == (
        "ptxas",
        "over_request_limit",
    ) and "1 are allowed" in verdict.sentence
    with pytest.raises(UsageError, match="spill more than 0 bytes"):
        make_plan(
            SearchRequest(
                "axpy", target="replay:axpy-small", gates={"ptxas": {"max_spill_bytes": None}}
            ),
            album,
        )


@pytest.mark.parametrize(
    "request_, code",
    [
        ({"workloads": ("line",)}, "unknown_workload"),
        ({"templates": ("broken",)}, "unknown_template"),
        ({"kernel": "scan"}, "not_recorded"),
        ({"mode": "cold"}, "not_recorded"),
        ({"target": "replay:nothing"}, "unknown_target"),
        ({"target": "replay:"}, "unknown_target"),
        ({"target": "replay:../axpy-small"}, "unknown_target"),
    ],
)
def test_what_a_record_does_not_hold_is_refused(shelf, album, request_, code):
    with pytest.raises(UsageError) as refused:
        make_plan(
            SearchRequest(**{"kernel": "axpy", "target": "replay:axpy-small", **request_}), album
        )
    assert refused.value.code == code


def test_a_recording_of_one_mode_answers_for_that_mode(shelf, album):
    """The mode of each time decides, not the words of its note."""
    plan = make_plan(SearchRequest("axpy", target="replay:axpy-small", mode="hot"), album)
    assert plan.mode == "hot"
    assert not any("hot" in times.note for row in shelf.rows for times in row.times)


def test_a_changed_kernel_or_template_is_refused_with_both_digests(shelf, album):
    kernel = album.kernel("axpy")
    require_current(shelf, kernel, album.include_dirs)
    for text, stands in (
        ("{# a remark #}" + kernel.template("right").text, True),
        (kernel.template("right").text.replace("a * ", "b * ", 1), False),
    ):
        changed = replace(
            kernel,
            templates=tuple(
                replace(template, text=text) if template.name == "right" else template
                for template in kernel.templates
            ),
        )
        if stands:
            require_current(shelf, changed, album.include_dirs)
            continue
        with pytest.raises(
            UsageError, match=r"another template right \(\w{12} then, \w{12} now\)"
        ) as refused:
            require_current(shelf, changed, album.include_dirs)
        assert refused.value.code == "recording_stale"
    with pytest.raises(
        UsageError, match=r"another form of kernel axpy \(\w{12} then, \w{12} now\)"
    ):
        require_current(shelf, replace(kernel, stride_elements=16), album.include_dirs)
    # Other checks today: a recording says what was found then.
    require_current(
        shelf, replace(kernel, reference_text=kernel.reference_text + "#"), album.include_dirs
    )


def test_a_template_that_has_learned_a_parameter_still_stands_where_its_default_changes_nothing(
    shelf, album, context
):
    kernel = album.kernel("axpy")
    right = kernel.template("right")
    unroll = Parameter("unroll", "int", (1, 2), 1, "", False, None)
    text = "{% if unroll == 2 %}// two{% endif %}" + right.text
    changed = replace(right, parameters=(unroll, *right.parameters), text=text)
    newer = replace(
        kernel,
        templates=tuple(
            changed if template.name == "right" else template for template in kernel.templates
        ),
    )
    require_current(shelf, newer, album.include_dirs)
    space = RecordedSpace(changed, context.compiled, shelf)
    assert {dict(point)["unroll"] for point in space.points} == {1} and len(space.points) == len(
        shelf.rows
    )
    candidate = Candidate("axpy", "right", space.points[0], Origin(OriginKind.SAMPLED))
    newer_bench = replace(context, kernel=newer)
    assert verdict_name(evaluate(candidate, newer_bench).verdict) == verdict_name(
        evaluate(shelf.candidate(shelf.row_of(candidate)), context).verdict
    )
    other = replace(candidate, parameters=(("unroll", 2), *candidate.parameters[1:]))
    assert evaluate(other, newer_bench).verdict.code == "recording_stale"
    fewer = replace(
        right,
        parameters=right.parameters[:1],
        constraints=(),
        text=right.text.replace("per_thread", "1"),
    )
    gone = replace(
        kernel,
        templates=tuple(
            fewer if template.name == "right" else template for template in kernel.templates
        ),
    )
    with pytest.raises(UsageError, match="unknown parameter 'per_thread'") as refused:
        require_current(shelf, gone, album.include_dirs)
    assert refused.value.code == "recording_stale"


def test_a_source_that_is_not_the_recorded_one_is_our_fault_and_no_verdict(shelf, context):
    source = context.render(context.baseline)
    with pytest.raises(Fault, match="renders as"):
        context.target.answers(context.question(context.baseline, replace(source, digest="0" * 64)))
    done = evaluate(context.baseline, context, rendered=replace(source, digest="0" * 64))
    assert verdict_name(done.verdict) == "faulted" and done.verdict.code == "recording_stale"


def test_it_runs_nothing_and_says_so(target, context):
    with pytest.raises(UsageError, match="answers from a record and runs nothing") as refused:
        runner(target)
    assert refused.value.code == "replay_runs_nothing"
    candidate = context.baseline
    with pytest.raises(UsageError, match="answers from a record and runs nothing"):
        context.subject(candidate, context.render(candidate), None)


def test_its_identity_is_that_of_the_recording(target, shelf):
    identity = dict(target.identity())
    assert identity["target"] == "replay:axpy-small" and len(identity["recording"]) == 64
    assert identity["gpu"] == "NVIDIA H200" or identity["gpu"] == shelf.heading.device.title
    assert identity["recorded_on"] == "cuda:0" and identity["toolchain"].startswith("nvrtc ")


def test_the_nearest_recorded_point_takes_the_place_of_any_other(shelf, album):
    kernel = album.kernel("axpy")
    space = RecordedSpace(
        kernel.template("right"), kernel.workload("odd").compile_time(kernel), shelf
    )
    assert set(space.points) == {shelf.parameters(row) for row in shelf.rows}
    assert [parameter.values for parameter in space.template.parameters] == [(32, 128, 256), (1, 2)]
    allowed = np.array([point != space.points[-1] for point in space.points])
    near = space.nearest((("threads", 256), ("per_thread", 2)), allowed, random.Random(1))
    assert near in space.points and near != space.points[-1]
    assert "holds no such candidate" in space.why_not((("threads", 64), ("per_thread", 1)))


def test_a_sweep_that_was_ended_early_has_only_its_rows(shelf, album):
    kernel = album.kernel("axpy")
    part = replace(shelf, rows=shelf.rows[:3], heading=replace(shelf.heading, complete=False))
    compiled = kernel.workload("odd").compile_time(kernel)
    space = RecordedSpace(kernel.template("right"), compiled, part)
    assert [*space.points] == [shelf.parameters(row) for row in shelf.rows[:3]]


def test_a_file_that_another_folder_holds_too_comes_from_the_first(recorded, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    write(other / f"axpy-small{SUFFIX}", replace(recorded[1], rows=recorded[1].rows[:2]))
    monkeypatch.setenv(PATH_VARIABLE, f"{other}:{recorded[0]}:{tmp_path / 'not there'}")
    assert "axpy-small" in recording_names() and check_target_name("replay:axpy-small") == (
        "replay",
        "axpy-small",
    )
    target = open_target("replay:axpy-small", TargetSettings(tmp_path, (), 1))
    assert len(target._recording.rows) == 2


@pytest.mark.parametrize("path", sorted(SHIPPED.glob(f"*{SUFFIX}")), ids=lambda path: path.name)
def test_each_shipped_recording_stands_for_the_templates_as_they_are(path, catalogue):
    recording = read(path)
    require_current(recording, catalogue.kernel(recording.heading.kernel), catalogue.include_dirs)
