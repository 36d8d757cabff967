"""Sweeps: what is measured, what is kept of it, and how a file says that it cannot be read."""

from __future__ import annotations

import gzip
import json
import threading
from dataclasses import replace

import pytest
from drawn_gpu import DrawnGpu, law_us

from greenfast.search.errors import Fault, UsageError
from greenfast.search.loop.sweep import Sweep, SweepOrder
from greenfast.search.loop.sweep_journal import finish, journal_path
from greenfast.search.recordings import file
from greenfast.search.recordings.contents import Times, operation_digest
from greenfast.search.recordings.file import SUFFIX, read, read_heading, rounded, row_json, write
from greenfast.search.recordings.lattice import lattice_of
from greenfast.search.recordings.rules import recorded_acceptance, time_us
from greenfast.search.recordings.shelf import SHIPPED
from greenfast.search.verdict import Reason

SETTINGS = ("threads=all", "per_thread=1,2")


@pytest.fixture
def sweep(album, toolchain):
    """`sweep(target)`: one of axpy's small lattice."""

    def make(target, **changes):
        kernel = album.kernel("axpy")
        order = SweepOrder(
            "axpy-test",
            kernel,
            (kernel.workload("odd"),),
            "right",
            lattice_of(kernel.template("right"), SETTINGS),
            "right:plain",
        )
        return Sweep(replace(order, **changes), target, toolchain, album.include_dirs, "test")

    return make


@pytest.fixture
def sources(sweep):
    """Source digest of each point."""
    recorder = sweep(DrawnGpu())
    return {
        other.parameters: recorder._context.render(other).digest for other in recorder._others()
    }


def test_every_valid_point_has_a_row_and_the_baseline_comes_first(sweep, tmp_path):
    recorder = sweep(DrawnGpu())
    left = recorder.run(tmp_path / f"a{SUFFIX}", 2)
    recording = left.recording
    assert left.done == left.total == len(recording.rows) == 8 and recording.heading.complete
    assert [row.number for row in recording.rows] == list(range(8))
    assert {recording.parameters(row) for row in recording.rows} == set(recorder.points)
    assert dict(recording.parameters(recording.rows[0])) == {"threads": 128, "per_thread": 1}
    assert recording.rows[0].times[0].baseline_samples == () and all(
        row.times for row in recording.rows
    )


def test_the_note_of_a_version_1_file_names_the_mode_and_another_word_is_damage(sweep, tmp_path):
    path = tmp_path / f"a{SUFFIX}"
    recording = sweep(DrawnGpu()).run(path, 2).recording
    first, *rows, end = gzip.decompress(path.read_bytes()).decode().splitlines()

    def older(line: str, note: str) -> str:
        row = json.loads(line)
        times = [[*timing[:3], note, timing[4]] for timing in row[10]]
        return json.dumps([*row[:10], times, row[11]])

    for word in ("hot", "cold", "lukewarm"):
        lines = [older(line, f"{word}, ring of 1") for line in rows]
        heading = json.dumps({**json.loads(first), "version": 1})
        path.write_bytes(gzip.compress("\n".join([heading, *lines, end]).encode()))
        if word == "lukewarm":
            with pytest.raises(UsageError, match="'lukewarm' is not a cache mode"):
                read(path)
            continue
        again = read(path)
        assert {times.mode for row in again.rows for times in row.times} == {word}
        assert len(again.rows) == len(recording.rows)


def test_a_file_gives_back_what_was_written_and_is_the_same_each_time(sweep, tmp_path):
    first = tmp_path / f"a{SUFFIX}"
    recording = sweep(DrawnGpu()).run(first, 2).recording
    again = read(first)
    assert (
        again.heading == recording.heading
        and again.rows == recording.rows
        and len(again.sha256) == 64
    )
    write(tmp_path / "b", again)
    assert (tmp_path / "b").read_bytes() == first.read_bytes()
    assert read_heading(first) == recording.heading


