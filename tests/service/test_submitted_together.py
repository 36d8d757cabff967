"""One source sent by several processes at once, on one store: judged once, and answered to all."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path

import pytest
from service_home import Home, until

from greenfast.app.views import submitting
from greenfast.search.errors import Fault

SOURCE = """#include <cuda_fp16.h>
extern "C" __global__ void mine(const __half* x, __half* y, int N, float a, float b)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < N) y[i] = __float2half(a * __half2float(x[i]) + b);
}
"""
LAUNCH = 'grid = ["ceil_div(N, 128)"]\nblock = [128]\n[tiles]\ntile_q = "128"\n'
# Looks for an earlier search, and takes its time before it submits one.
SUBMITS = """
import sys, time
from greenfast.app.settings import Settings
from greenfast.app.views import submitting
from greenfast.app.wiring import Services
from greenfast.search.loop.submitted import Submission

look = submitting._judged_before
def slow_look(*arguments):
    earlier = look(*arguments)
    print("looked", flush=True)
    time.sleep(1)
    return earlier
submitting._judged_before = slow_look
services = Services(Settings.from_environment())
submission = Submission("axpy", sys.argv[1], sys.argv[2], "mine", "", "", "", "")
request = submitting.JudgeRequest(submission, None, None, "none", None)
sys.stdin.read(1)
ticket = submitting.submit_source(services, request)
print(ticket.search_id, ticket.repeated, flush=True)
services.close()
"""


def test_processes_that_look_at_the_same_time_get_one_search(home: Home) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SUBMITS, SOURCE, LAUNCH],
            env=home.environment,
            cwd=home.data,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        answers = [process.communicate(timeout=300)[0].split() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(answer[0] == "looked" for answer in answers)
    assert len({answer[1] for answer in answers}) == 1, answers
    assert sorted(answer[2] for answer in answers) == ["False", "True"]


def test_a_lock_that_another_process_keeps_is_not_awaited_for_ever(tmp_path: Path) -> None:
    def refusal() -> str:
        with pytest.raises(Fault) as refused, submitting._alone_in(tmp_path, 0.1):
            pass
        return refused.value.code

    with (tmp_path / submitting.LOCK).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert [refusal(), refusal()] == ["submissions_busy"] * 2
    with submitting._alone_in(tmp_path, 0.1):
        assert refusal() == "submissions_busy"  # a thread of this process
    (tmp_path / submitting.LOCK).unlink()
    (tmp_path / submitting.LOCK).mkdir()
    assert refusal() == "submissions_lock"


@pytest.mark.slow
def test_when_the_judging_process_is_killed_the_others_still_answer(
    home: Home, tmp_path: Path
) -> None:
    source, launch = tmp_path / "a.cu", tmp_path / "launch.toml"
    source.write_text(SOURCE)
    launch.write_text(LAUNCH)
    command = ("judge", "axpy", str(source), "--launch", str(launch), "--entry", "mine")
    command = (*command, "--baseline", "none", "--json")
    first = home.start(*command, PYTHONUNBUFFERED="1")

    def searches(*statuses: str) -> list[dict[str, str]]:
        items = home.run("searches", "--json").json
        return [item for item in items if not statuses or item["status"] in statuses]

    # A quick machine may have completed it by now, and the others then answer from the store.
    until(lambda: searches("running", "completed"), "the first process judges", 300)
    first.kill()
    others = [home.start(*command, PYTHONUNBUFFERED="1") for _ in range(2)]
    reports = [json.loads(other.stdout.read()) for other in others]
    assert [other.wait() for other in others] == [0, 0]
    assert {report["verdict"] for report in reports} == {"green"}
    assert len({report["id"] for report in reports}) == 1
    (search,) = searches()
    assert search["status"] == "completed" and reports[0]["id"] == search["id"]
    assert {report["trial"] for report in reports} == {0}
