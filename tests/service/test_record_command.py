"""`greenfast record` without a GPU, and searches on a recording through command and database."""

from __future__ import annotations

import pytest
from drawn_gpu import DrawnGpu
from service_home import Ended

from greenfast.app.cli.main import run
from greenfast.search.loop.sweep import Sweep, SweepOrder
from greenfast.search.recordings.file import SUFFIX
from greenfast.search.recordings.lattice import lattice_of


@pytest.fixture(scope="module")
def shelf(album, toolchain, tmp_path_factory):
    """A folder with one recording of axpy, and a damaged one."""
    folder = tmp_path_factory.mktemp("recordings")
    kernel = album.kernel("axpy")
    order = SweepOrder(
        "axpy-small",
        kernel,
        (kernel.workload("odd"),),
        "right",
        lattice_of(kernel.template("right"), ["threads=all", "per_thread=all"]),
        "right:plain",
    )
    Sweep(order, DrawnGpu(), toolchain, album.include_dirs, "test").run(
        folder / f"axpy-small{SUFFIX}", 2
    )
    whole = (folder / f"axpy-small{SUFFIX}").read_bytes()
    (folder / f"axpy-damaged{SUFFIX}").write_bytes(whole[:-100])
    return folder


def test_a_search_on_a_recording_ends_with_a_replayed_best(home, shelf):
    done = home.run(
        "search",
        "axpy",
        "--target",
        "replay:axpy-small",
        "--strategy",
        "random",
        "--seed",
        "1",
        "--json",
        GREENFAST_RECORDINGS=str(shelf),
    )
    assert done.code == 0, done.err
    report = done.json
    assert (
        report["status"] == "completed"
        and report["trials_done"] == 11
        and report["target"] == "replay:axpy-small"
    )
    assert report["best"]["time_kind"] == "replayed" and report["best"]["verdict"] == "green"
    trial = home.run(
        "trial",
        "axpy",
        "--template",
        "right",
        "--preset",
        "plain",
        "--target",
        "replay:axpy-small",
        "--json",
        GREENFAST_RECORDINGS=str(shelf),
    ).json
    assert trial["time_kind"] == "replayed" and trial["verdict"] == "green"
    bundle = home.run(
        "bundle", report["id"], "-o", str(home.data / "best.zip"), GREENFAST_RECORDINGS=str(shelf)
    )
    assert bundle.code == 0, bundle.err


def test_targets_list_recordings_and_say_which_cannot_be_read(home, shelf):
    listed = {
        target["name"]: target
        for target in home.run("targets", "--json", GREENFAST_RECORDINGS=str(shelf)).json
    }
    assert (
        listed["replay:axpy-small"]["time_kind"] == "replayed"
        and listed["replay:axpy-small"]["available"]
    )
    assert listed["replay:axpy-small"]["title"].startswith("11 candidates of axpy right on odd")
    shown = home.run("recording", "axpy-small", "--json", GREENFAST_RECORDINGS=str(shelf)).json
    assert (
        shown["space"] == {"threads": [32, 64, 128, 256], "per_thread": [1, 2, 4]}
        and shown["environment"]["gpu"]
    )
    assert shown["candidates"] == 11 == 1 + sum(shown["verdicts"].values())
    assert shown["fastest"][0]["time_kind"] == "replayed"
    assert shown["fastest"][0]["time_modes"] == ["hot"]
    assert (
        "replayed"
        in home.run("recording", "replay:axpy-small", GREENFAST_RECORDINGS=str(shelf)).out
    )
    refused = home.run(
        "search", "axpy", "--target", "replay:axpy-damaged", GREENFAST_RECORDINGS=str(shelf)
    )
    assert refused.code == 2 and "is damaged" in refused.err and refused.err.count("\n") == 1


def test_the_data_folder_is_looked_into(home, shelf):
    (home.data / "recordings").mkdir()
    (home.data / "recordings" / f"mine{SUFFIX}").write_bytes(
        (shelf / f"axpy-small{SUFFIX}").read_bytes()
    )
    assert "replay:mine" in [target["name"] for target in home.run("targets", "--json").json]


def test_record_counts_without_a_gpu_and_refuses_what_measures_nothing(here, capsys):
    arguments = (
        "record",
        "axpy",
        "--template",
        "right",
        "--set",
        "threads=all",
        "-o",
        str(here.data / f"x{SUFFIX}"),
    )
    counted = here.run(*arguments, "--dry-run", "--target", "emulator:h200", "--json")
    assert (counted.code, counted.json) == (0, {"candidates": 4})
    for more, words in (
        (("--target", "emulator:h200"), "nothing to record"),
        (("--set", "warps=2"), "unknown parameter"),
        (("--finish",), "is not a journal of a sweep"),
        (("--target", "replay:none"), "unknown target"),
    ):
        refused = Ended(run([*arguments, *more]), *capsys.readouterr())
        assert refused.code == 2 and words in refused.err and refused.err.count("\n") == 1, (
            refused.err
        )
    assert not (here.data / f"x{SUFFIX}").exists()