def test_a_stored_verdict_is_what_the_stored_samples_say(sweep, tmp_path):
    recording = sweep(DrawnGpu()).run(tmp_path / f"a{SUFFIX}", 2).recording
    _require_verdicts(recording)
    assert {row.reason for row in recording.rows} >= {"slower", None}


def test_the_law_behind_the_times_is_found_again(sweep, tmp_path):
    recorder = sweep(DrawnGpu())
    recording = recorder.run(tmp_path / f"a{SUFFIX}", 2).recording
    for row in recording.rows:
        true = law_us(row.source_digest)
        assert abs(time_us(row.times[0]) / true - 1) < 0.004


def test_a_wrong_and_a_breaking_candidate_have_rows_without_times(sweep, sources, tmp_path):
    wrong, broken = list(sources.values())[2:4]
    recording = (
        sweep(DrawnGpu(wrong=[wrong], broken=[broken])).run(tmp_path / f"a{SUFFIX}", 2).recording
    )
    by_source = {row.source_digest: row for row in recording.rows}
    assert (by_source[wrong].stage, by_source[wrong].reason) == ("correctness", "wrong_values")
    assert by_source[wrong].worst.passed is False and by_source[wrong].times == ()
    assert (
        by_source[broken].reason == "device_fault"
        and "illegal address" in by_source[broken].sentence
    )
    assert by_source[broken].ptxas.registers > 0 and recording.heading.timed == 6


def test_faults_of_ours_leave_no_row_and_the_same_order_goes_on(sweep, sources, tmp_path):
    out, lost = tmp_path / f"a{SUFFIX}", list(sources.values())[4]
    left = sweep(DrawnGpu(lost=[lost])).run(out, 2)
    assert (
        left.recording is None
        and left.done == 7
        and "was lost" in left.faults[0]
        and not out.exists()
    )
    second = DrawnGpu()
    left = sweep(second).run(out, 2)
    assert left.recording.heading.complete and left.done == 8 and not journal_path(out).exists()
    assert len(second.measured) == 2  # the baseline, which every process needs, and what lacked
    assert sorted({row.run for row in left.recording.rows}) == [0, 1]


def test_a_machine_that_breaks_every_candidate_ends_the_sweep(sweep, sources, tmp_path):
    with pytest.raises(Fault, match="was lost"):
        sweep(DrawnGpu(lost=sources.values())).run(tmp_path / f"a{SUFFIX}", 1)
    assert journal_path(tmp_path / f"a{SUFFIX}").exists()


def test_time_may_run_out_and_what_is_there_may_be_written(sweep, tmp_path):
    out = tmp_path / f"a{SUFFIX}"
    left = sweep(DrawnGpu()).run(out, 1, seconds=0.0)
    assert left.recording is None and left.done == 1
    assert (
        not finish(out).heading.complete
        and len(read(out).rows) == 1
        and not journal_path(out).exists()
    )
    for again in (out, tmp_path / f"b{SUFFIX}"):
        with pytest.raises(UsageError):
            finish(again)


def test_a_half_written_line_is_measured_again(sweep, tmp_path):
    out = tmp_path / f"a{SUFFIX}"
    sweep(DrawnGpu()).run(out, 1, seconds=0.0)
    with journal_path(out).open("a") as file:
        file.write('[3,"right",[32,')
    left = sweep(DrawnGpu()).run(out, 1)
    assert left.done == 8 and left.recording.heading.complete
    assert [row.number for row in read(out).rows] == list(range(8))


def test_a_journal_of_another_sweep_is_refused_and_kept(sweep, tmp_path):
    out = tmp_path / f"a{SUFFIX}"
    sweep(DrawnGpu()).run(out, 1, seconds=0.0)
    with pytest.raises(UsageError) as refused:
        sweep(DrawnGpu(), seed=7).run(out, 1)
    assert refused.value.code == "journal_differs" and journal_path(out).exists()


