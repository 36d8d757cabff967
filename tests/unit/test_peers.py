"""Peers without a GPU: a real child reports what is missing, and rounds become comparisons."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from greenfast.app.bundle.tuning import library_us
from greenfast.runtime.fallbacks import FALLBACK_PEERS, FALLBACKS
from greenfast.search.dispatch.table import PeerTime
from greenfast.search.errors import Fault
from greenfast.search.peers.offers import load_offers
from greenfast.search.peers.process import read_replies, run_child
from greenfast.search.peers.results import Round, peers_of

SQUARE = {"B": 2, "H": 8, "H_kv": 8, "S_q": 256, "S_kv": 256, "D": 64}


@pytest.fixture
def offers(catalogue):
    return load_offers(catalogue.kernel("attention").folder / "peers.py")


def _request(folder, offers_file, python="python") -> tuple:
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
                "python": python,
                "skip": [["torch-flash", "mission"]],
                "workloads": [{"name": "mission", "dims": {}, "options": {}, "scalars": []}],
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
    replies = read_replies(lines)
    assert [row["peer"] for row in replies.rows] == ["a"] and replies.running == ("b", "w")


def test_a_peer_with_another_mask_or_type_is_refused(offers):
    wide, scale = {**SQUARE, "S_q": 64}, {"scale": 0.125}
    with pytest.raises(ValueError, match="top left"):
        offers["offer"](
            "torch-cudnn", wide, {"dtype": "fp16", "mask": "causal_bottom_right"}, scale
        )
    with pytest.raises(ValueError, match="no such mask"):
        offers["offer"](
            "torch-default", wide, {"dtype": "fp16", "mask": "causal_bottom_right"}, scale
        )
    with pytest.raises(ValueError, match="e4m3"):
        offers["offer"]("torch-flash", SQUARE, {"dtype": "e4m3", "mask": "none"}, scale)
    with pytest.raises(ValueError, match="bottom right"):
        offers["bottom_right"](wide, "causal_top_left")
    assert offers["bottom_right"](wide, "causal_bottom_right") and not offers["bottom_right"](
        wide, "none"
    )
    assert offers["bottom_right"](SQUARE, "causal_top_left")


@pytest.mark.parametrize("kernel", FALLBACKS)
def test_what_the_runtime_falls_back_to_is_a_peer(catalogue, kernel):
    offers = load_offers(catalogue.kernel(kernel).folder / "peers.py")
    assert FALLBACK_PEERS[kernel] in offers["NAMES"]


def test_the_librarys_time_follows_from_its_ratio_to_the_winner():
    peers = (PeerTime("torch-flash", 0.5, 0.5, 0.5), PeerTime("torch-default", 0.8, 0.8, 0.8))
    assert library_us("attention", 4.0, peers) == pytest.approx(5.0)
    assert library_us("attention", 4.0, peers[:1]) is None
    assert library_us("softmax", 4.0, peers) is None


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
            "peer": "torch-flash",
            "version": "torch 2.11",
            "workload": "mission",
            "outcome": "timed",
            "why": "",
            "seed": seed,
            "mode": "hot",
            "times": times,
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
    peers = peers_of(
        "wmma",
        [
            _timed(8, 10),
            _timed(8, 10, workload="long"),
            _timed(
                8, 10, peer="flashinfer", outcome="unavailable", why="not installed", times=None
            ),
        ],
    )
    assert [(peer.workload, peer.name, peer.outcome) for peer in peers] == [
        ("mission", "torch-flash", "timed"),
        ("long", "torch-flash", "timed"),
        ("mission", "flashinfer", "unavailable"),
    ]


# Stands in for CuPy and PyTorch: every name is there, and every call answers.
STAND_IN = """
import sys
from unittest.mock import MagicMock
module = MagicMock()
for name in ("{name}", "{name}.cuda"):
    sys.modules[name] = module
"""
OFFERS = """
import json, sys
NAMES = ("a", "b")
with open({file!r}, "w") as file:
    json.dump({{"path": sys.path, "prefix": sys.prefix}}, file)

def offer(name, dims, options, scalars):
    import json
    import numpy, greenfast.search
    with open({file!r}, "w") as file:
        json.dump({{"path": sys.path, "prefix": sys.prefix, "greenfast": greenfast.__path__[0],
                   "modules": sorted(sys.modules)}}, file)
    raise ValueError("another mask")
