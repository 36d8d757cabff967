"""Requests to a measuring child, each sent before the last one is answered: a real child process,
which notes what it works on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from greenfast.search.errors import Fault
from greenfast.search.targets.cuda import conversation as module
from greenfast.search.targets.cuda import measuring_child
from greenfast.search.targets.cuda.conversation import AT_ONCE, Conversation
from greenfast.search.targets.cuda.lock import GpuLock
from greenfast.search.targets.cuda.measuring_child import MeasuringChild
from greenfast.search.targets.cuda.quarantine import Quarantine

HERE = Path(__file__).parent
LONGEST_WAIT_S = 8.0  # reached by a broken test only, also on a busy machine
LARGE = "x" * 300_000  # a pipe holds 64 KiB


class Talk:
    """A conversation, its child's notes, and a thread for each request."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notes, self.turns = folder, folder / "notes", 0
        self.notes.touch()
        quarantine = Quarantine(folder, "0123", "cuda:0")
        self.child = MeasuringChild("standin_talker", "cuda:0", 0, quarantine)
        self.gpu = GpuLock(folder, "0123", "cuda:0", LONGEST_WAIT_S)
        self.spent: list[tuple[str, float]] = []
        self.conversation = Conversation(
            self.child, self.gpu, self._turn, lambda *spent: self.spent.append(spent)
        )
        self._threads = ThreadPoolExecutor(16)

    @contextmanager
    def _turn(self):
        self.turns += 1
        yield

    def ask(self, name, **request):
        """A request in a thread of its own, in its place in the order."""
        places = self.places + 1
        future = self._threads.submit(
            self.conversation.reply, {"do": "work", "name": name, **request}
        )
        until(lambda: future.done() or self.places >= places)
        return future

    @property
    def places(self) -> int:
        return len(self.conversation._waiting) + len(self.conversation._admitted)

    @property
    def sent(self) -> int:
        """Requests that the child has in its pipe or works on."""
        return sum(place.is_sent for place in self.conversation._admitted)

    def worked(self) -> list[str]:
        """What the child noted, without processes and times."""
        return [" ".join(line.split()[:2]) for line in self.notes.read_text().splitlines()]

    def processes(self, words: str) -> list[int]:
        lines = [line.split() for line in self.notes.read_text().splitlines()]
        return [int(pid) for verb, name, pid, _ in lines if f"{verb} {name}" == words]

    def until(self, words: str) -> None:
        until(lambda: words in self.worked())

    def close(self) -> None:
        self.conversation.interrupt()
        self._threads.shutdown()
        self.child.end()
        self.gpu.close()


def until(is_so) -> None:
    end = time.monotonic() + LONGEST_WAIT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def talk(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE.parents[1]), str(HERE)]))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    opened = Talk(tmp_path)
    opened.child.start()
    yield opened
    opened.close()


def test_each_thread_gets_its_own_reply_in_the_order_in_which_they_asked(talk):
    futures = [talk.ask(f"request{at}", seconds=0.01) for at in range(8)]
    assert [future.result()["name"] for future in futures] == [f"request{at}" for at in range(8)]
    assert talk.worked() == [
        f"{does} request{at}" for at in range(8) for does in ("begins", "ends")
    ]
    assert talk.turns == len(talk.spent) == talk.child.jobs == 8


def test_the_child_goes_on_to_a_request_while_the_process_cannot_run(talk, monkeypatch):
    """The second request lies in the pipe: nobody has to wake up between the two."""
    received = talk.child.receive

    def late(interrupts):
        reply = received(interrupts)
        if reply["name"] == "first":
            talk.until("ends second")  # without it the test would wait here for ever
        return reply

    monkeypatch.setattr(talk.child, "receive", late)
    first, second = talk.ask("first", seconds=0.2), talk.ask("second")
    assert first.result()["name"] == "first" and second.result()["name"] == "second"


def test_the_child_has_so_many_requests_and_no_more(talk):
    futures = [talk.ask(f"request{at}", seconds=0.3 if at == 0 else 0.0) for at in range(6)]
    until(lambda: talk.sent == AT_ONCE)
    assert talk.places == 6 and len(talk.conversation._waiting) == 6 - AT_ONCE
    assert all(future.result() for future in futures)


