"""No process of a proposer outlives its proposal, wherever it hides; odd replies are reasons."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import textwrap
import time

import pytest
from slow_cases import quick_first

from greenfast.app.cli.evolve_proposer import NotProposed, Proposed, Proposer
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.loop.submitted import Submission

LAUNCH = 'entry = "k"\ngrid = ["N"]\nblock = [32]\n'

# Writes its number, in a session of its own, without a parent and without open files.
DAEMON = """
import os, sys, time
def daemon(after=lambda: None):
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 3)
    os.environ.clear()
    with open({folder!r} + "/" + str(os.getpid()), "w"):
        pass
    after()
    time.sleep(120)
    os._exit(0)
def begun(count):
    while len(os.listdir({folder!r})) < count:
        time.sleep(0.01)
"""


def proposed(program: str, deadline_s: float = 30.0):
    return Proposer(shlex.join([sys.executable, "-S", "-c", program]), deadline_s).propose({})


def living(folder) -> list[int]:
    """Of the daemons that began; on a busy machine a deadline may come before them."""
    pids = [int(path.name) for path in folder.iterdir()]
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


@pytest.mark.parametrize(
    ("ending", "deadline_s", "outcome"),
    [
        ("print(1)", 30.0, Proposed("1\n")),
        ("os.kill(os.getpid(), 9)", 30.0, "ended by signal 9"),
        ("sys.exit(3)", 30.0, "exit code 3"),
        ("os.closerange(0, 3); time.sleep(100)", 2.0, "no proposal within 2 s"),
        ("os.setpgid(0, 0); os.kill(0, 15)", 30.0, "ended by signal 15"),
    ],
)
def test_daemons_in_sessions_of_their_own_end_with_the_proposal(
    tmp_path, ending, deadline_s, outcome
):
    program = DAEMON.format(folder=str(tmp_path)) + (
        f"daemon()\ndaemon(lambda: daemon())\nbegun(3)\n{ending}\n"
    )
    result = proposed(program, deadline_s)
    if isinstance(outcome, Proposed):
        assert result == outcome
    else:
        assert isinstance(result, NotProposed) and result.reason == outcome
    assert not living(tmp_path)


@pytest.mark.slow
def test_daemons_that_go_on_forking_end(tmp_path):
    program = DAEMON.format(folder=str(tmp_path)) + textwrap.dedent("""
        def again():
            while True:
                time.sleep(0.01)
                if os.fork() == 0:
                    os.setsid()
                    with open(os.path.join(FOLDER, str(os.getpid())), "w"):
                        pass
                else:
                    os._exit(0)
        daemon(again)
        begun(5)
        print(1)
    """).replace("FOLDER", repr(str(tmp_path)))
    assert proposed(program) == Proposed("1\n")
    time.sleep(0.1)
    count = len(list(tmp_path.iterdir()))
    time.sleep(0.2)
    assert len(list(tmp_path.iterdir())) == count and not living(tmp_path)


@pytest.mark.slow
def test_a_command_that_is_none_is_the_users_mistake(tmp_path):
    for words in ("/no/such/program", str(tmp_path), "true " + "x" * 200_000):
        with pytest.raises(UsageError, match="cannot be started"):
            Proposer(words, 5.0).propose({})


@pytest.mark.skipif(sys.platform != "linux", reason="a parent's death is a signal on Linux")
def test_what_a_proposer_started_ends_with_a_killed_greenfast(tmp_path):
    program = DAEMON.format(folder=str(tmp_path)) + "daemon()\ntime.sleep(120)\n"
    words = shlex.join([sys.executable, "-S", "-c", program])
    caller = (
        "from greenfast.app.cli.evolve_proposer import Proposer\n"
        f"Proposer({words!r}, 100.0).propose({{}})"
    )
    parent = subprocess.Popen([sys.executable, "-c", caller])
    try:
        until(lambda: list(tmp_path.iterdir()))
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not living(tmp_path))


def until(is_so, deadline_s=60.0):
    end = time.monotonic() + deadline_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_proposer_that_ends_its_keeper_proposes_nothing():
    result = proposed("import os; os.kill(os.getppid(), 9)")
    assert result == NotProposed("the process that watches over it was ended")


def test_a_sparse_reply_of_a_gigabyte_is_too_much():
    result = proposed("import os; os.ftruncate(1, 10**9)")
    assert isinstance(result, NotProposed) and result.reason.startswith("more than ")


ODD = ["\0", "\ud800", "\x1b[2J", "\u202e", "\x85"]


@pytest.mark.parametrize(
    "field", quick_first(["source", "launch", "entry", "hypothesis", "model"], 2)
)
def test_no_field_of_a_reply_brings_nul_or_surrogates_into_the_store(tmp_path, field):
    for character in ODD:
        text = {"source": f"// {character}\n", "launch": LAUNCH.replace("k", f"k{character}", 1)}
        reply = {"source": "// text\n", "launch": LAUNCH, field: text.get(field, f"k{character}")}
        path = tmp_path / "reply"
        path.write_text(json.dumps(reply))
        command = shlex.join(["cat", str(path)])
        result = Proposer(command, 20.0).propose({})
        assert isinstance(result, Proposed), result
        submission = Submission(
            "axpy",
            result.source,
            result.launch,
            result.entry,
            model=result.model,
            hypothesis=result.hypothesis,
        )
        if field in ("hypothesis", "model") and character not in "\0\ud800":
            submission.checked()  # it is text, and escaped where it is shown
            continue
        with pytest.raises((UsageError, SpecError)) as refused:
            submission.checked()
        assert refused.value.code in ("bad_text", "bad_source", "bad_entry", "bad_toml", "bad_spec")
        str(refused.value).encode()
