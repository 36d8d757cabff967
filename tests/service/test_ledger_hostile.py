"""Hostile ledgers: what is refused with its line, and what a kill in the middle leaves."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import closing, redirect_stderr, redirect_stdout

import pytest
from new_database import place_database

from greenfast.app.cli.main import run
from greenfast.app.views import ledger_exchange
from greenfast.app.views.ledger_exchange import import_file
from greenfast.db.store import Store
from greenfast.search.errors import UsageError

GREEN = {
    "search_id": "s_aaaaaaaaaaaa",
    "number": 1,
    "kernel": "axpy",
    "kernel_digest": "0" * 64,
    "workloads": ["line"],
    "values": {"dtype": "fp16"},
    "target": "cuda:0",
    "mode": "hot",
    "environment": {"device": "h200"},
    "template": "right",
    "parameters": {"threads": 64},
    "candidate_digest": "1" * 64,
    "source_digest": "2" * 64,
    "is_baseline": False,
    "verdict": "green",
    "stage": None,
    "reason": None,
    "sentence": "fine",
    "time_median_us": 3.0,
    "time_kind": "measured",
    "ratio_to_baseline": 0.5,
    "registers": 10,
    "spill_bytes": 0,
    "smem_bytes": 0,
    "recorded_at": "2026-01-01T00:00:00Z",
}
NO_TIME = {"time_median_us": None, "time_kind": None, "ratio_to_baseline": None}


def ledger(*records):
    """A file as its author would write it: every digest is right."""
    lines = []
    for record in records:
        canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        lines.append(json.dumps({"record": record, "digest": digest}))
    digests = "".join(f"{json.loads(line)['digest']}\n" for line in lines)
    header = {
        "ledger": 1,
        "greenfast": "1",
        "created_at": "2026-01-01T00:00:00Z",
        "records": len(lines),
        "digest": hashlib.sha256(digests.encode()).hexdigest(),
    }
    return "\n".join([json.dumps(header), *lines]) + "\n"


@pytest.fixture
def store(tmp_path):
    place_database(tmp_path / "mine.sqlite3")
    with closing(Store.open(f"sqlite:///{tmp_path / 'mine.sqlite3'}")) as opened:
        yield opened


@pytest.fixture
def refused(store, tmp_path):
    """The code and the sentence with which a file is refused; it leaves nothing behind."""

    def answer(content):
        file = tmp_path / "theirs.jsonl"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(UsageError) as caught:
            import_file(store, file)
        assert store.foreign() == ()
        return caught.value.code, str(caught.value)

    return answer


CLAIMS = {
    "not a time of this target": {"target": "emulator:h200"},
    "accepted and slower": {"verdict": "accepted", "ratio_to_baseline": 1.5},
    "accepted against nothing": {"verdict": "accepted", "ratio_to_baseline": None},
    "an accepted baseline": {"verdict": "accepted", "is_baseline": True},
    "accepted by a modelled time": {
        "verdict": "accepted",
        "target": "emulator:h200",
        "time_kind": "modelled",
    },
    "a fault": {"verdict": "faulted", **NO_TIME},
    "rejected nowhere": {"verdict": "rejected", "reason": "race"},
    "a stage without a reason": {"stage": "safety"},
    "a true number": {"number": True},
    "a number in quotes": {"number": "5"},
    "registers below none": {"registers": -5},
    "registers beyond all": {"registers": 10**30},
    "a compiler that finds races": {
        "verdict": "rejected",
        "stage": "compile",
        "reason": "race",
        "registers": None,
        **NO_TIME,
    },
    "a run that fails to compile": {
        "verdict": "rejected",
        "stage": "correctness",
        "reason": "compile_error",
        **NO_TIME,
    },
    "slower without being timed": {
        "verdict": "rejected",
        "stage": "correctness",
        "reason": "slower",
        **NO_TIME,
    },
    "a time of what was never compiled": {
        "verdict": "rejected",
        "stage": "compile",
        "reason": "compile_error",
        "registers": None,
    },
    "registers of what was never compiled": {
        "verdict": "rejected",
        "stage": "compile",
        "reason": "compile_error",
        **NO_TIME,
    },
    "a NUL": {"kernel": "a\x00b"},
    "an escape": {"template": "\x1b[31mred"},
    "text that runs backwards": {"workloads": ["a\u202eb"]},
    "half a character": {"sentence": "\ud800"},
    "no kernel": {"kernel": ""},
    "ten thousand parameters": {"parameters": {f"p{n}": n for n in range(10_000)}},
    "another stage": {"verdict": "rejected", "stage": "kitchen", "reason": "race", **NO_TIME},
}


@pytest.mark.parametrize("claim", sorted(CLAIMS))
def test_a_record_that_claims_more_than_a_trial_can_refuses_the_whole_file(refused, claim):
    second = {**GREEN, "number": 2, **CLAIMS[claim]}
    code, sentence = refused(ledger(GREEN, second))
    assert code == "ledger_invalid" and "line 3:" in sentence
    assert "Value error" not in sentence and len(sentence) < 400


def test_damaged_files_are_refused_with_their_line(refused):
    whole = ledger(GREEN, {**GREEN, "number": 2})
    assert refused(ledger(GREEN, GREEN))[1].count("line ") == 2  # the line, and the first of both
    for cut in range(1, len(whole) - 1, 97):
        code, sentence = refused(whole[:cut])
        assert code in ("ledger_foreign", "ledger_invalid", "ledger_tampered"), sentence
        assert "line " in sentence
    assert refused(whole.encode("utf-16"))[0] == "ledger_foreign"
    assert refused(b"\xff\xfe\x00")[0] == "ledger_foreign"
    assert refused("\ufeff" + whole)[0] == "ledger_foreign"
    lines = whole.splitlines()
    nan = lines[1].replace("3.0", "NaN")
    for bad in (nan, lines[1].replace("3.0", "1e999"), "[" * 100_000, '{"record": ' + "9" * 9_999):
        code, sentence = refused("\n".join([lines[0], bad, lines[2]]))
        assert code == "ledger_invalid" and "line 2:" in sentence


def test_huge_lines_and_files_that_never_end_are_refused(refused, store, tmp_path, monkeypatch):
    long = ledger({**GREEN, "sentence": "x" * (1 << 20)})
    code, sentence = refused(long)
    assert code == "ledger_invalid" and "line 2:" in sentence and len(sentence) < 400
    monkeypatch.setattr(ledger_exchange, "LARGEST_BYTES", 1 << 16)
    for name, why in (("/dev/zero", "no plain file"), (tmp_path / "theirs.jsonl", "more than")):
        with pytest.raises(UsageError, match=why):
            import_file(store, ledger_exchange.Path(name))
    with pytest.raises(UsageError, match="cannot be read"):
        import_file(store, tmp_path)
    assert store.foreign() == ()


KILLED = """
import os, signal, sys
from pathlib import Path
from greenfast.app.views.ledger_exchange import import_file
from greenfast.db.ledger import Ledger
from greenfast.db.store import Store