"""


@pytest.fixture(scope="module")
def other_python(tmp_path_factory) -> Path:
    """Another environment, with nothing installed."""
    folder = tmp_path_factory.mktemp("other-python")
    venv.create(folder, symlinks=True, with_pip=False)
    return folder / "bin" / "python"


def _site_packages(interpreter: Path) -> Path:
    return next(interpreter.parents[1].glob("lib/python*/site-packages"))


def _lend(interpreter: Path, distribution: str) -> None:
    """Link one of our distributions into another environment: its files, and nothing beside."""
    files = importlib.metadata.files(distribution) or ()
    for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
        link = _site_packages(interpreter) / top
        if not link.exists():
            link.symlink_to(importlib.metadata.distribution(distribution).locate_file(top))


def _child_rows(folder, offers_file, interpreter) -> list[dict]:
    request, replies = _request(folder, offers_file, str(interpreter))
    assert run_child(str(interpreter), request, replies) == ""
    return read_replies(replies.read_text().splitlines()).rows


def _offers(folder: Path) -> tuple[Path, Path]:
    """A peers.py, and the file to which it writes what its Python sees."""
    offers_file, seen = folder / "peers.py", folder / "seen.json"
    offers_file.write_text(OFFERS.format(file=str(seen)))
    return offers_file, seen


def test_a_python_without_any_package_reports_the_missing_one_and_sees_nothing_of_ours(
    tmp_path, other_python, monkeypatch
):
    ours = [path for path in sys.path if path.endswith("-packages")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(ours))  # as a launcher of greenfast might
    offers_file, seen = _offers(tmp_path)
    rows = _child_rows(tmp_path, offers_file, other_python)
    assert [(row["peer"], row["outcome"]) for row in rows] == [
        ("a", "unavailable"),
        ("b", "unavailable"),
    ]
    assert {row["why"] for row in rows} == {f"cupy is not installed for {other_python}"}
    python = json.loads(seen.read_text())
    assert Path(python["prefix"]) == other_python.parents[1]
    assert not {path for path in python["path"] if path in ours or "greenfast" in path}
    assert str(Path(run_child.__code__.co_filename).parent) not in python["path"]


def test_a_python_with_the_named_packages_alone_runs_every_peer(tmp_path, other_python):
    for distribution in ("numpy", "ml-dtypes", "jinja2", "markupsafe"):  # torch requires Jinja2
        _lend(other_python, distribution)
    for name in ("cupy", "torch"):
        (_site_packages(other_python) / f"{name}.py").write_text(STAND_IN.format(name=name))
    offers_file, seen = _offers(tmp_path)
    rows = _child_rows(tmp_path, offers_file, other_python)
    assert [(row["peer"], row["outcome"], row["why"]) for row in rows] == [
        ("a", "not_comparable", "another mask"),
        ("b", "not_comparable", "another mask"),
    ]
    python = json.loads(seen.read_text())
    assert "greenfast.search.peers.duel" in python["modules"] and "optuna" not in python["modules"]
    assert [path for path in python["path"] if path.endswith("-packages")] == [
        str(_site_packages(other_python))
    ]


def _older_pythons() -> list[Path]:
    folders = [*map(Path, os.environ.get("PATH", "").split(os.pathsep))]
    folders += Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin")
    paths = [folder / f"python3.{minor}" for minor in (8, 9, 10) for folder in folders]
    return [path for path in paths if _works(path)]


def _works(interpreter: Path) -> bool:
    if not interpreter.is_file():
        return False
    ended = subprocess.run([interpreter, "-c", ""], capture_output=True, timeout=20, check=False)
    return ended.returncode == 0


@pytest.mark.slow
def test_a_python_that_is_too_old_is_reported_with_both_versions(tmp_path):
    older = _older_pythons()
    if not older:
        pytest.skip("NO PYTHON BEFORE 3.11 IS HERE")
    for interpreter in {path.name: path for path in older}.values():
        folder = tmp_path / interpreter.name
        folder.mkdir()
        rows = _child_rows(folder, _offers(folder)[0], interpreter)
        version = interpreter.name.removeprefix("python")
        assert [(row["peer"], row["outcome"], row["why"]) for row in rows] == [
            (
                peer,
                "unavailable",
                f"{interpreter} is Python {version}, and greenfast needs 3.11 or newer",
            )
            for peer in ("a", "b")
        ]