@pytest.mark.parametrize("how", ["killed", "dies", "breaks"])
def test_a_child_that_is_lost_costs_the_request_in_work_and_none_behind(talk, how):
    end = {} if how == "killed" else {how: True}
    first = talk.ask("first", seconds=60.0 if how == "killed" else 0.3, **end)
    behind = [talk.ask(f"behind{at}") for at in range(3)]
    until(lambda: talk.sent == AT_ONCE)
    if how == "killed":
        talk.until("begins first")
        os.kill(talk.child.hello["pid"], signal.SIGKILL)
    if how == "breaks":
        assert first.result()["error"] == "an illegal address"
    else:
        with pytest.raises(Fault) as fault:
            first.result()
        assert fault.value.code == "child_lost"
    assert [future.result()["name"] for future in behind] == ["behind0", "behind1", "behind2"]
    assert talk.child.jobs == 3
    (lost,) = talk.processes("begins first")
    assert [talk.processes(f"ends behind{at}")[-1] for at in range(3)] != [lost] * 3
    assert [words for words in talk.worked() if words.startswith("ends behind")][-3:] == [
        f"ends behind{at}" for at in range(3)
    ]


def test_a_child_that_died_between_two_requests_costs_none(talk):
    before = talk.ask("first").result()
    os.kill(talk.child.hello["pid"], signal.SIGKILL)
    until(lambda: not talk.child.running.alive)
    assert before["name"] == "first" and talk.ask("second").result()["name"] == "second"


def test_an_interrupt_ends_the_request_in_work_and_the_one_behind(talk):
    first, second = talk.ask("first", seconds=60.0), talk.ask("second")
    until(lambda: talk.sent == 2)
    talk.conversation.interrupt()
    for future in (first, second):
        with pytest.raises(Fault) as fault:
            future.result()
        assert fault.value.code == "interrupted"
    assert talk.ask("third").result()["name"] == "third"
    assert "begins second" not in talk.worked()


def test_whoever_leaves_without_a_reply_takes_nobody_elses(talk):
    """As a keyboard interrupt does, in the middle of writing a large request."""
    first = talk.ask("first", seconds=0.5)
    until(lambda: talk.sent == 1)

    def broken_off(message):
        os.write(talk.child.running._write, message[:1000])
        raise KeyboardInterrupt

    talk.child.running.send = broken_off
    with pytest.raises(KeyboardInterrupt):
        talk.conversation.reply({"do": "work", "name": "second", "filling": LARGE})
    with pytest.raises(Fault) as fault:
        first.result()
    assert fault.value.code == "interrupted"
    assert talk.ask("third").result()["name"] == "third"


def test_requests_and_replies_larger_than_a_pipe_block_nobody(talk):
    futures = [talk.ask(f"request{at}", filling=LARGE, seconds=0.02) for at in range(4)]
    assert [future.result()["size"] for future in futures] == [len(LARGE)] * 4


def test_a_large_request_behind_one_that_kills_the_child_is_sent_again(talk):
    """Its thread is in the middle of writing when the pipe breaks."""
    first, second = talk.ask("first", seconds=0.3, dies=True), talk.ask("second", filling=LARGE)
    with pytest.raises(Fault, match="was lost"):
        first.result()
    assert second.result()["size"] == len(LARGE)


def test_the_deadline_of_a_request_begins_when_the_child_can_begin_it(talk, monkeypatch):
    monkeypatch.setattr(measuring_child, "JOB_DEADLINE_S", 1.0)
    futures = [talk.ask(name, seconds=0.7) for name in ("first", "second")]
    assert [future.result()["name"] for future in futures] == ["first", "second"]
    stuck, behind = talk.ask("stuck", seconds=60.0), talk.ask("behind")
    with pytest.raises(Fault) as fault:
        stuck.result()
    assert fault.value.code == "child_stuck" and behind.result()["name"] == "behind"


def test_each_request_counts_the_seconds_that_the_child_had_for_it(talk):
    begin = time.monotonic()
    for future in [talk.ask(f"request{at}", seconds=0.2) for at in range(3)]:
        future.result()
    spent = [seconds for _, seconds in talk.spent]
    assert all(seconds > 0.15 for seconds in spent)
    assert sum(spent) <= time.monotonic() - begin  # none is counted twice