def test_an_existing_file_is_never_overwritten(sweep, tmp_path):
    out = tmp_path / f"a{SUFFIX}"
    out.write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        sweep(DrawnGpu()).run(out, 1)
    assert out.read_text() == "mine"


def test_a_wrong_baseline_is_refused_with_its_reason(sweep, tmp_path):
    recorder = sweep(DrawnGpu())
    baseline = recorder._context.render(recorder._baseline).digest
    with pytest.raises(UsageError, match="right:plain is not correct here: correctness") as refused:
        sweep(DrawnGpu(wrong=[baseline])).run(tmp_path / f"a{SUFFIX}", 1)
    assert refused.value.code == "baseline_rejected"


def test_modelled_times_are_nothing_to_record(sweep):
    target = DrawnGpu()
    target.measures = False
    with pytest.raises(UsageError, match="does not measure"):
        sweep(target)


def test_progress_counts_up_to_the_total(sweep, tmp_path):
    seen = []
    sweep(DrawnGpu()).run(tmp_path / f"a{SUFFIX}", 2, on_progress=seen.append)
    assert [progress.done for progress in seen] == sorted(
        progress.done for progress in seen
    ) and seen[-1].done == seen[-1].total == 8
    assert seen[-1].timed == 8 and seen[-1].per_second > 0


def test_ctrl_c_keeps_what_was_measured(sweep, tmp_path):
    out, target = tmp_path / f"a{SUFFIX}", DrawnGpu()

    def stop(progress):
        if progress.done >= 3:  # several may have ended at once
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(target).run(out, 1, on_progress=stop)
    left = sweep(DrawnGpu()).run(out, 1)
    assert left.done == 8 and threading.active_count() < 20


def test_lattices_name_what_is_wrong_with_them(album):
    template = album.kernel("axpy").template("right")
    assert dict(lattice_of(template, ["threads=256,32"])) == {
        "threads": (32, 256),
        "per_thread": (1,),
    }
    assert dict(lattice_of(template, [], {"per_thread": 4}))["per_thread"] == (4,)
    for text, code in (
        ("threads", "bad_setting"),
        ("threads=", "bad_setting"),
        ("warps=1", "unknown_parameter"),
        ("threads=31", "unknown_value"),
    ):
        with pytest.raises(UsageError) as refused:
            lattice_of(template, [text])
        assert refused.value.code == code


@pytest.fixture
def written(sweep, tmp_path):
    path = tmp_path / f"a{SUFFIX}"
    sweep(DrawnGpu()).run(path, 2)
    return path


def _refusal(path):
    with pytest.raises(UsageError) as refused:
        read(path)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300
    return refused.value.code


def _with(old: bytes, new: bytes):
    return lambda data: gzip.compress(gzip.decompress(data).replace(old, new))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-20],
        lambda data: data[:10],
        lambda data: b"",
        lambda data: b"not gzip at all",
        lambda data: data[:200] + b"\0" + data[201:],
        lambda data: gzip.compress(gzip.decompress(data)[:-40]),
        _with(b'"end":true', b'"end":1'),
        _with(b'"device":', b'"gpu":'),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(written, damage):
    written.write_bytes(damage(written.read_bytes()))
    assert _refusal(written) == "recording_damaged"


def test_another_version_and_another_kind_of_file_are_refused(written):
    text = gzip.decompress(written.read_bytes())
    written.write_bytes(gzip.compress(text.replace(b'"version":2', b'"version":3')))
    assert _refusal(written) == "recording_version"
    written.write_bytes(gzip.compress(b'{"rows": []}\n'))
    assert _refusal(written) == "not_a_recording"


def test_evidence_with_fewer_fields_than_today_is_still_read(written):
    """A later greenfast adds fields with defaults: files say which ones they hold."""
    head, *lines = gzip.decompress(written.read_bytes()).decode().splitlines()
    heading = json.loads(head)
    del heading["device"]["l2_bytes"]  # as if it had not been a fact then
    written.write_bytes(gzip.compress("\n".join([json.dumps(heading), *lines, ""]).encode()))
    assert read(written).heading.device.l2_bytes > 0


