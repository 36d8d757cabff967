"""A run that does not end keeps its findings: of blocks that have ended, and of one that spins."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_harness import Kernel, prepared

from greenfast.search.targets.emulator.report_events import has_shape, with_waiting

TEXT = """
extern "C" __global__ void k(int* y, int* o, int mode) {
    const int t = threadIdx.x, i = blockIdx.x * 64 + t;
    const bool last = blockIdx.x == 1 && t == 63;
    __shared__ int s[4];
    y[i] = 0;
    if (mode == 1 && t < 2) o[1] = i;                         // of ended blocks
    if (mode == 2 && t == 1) s[0] = 1;                        // another's store
    if (mode == 2 && last) s[0] = 7;                          // the spinning thread's store
    if (mode == 3 && i == 5) atomicAdd(o + 2, 1);             // update
    if (mode == 3 && last) y[i] = o[2];                       // plain read
    if (mode == 4 && t == 1) s[1] = 1;
    if (mode == 4 && last) y[i] = s[1];                       // read of a store
    if (mode == 5 && i == 5) atomicCAS(o + 3, 0, 1);
    if (mode == 5 && last) { int seen = o[3]; atomicCAS(o + 3, seen, seen + 1); }
    if (last) for (;;) {}                                     // spin
}
"""


@pytest.fixture(scope="module")
def kernel(artifacts):
    return Kernel(prepared(artifacts), TEXT, flavour="checked")


def line_of(text):
    return next(number for number, line in enumerate(TEXT.splitlines(), 1) if text in line)


def result_of(kernel, mode):
    outputs = {"y": np.zeros(128, np.int32), "o": np.zeros(64, np.int32)}
    job = kernel.job({}, outputs, (mode,), grid=2, block=64, check=True, order="forward")
    buffers = tuple(type(b)(b.name, b.role, b.image, "zero") for b in job.buffers)
    job = type(job)(job.name, job.launches, buffers, job.arguments, order="forward", check=True)
    return kernel.run(job, workers=1, deadline_s=0.5)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode, lines",
    [
        (1, {"// of ended blocks"}),
        pytest.param(
            2, {"// another's store", "// the spinning thread's store"}, marks=pytest.mark.slow
        ),
        pytest.param(3, {"// update", "// plain read"}, marks=pytest.mark.slow),
        (4, {"// read of a store", "if (mode == 4 && t == 1)"}),
    ],
)
def test_an_endless_loop_loses_no_race(kernel, mode, lines):
    result = result_of(kernel, mode)
    assert result.status == "timeout"
    assert [fault.kind for fault in result.faults] == ["timeout"]
    assert result.faults[0].where[1] == line_of("// spin")
    races = [finding for finding in result.findings if finding.kind == "race"]
    met = {place[1] for finding in races for place in (finding.where, finding.other_where)}
    assert met == {line_of(text) for text in lines}, result


def test_what_a_compare_and_swap_explains_is_no_race(kernel):
    result = result_of(kernel, 5)
    assert result.status == "timeout"
    assert not any(finding.kind == "race" for finding in result.findings), result


def party(action, site):
    return {"action": action, "site": site, "block": [0, 0, 0], "thread": [0, 0, 0]}


def event(name, site, **members):
    finding = {
        "event": name,
        "kind": "race",
        "offset": 0,
        "bytes": 4,
        "memory": "global:o",
        "detail": "",
        "party": party("read", site),
        "other": party("atomic", 9),
    }
    return {**finding, **members}


def test_a_killed_run_keeps_findings_that_waited():
    """Also where the process had no time to say anything more."""
    events = [
        event("waiting_finding", 1, reader=1),
        event("waiting_finding", 2, reader=2),
        event("waiting_finding", 3, reader=3),
        {"event": "explained", "reader": 2},
        event("finding", 3),
    ]
    assert all(map(has_shape, events))
    assert not has_shape({"event": "explained", "reader": "2"})
    assert not has_shape(event("waiting_finding", 1))
    kept = with_waiting(events)
    assert [(one["event"], one["party"]["site"]) for one in kept] == [
        ("finding", 1),
        ("finding", 3),
    ]
