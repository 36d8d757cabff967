"""Proposers: every way to fail is a reason and no verdict; the mutating one changes one number."""

from __future__ import annotations

import json
import sys
import time

import pytest

from greenfast.app.cli.evolve_proposer import LARGEST_REPLY_BYTES, NotProposed, Proposed, Proposer
from greenfast.propose_mutation import mutations, proposal
from greenfast.search.errors import UsageError

SOURCE = """constexpr int threads = 128;
#define STAGES 2
#pragma unroll 4
for (int i = 0; i < 128; ++i) { }
float scale = 128.5f;
"""
LAUNCH = '[locals]\nthreads = "128"\n[[launches]]\nblock = ["threads", "1", "1"]\n'


def proposed(program, prompt=None, deadline_s=20.0):
    command = f"{sys.executable} -c '{program}'"
    return Proposer(command, deadline_s).propose(prompt or {"seed": 1})


def test_a_reply_is_a_source_or_json_with_one():
    assert proposed("print(1)") == Proposed("1\n")
    echo = 'import sys,json; p=json.load(sys.stdin); print(json.dumps({"source": p["a"]}))'
    assert proposed(echo, {"a": "text"}) == Proposed("text")


@pytest.mark.parametrize(
    "program, reason",
    [
        ('import sys; sys.exit("\\x1b[31mno")', "exit code 1"),
        ("pass", "empty"),
        ('import sys; sys.stdout.buffer.write(b"\\xff")', "UTF-8"),
        ('print("{")', "not JSON"),
        ('print("{}")', "without"),
        ('print(chr(123) + chr(34) + "source" + chr(34) + ": 1}")', "without"),
        (f'print("x" * {LARGEST_REPLY_BYTES + 1})', "more than"),
        ("import os; os.kill(os.getpid(), 9)", "ended by signal 9"),
        ('while True: print("x" * 65536)', "more than"),
        ('import sys\nwhile True: print("x" * 65536, file=sys.stderr)', "more than"),
        ('print((chr(123) + chr(34) + "a" + chr(34) + ":") * 100000)', "not JSON"),
        ('print(chr(123) + chr(34) + "source" + chr(34) + ":" + "9" * 5000 + "}")', "not JSON"),
    ],
)
def test_a_failing_proposer_is_a_reason(program, reason):
    outcome = proposed(program)
    assert isinstance(outcome, NotProposed) and reason in outcome.reason
    assert "\x1b" not in outcome.reason


def test_a_proposer_without_end_is_ended_with_what_it_started(tmp_path):
    mark = tmp_path / "mark"
    program = (
        "import subprocess, time; "
        f'subprocess.Popen(["sh", "-c", "sleep 1; touch {mark}"]); time.sleep(60)'
    )
    outcome = proposed(program, deadline_s=0.5)
    assert isinstance(outcome, NotProposed) and "within 0.5 s" in outcome.reason
    time.sleep(1.5)
    assert not mark.exists()


def test_a_proposer_learns_no_secret(monkeypatch):
    monkeypatch.setenv("GREENFAST_TOKEN", "a-secret-of-16-characters")
    monkeypatch.setenv("OWN_KEY", "kept")
    program = 'import os; print(os.environ.get("GREENFAST_TOKEN"), os.environ["OWN_KEY"])'
    assert proposed(program) == Proposed("None kept\n")


@pytest.mark.parametrize("command", ["", "'", "/no/such/program"])
def test_no_command_is_the_users_mistake(command):
    with pytest.raises(UsageError):
        Proposer(command, 1.0).propose({})


def test_mutations_change_one_number_with_its_launches():
    by_words = {mutation.words: mutation for mutation in mutations(SOURCE, LAUNCH)}
    tile = by_words["128 -> 256"]
    assert "threads = 256;" in tile.source and "i < 256" in tile.source
    assert "128.5f" in tile.source and 'threads = "256"' in tile.launch
    named = by_words["threads = 128 -> 64"]
    assert "threads = 64;" in named.source and "i < 128" in named.source
    assert 'threads = "64"' in named.launch
    assert "#define STAGES 3" in by_words["STAGES = 2 -> 3"].source
    assert "#pragma unroll 8\n" in by_words["unroll 4 -> 8"].source


def test_a_proposal_follows_from_its_prompt():
    parents = [{"source": SOURCE, "launch": LAUNCH}]
    prompt = {"parents": parents, "seed": 3, "trial": 2, "attempt": 1}
    assert proposal(prompt) == proposal(json.loads(json.dumps(prompt)))
    others = {proposal({**prompt, "attempt": attempt})["hypothesis"] for attempt in range(20)}
    assert len(others) > 5