def test_a_child_is_replaced_after_its_last_job_and_nothing_is_sent_past_it(talk, monkeypatch):
    monkeypatch.setattr(measuring_child, "JOBS_A_CHILD", 3)
    futures = [talk.ask(f"request{at}") for at in range(7)]
    assert [future.result()["name"] for future in futures] == [f"request{at}" for at in range(7)]
    used = [talk.processes(f"ends request{at}") for at in range(7)]
    assert [used.count(each) for each in used] == [3, 3, 3, 3, 3, 3, 1]


def test_a_pause_waits_for_the_requests_sent_and_holds_back_the_others(talk):
    first, second = talk.ask("first", seconds=0.2), talk.ask("second")
    until(lambda: talk.sent == 2)
    with talk.conversation.paused():
        assert first.done() or second.done() or talk.worked()[-1] == "ends second"
        third = talk.ask("third")
        time.sleep(0.1)
        assert "begins third" not in talk.worked()
    assert third.result()["name"] == "third"


def test_a_turn_that_is_lost_with_a_reply_costs_that_one_request(talk):
    ended = []

    @contextmanager
    def turn():
        yield
        ended.append("turn")
        if len(ended) == 1:
            raise Fault("another worker took the GPU", code="device_lost")

    talk.conversation._turn = turn
    first, second = talk.ask("first", seconds=0.1), talk.ask("second")
    with pytest.raises(Fault, match="took the GPU"):
        first.result()
    assert second.result()["name"] == "second"


OTHER = """
import sys, time
from pathlib import Path
from greenfast.search.targets.cuda.lock import GpuLock
lock = GpuLock(Path(sys.argv[1]), "0123", "cuda:0", 60.0)
for _ in range(3):
    with lock.held():
        begun = time.monotonic()
        time.sleep(0.05)
        print(begun, time.monotonic(), flush=True)
"""


def test_another_process_gets_the_gpu_between_requests_that_never_pause(talk, monkeypatch):
    monkeypatch.setattr(module, "SHORT_STRETCH_S", 0.05)
    is_over = threading.Event()

    def keep_asking(number):
        while not is_over.is_set():
            talk.conversation.reply({"do": "work", "name": f"by{number}", "seconds": 0.01})

    with ThreadPoolExecutor(3) as threads:
        askers = [threads.submit(keep_asking, number) for number in range(3)]
        talk.until("ends by2")
        other = subprocess.run(
            [sys.executable, "-c", OTHER, str(talk.folder)],
            check=False,
            capture_output=True,
            text=True,
            timeout=LONGEST_WAIT_S,
        )
        is_over.set()
    assert all(asker.exception() is None for asker in askers)
    periods = [tuple(map(float, line.split())) for line in other.stdout.splitlines()]
    assert len(periods) == 3, other.stderr
    times = [float(line.split()[-1]) for line in talk.notes.read_text().splitlines()]
    assert not [at for at in times for begin, end in periods if begin < at < end]
    between = [at for at in times if periods[0][1] < at < periods[2][0]]
    assert between, "the conversation had the GPU again"


def test_the_gpu_is_free_once_no_request_is_left(talk):
    talk.ask("first").result()
    another = GpuLock(talk.folder, "0123", "cuda:0", 0.1)
    until(lambda: not talk.places)
    with another.held():
        second = talk.ask("second")
        time.sleep(0.1)
        assert talk.gpu is not another and not second.done()
    assert second.result()["name"] == "second"
    another.close()


def test_a_stretch_without_a_pause_ends(talk, monkeypatch):
    """Then other workers of the database may have the GPU."""
    monkeypatch.setattr(module, "STRETCH_S", 0.1)
    taken = []
    take = talk.gpu.take
    monkeypatch.setattr(talk.gpu, "take", lambda: taken.append(talk.worked()) or take())
    for future in [talk.ask(f"request{at}", seconds=0.06) for at in range(6)]:
        future.result()
    assert 2 <= len(taken) <= 5