def dying(records):
    for number, record in enumerate(records):
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        yield record

whole = Ledger.import_foreign
Ledger.import_foreign = lambda self, digest, records: whole(self, digest, dying(records))
import_file(Store.open(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_kill_in_the_middle_of_an_import_leaves_nothing_and_it_can_be_repeated(store, tmp_path):
    file = tmp_path / "theirs.jsonl"
    file.write_text(ledger(*({**GREEN, "number": number} for number in range(6))))
    command = [sys.executable, "-c", KILLED, f"sqlite:///{tmp_path / 'mine.sqlite3'}", str(file)]
    killed = subprocess.run(command, check=False, env=dict(os.environ), capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert store.foreign() == ()
    assert import_file(store, file) == (6, 6)
    assert import_file(store, file) == (6, 0)


def test_a_foreign_sentence_cannot_move_the_terminals_cursor(store, tmp_path, monkeypatch):
    data = tmp_path / "data"
    monkeypatch.setenv("GREENFAST_DATA", str(data))
    file = tmp_path / "theirs.jsonl"
    file.write_text(ledger({**GREEN, "sentence": "gone\x1b[2J\r\x07[red]bold[/red]\u202e"}))
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert run(["ledger", "import", str(file)]) == 0, err.getvalue()
        assert run(["ledger", "list"]) == 0
    shown = out.getvalue()
    assert "s_aaaaaaaaaaaa/1" in shown and "[red]bold" in shown
    assert not {"\x1b", "\r", "\x07", "\u202e"} & set(shown)
