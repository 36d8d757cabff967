"""Peers without a GPU: what is not there is said so by a real child, and rounds become comparisons."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from greenfast.search.errors import Fault
from greenfast.search.peers.offers import load_offers
from greenfast.search.peers.process import read_replies, run_child
from greenfast.search.peers.results import Round, peers_of

SQUARE = {"B": 2, "H": 8, "H_kv": 8, "S_q": 256, "S_kv": 256, "D": 64}


@pytest.fixture
def offers(catalogue):
    return load_offers(catalogue.kernel("attention").folder / "peers.py")


def _request(folder, offers_file) -> tuple:
    request, replies = folder / "request.json", folder / "replies.jsonl"
    request.write_text(
        json.dumps(
            {
                "peers": str(offers_file),
                "cubin": "none",
                "gpu": 0,
                "l2_bytes": 1,
                "deadline_s": 1.0,
                "seed": 1,
                "blocks": 4,
                "folder": str(folder),
                "python": "python",
                "skip": [["torch-flash", "mission"]],
                "workloads": [{"name": "mission", "scalars": []}],
            }
        )
    )
    replies.write_text("")
    return request, replies


def test_a_child_without_the_packages_names_every_peer_as_unavailable(tmp_path, catalogue, offers):
    if all(importlib.util.find_spec(name) for name in ("cupy", "torch")):
        pytest.skip("CUPY AND TORCH ARE INSTALLED: tests/gpu runs the peers")
    request, replies = _request(tmp_path, catalogue.kernel("attention").folder / "peers.py")
    assert run_child(sys.executable, request, replies) == ""
    rows = read_replies(replies.read_text().splitlines()).rows
    assert [row["peer"] for row in rows] == [
        name for name in offers["NAMES"] if name != "torch-flash"
    ]
    assert all(row["outcome"] == "unavailable" and "is not installed" in row["why"] for row in rows)


def test_a_child_that_fails_says_how_and_an_interpreter_that_is_none_is_a_fault(tmp_path):
    request, replies = _request(tmp_path, tmp_path / "nothing.py")
    assert run_child(sys.executable, request, replies).startswith("exit code 1: FileNotFoundError")
    with pytest.raises(Fault, match="no_such_python cannot be run"):
        run_child("/no_such_python", request, replies)


def test_a_child_that_hangs_ends_at_its_deadline_or_when_it_is_cancelled(tmp_path):
    (tmp_path / "slow.py").write_text("import time\nNAMES = ()\ntime.sleep(60)\n")
    request, replies = _request(tmp_path, tmp_path / "slow.py")
    assert run_child(sys.executable, request, replies, deadline_s=0.5) == "no answer within 0.5 s"
    assert run_child(sys.executable, request, replies, cancelled=lambda: True) == "it was cancelled"


def test_whoever_was_at_work_when_a_child_died_is_known():
    lines = [
        '{"peer": "a", "workload": "w", "begin": true}',
        '{"peer": "a", "workload": "w", "outcome": "ran"}',
        '{"peer": "b", "workload": "w", "begin": true}',
        '{"peer": "b", "worklo',
    ]
    found = read_replies(lines)
    assert [row["peer"] for row in found.rows] == ["a"] and found.running == ("b", "w")


def test_a_peer_with_another_mask_or_type_is_refused(offers):
    wide, scale = {**SQUARE, "S_q": 64}, {"scale": 0.125}
    with pytest.raises(ValueError, match="top left"):
        offers["offer"](
            "torch-cudnn", wide, {"dtype": "fp16", "mask": "causal_bottom_right"}, scale
        )
    with pytest.raises(ValueError, match="e4m3"):
        offers["offer"]("torch-flash", SQUARE, {"dtype": "e4m3", "mask": "none"}, scale)
    with pytest.raises(ValueError, match="bottom right"):
        offers["bottom_right"](wide, "causal_top_left")
    assert offers["bottom_right"](wide, "causal_bottom_right") and not offers["bottom_right"](
        wide, "none"
    )
    assert offers["bottom_right"](SQUARE, "causal_top_left")


def test_a_peer_that_is_not_installed_raises_import_error(offers):
    for name in ("flash-attention-4", "flash-attention-3"):
        with pytest.raises(ImportError):
            offers["offer"](name, SQUARE, {"dtype": "bf16", "mask": "none"}, {"scale": 0.125})


def test_flash_attention_4_alone_is_not_taken_for_flash_attention_2(tmp_path, monkeypatch, offers):
    if importlib.util.find_spec("flash_attn"):
        pytest.skip("FLASH-ATTENTION IS INSTALLED: nothing is missing here")
    (tmp_path / "flash_attn" / "cute").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with pytest.raises(ImportError, match="flash_attn has no flash_attn_func"):
            offers["offer"](
                "flash-attention-2", SQUARE, {"dtype": "bf16", "mask": "none"}, {"scale": 0.125}
            )
    finally:
        sys.modules.pop("flash_attn", None)


def _timed(ours: float, theirs: float, seed: int = 1, **fields) -> Round:
    wobble = (0.999, 1.001)
    times = tuple(tuple(us * wobble[i % 2] for i in range(80)) for us in (ours, theirs))
    return Round(
        **{
            **dict(
                peer="torch-flash",
                version="torch 2.11",
                workload="mission",
                outcome="timed",
                why="",
                seed=seed,
                mode="hot",
                times=times,
            ),
            **fields,
        }
    )


def test_a_winner_is_faster_only_when_every_process_says_so():
    (peer,) = peers_of("wmma", [_timed(8.0, 10.0, seed) for seed in (1, 2, 3)])
    assert peer.outcome == "timed" and peer.time_median_us == pytest.approx(10.0, rel=0.01)
    assert peer.comparison.decision == "faster" and peer.comparison.ratio == pytest.approx(
        0.8, rel=0.001
    )
    assert peer.comparison.ratio_low < 0.8 < peer.comparison.ratio_high < 1
    assert [process.seed for process in peer.comparison.processes] == [
        1,
        2,
        3,
    ] and "3 fresh processes" in peer.sentence
    (peer,) = peers_of("wmma", [_timed(9.9, 10.0), _timed(10.1, 10.0), _timed(10.0, 10.0)])
    assert peer.comparison.decision not in ("faster", "slower")


def test_a_peer_that_was_wrong_once_is_not_compared():
    (peer,) = peers_of(
        "wmma",
        [_timed(8.0, 10.0), _timed(8.0, 10.0, 2, outcome="wrong", why="o is wrong", times=None)],
    )
    assert peer.outcome == "wrong" and peer.comparison is None and "o is wrong" in peer.sentence
    assert peer.version == "torch 2.11"


def test_each_workload_has_its_own_row():
    found = peers_of(
        "wmma",
        [
            _timed(8, 10),
            _timed(8, 10, workload="long"),
            _timed(
                8, 10, peer="flashinfer", outcome="unavailable", why="not installed", times=None
            ),
        ],
    )
    assert [(one.workload, one.name, one.outcome) for one in found] == [
        ("mission", "torch-flash", "timed"),
        ("long", "torch-flash", "timed"),
        ("mission", "flashinfer", "unavailable"),
    ]
