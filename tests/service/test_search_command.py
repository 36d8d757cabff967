"""`greenfast search`, stopped and gone on with; and the commands around it."""

from __future__ import annotations

import hashlib
import signal

import pytest
from patient_kernel import COMMAND, add_patient_kernel
from service_home import is_alive, until

# Its trials are in the emulator most of the time.
BUSY = (
    "search",
    "attention",
    "--workload",
    "small",
    "--template",
    "scalar",
    "--strategy",
    "random",
    "--seed",
    "3",
)


def test_json_holds_the_id_the_counts_and_the_best_and_stderr_the_progress(home):
    ended = home.run(
        "search", "axpy", "--template", "right", "--trials", "3", "--seed", "9", "--json"
    )
    report = ended.json
    assert ended.code == 0 and report["status"] == "completed" and report["trials_done"] == 3
    assert report["counts"]["total"] == 3 and set(report["counts"]) >= {
        "by_verdict",
        "by_stage",
        "by_reason",
    }
    assert report["best"]["source_digest"] and report["best"]["beats_baseline"] is False
    assert "3/3 right green" in ended.err
    listed = home.run("searches", "--json").json
    assert [search["id"] for search in listed] == [report["id"]]
    source = home.run("source", report["best"]["source_digest"][:12])
    assert hashlib.sha256(source.out.encode()).hexdigest() == report["best"]["source_digest"]


def test_a_search_without_a_right_candidate_exits_1_and_keeps_why(home):
    ended = home.run(
        "search",
        "axpy",
        "--template",
        "broken",
        "--trials",
        "1",
        "--baseline",
        "none",
        "--strategy",
        "random",
        "--seed",
        "6",
        "--json",
    )
    report = ended.json
    right = report["counts"]["by_verdict"].get("green", 0)
    assert ended.code == (0 if right else 1) and (report["best"] is None) == (right == 0)
    shown = home.run("show", report["id"]).out
    assert ("No candidate was correct." in shown) == (right == 0)


@pytest.mark.slow
def test_the_same_plan_makes_the_same_choices(home):
    def digests():
        resumed = home.run(
            "search", "axpy", "--template", "right", "--trials", "3", "--seed", "9", "--json"
        ).json
        return resumed["best"]["source_digest"], resumed["best"]["number"]

    assert digests() == digests()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)  # one handler
def test_a_signal_ends_it_cleanly_and_it_is_resumed_without_loss(home, number):
    add_patient_kernel(home)
    # The two trials in flight may end first, and a third that begins before the signal arrives.
    process = home.start(*COMMAND, "--trials", "6")
    lines = [process.stderr.readline() for _ in range(2)]  # its id, and a trial
    search_id = lines[0].split()[1].rstrip(":")
    process.send_signal(number)
    rest = process.stderr.read()
    assert (
        process.wait(60) == 130
        and f"greenfast search --resume {search_id}" in rest
        and "Traceback" not in rest
    )
    paused = home.run("searches", "--json").json[0]
    assert paused["status"] == "paused" and 1 <= paused["trials_done"] < 6
    ended = home.run("search", "--resume", search_id, "--json")
    assert (
        ended.code == 0 and ended.json["status"] == "completed" and ended.json["trials_done"] == 6
    )
    assert numbers(home, search_id) == dict.fromkeys(range(6), 1)


@pytest.mark.slow
def test_the_second_ctrl_c_does_not_wait_and_the_candidate_in_flight_is_tried_again(home):
    process = home.start(*BUSY, "--trials", "2", GREENFAST_DRAIN_S="60")
    search_id = process.stderr.readline().split()[1].rstrip(":")
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert home.run("search", "--resume", search_id).code == 0
    assert set(numbers(home, search_id)) == set(range(2))


@pytest.mark.slow
def test_a_search_that_ended_is_not_resumed_and_a_paused_one_is_cancelled(home):
    done = home.run("search", "axpy", "--template", "right", "--trials", "1", "--json").json["id"]
    again = home.run("search", "--resume", done, "--json")
    assert again.code == 2 and again.json["error"]["code"] == "bad_transition"
    add_patient_kernel(home)
    process = home.start(*COMMAND, "--trials", "50")
    search_id = process.stderr.readline().split()[1].rstrip(":")
    assert home.run("cancel", search_id).code == 0
    until(lambda: not is_alive(process.pid), "the search sees that it is cancelled", 30)
    assert home.run("searches", "--json").json[0]["status"] == "cancelled"


def numbers(home, search_id):
    """Trial number -> attempts, of the recorded trials."""
    from greenfast.db.store import Store

    store = Store.open(f"sqlite:///{home.data / 'greenfast.sqlite3'}")
    try:
        trials = store.trials(search_id, limit=100).items
        assert all(trial.state == "done" for trial in trials)
        return {trial.number: trial.attempts for trial in trials}
    finally:
        store.close()


@pytest.mark.slow
def test_what_there_is_to_choose_from_is_listed_with_names(home):
    listed = {}
    for command in ("targets", "templates", "doctor"):
        ended = home.run(command, "--json")
        listed[command] = {row["name"]: row for row in ended.json}
        assert ended.code == 0 and all(listed[command]), ended.err
        assert home.run(command).out
    target = listed["targets"]["emulator:h200"]
    assert target["available"] and target["time_kind"] == "modelled"
    assert {"right", "broken", "scalar"} <= listed["templates"].keys()