def test_a_recording_that_could_not_be_read_again_is_not_written(written, monkeypatch):
    recording, before = read(written), written.read_bytes()
    inflated = len(gzip.decompress(before))
    monkeypatch.setattr(file, "LARGEST_BYTES", inflated - 1)
    with pytest.raises(UsageError) as error:
        write(written, recording)
    assert error.value.code == "recording_too_large" and written.read_bytes() == before
    monkeypatch.setattr(file, "LARGEST_BYTES", inflated)
    write(written, recording)
    assert read(written).rows == recording.rows


def test_rounding_keeps_what_a_verdict_needs():
    assert rounded(6.912345678) == 6.9123 and rounded(1234.5678) == 1234.6 and rounded(0.5) == 0.5


def test_other_workloads_and_templates_do_not_make_another_operation(album):
    kernel = album.kernel("axpy")
    workloads = (kernel.workload("odd"),)
    same = replace(kernel, workloads=workloads, templates=(), title="another title")
    assert operation_digest(kernel, workloads) == operation_digest(same, workloads)
    other = replace(kernel, stride_elements=2 * kernel.stride_elements)
    assert operation_digest(kernel, workloads) != operation_digest(other, workloads)


def _require_verdicts(recording):
    for row in recording.rows:
        if not row.times:
            assert row.stage is not None
            continue
        acceptance = recorded_acceptance(row.times, recording.heading.protocol.min_gain)
        expected = (acceptance.reason.value, "performance") if acceptance.reason else (None, None)
        assert (row.reason, row.stage) == expected, row.number


@pytest.mark.parametrize("path", sorted(SHIPPED.glob(f"*{SUFFIX}")), ids=lambda path: path.name)
def test_each_shipped_verdict_follows_from_its_stored_samples(path):
    recording = read(path)
    _require_verdicts(recording)
    assert recording.heading.name == path.name.removesuffix(SUFFIX)
    times = [time_ for row in recording.rows for time_ in row.times]
    assert all(value > 0 for time_ in times for value in (*time_.samples, *time_.baseline_samples))
    assert len(row_json(recording.rows[-1])) < 20_000


def test_the_page_shows_the_recordings_that_ship_with_their_figures():
    page = (SHIPPED.parent / "docs" / "recordings.md").read_text()
    paths = sorted(SHIPPED.glob(f"*{SUFFIX}"))
    assert len(paths) >= 3
    for path in paths:
        heading, rows = (recording := read(path)).heading, recording.rows
        best = min(time_us(row.times[0]) for row in rows if row.times)
        (line,) = [
            line for line in page.splitlines() if line.startswith(f"| `replay:{heading.name}`")
        ]
        assert line.endswith(f"| {heading.candidates:,} | {heading.timed:,} | {best:.4g} µs |")
        assert heading.complete and heading.timed > 0.9 * heading.candidates
    assert sum(path.stat().st_size for path in paths) < 4e6


def test_implausible_times_are_no_times(sweep, tmp_path):
    recording = sweep(DrawnGpu()).run(tmp_path / f"a{SUFFIX}", 2).recording
    fast = tuple(replace(time_, floor_us=1e6) for time_ in recording.rows[1].times)
    assert recorded_acceptance(fast, 0.01).reason is Reason.IMPLAUSIBLE


def test_a_screened_candidate_is_slower_without_an_interval():
    times = Times((14.0,) * 8, (10.0,) * 8, 0.1, "ring of 1", (), "hot")
    acceptance = recorded_acceptance((times,), 0.01)
    assert (acceptance.reason, acceptance.has_confidence) == (
        Reason.SLOWER,
        False,
    ) and acceptance.ratio == pytest.approx(1.4)
