"""Exported trials are spaces that `import-space` reads back: the same times, the same failures."""

from __future__ import annotations

import json
from types import SimpleNamespace

import optuna
import pytest

from greenfast.app.cli.export import _studies
from greenfast.app.cli.export_originals import Originals
from greenfast.app.cli.export_space import cache_document
from greenfast.app.cli.export_space import t4_document as t4_of
from greenfast.app.cli.main import run
from greenfast.search.errors import UsageError
from greenfast.search.recordings.foreign import read_space


def trial(number, verdict, time_us=None, stage=None, reason=None, **parameters):
    return SimpleNamespace(
        number=number,
        template="right",
        verdict=verdict,
        stage=stage,
        reason=reason,
        time_median_us=time_us,
        parameters=parameters,
        recorded_at=None,
    )


ROWS = [
    trial(0, "green", 12.5, tile=16, layout="row"),
    trial(1, "rejected", 25.0, "performance", "slower", tile=32, layout="row"),
    trial(2, "rejected", None, "compile", "compile_error", tile=64, layout="row"),
    trial(3, "rejected", None, "correctness", "wrong_values", tile=16, layout="column"),
    trial(4, "rejected", None, "correctness", "launch_error", tile=32, layout="column"),
    trial(5, "faulted", None, "compile", None, tile=64, layout="column"),
    trial(6, None, None, tile=128, layout="column"),
]


def t4_document(rows):
    return t4_of(rows, kernel="axpy", device="NVIDIA H200")


def _cache(rows):
    return cache_document(rows, "axpy", "emulator:h200")


def test_a_recording_is_exported_and_read_back(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path))
    path, target = tmp_path / "space.json", "replay:m512-gemm-wgmma-h200"
    for form in ("t4", "kernel-tuner"):
        assert run(["export", target, "--format", form, "-o", str(path)]) == 0
        space = read_space(path)
        assert len(space.results) == 174 and len(space.parameters) == 14
        assert sum(result.figure is not None for result in space.results) > 100
    assert run(["export", target]) == 2
    error = capsys.readouterr().err
    assert "cannot be exported as json (give --format t4" in error
    assert "--strategy exhaustive" in error


@pytest.mark.slow
def test_an_imported_space_is_exported_with_the_names_values_and_times_of_its_file(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path / "data"))
    names = ("MWG", "Tile Size", "SA", "layout", "text", "mixed")
    points = [
        dict(zip(names, (size, tile, shared, layout, text, mixed), strict=True))
        for size in (16, 32)
        for tile in (0.5, 2, 1.0)
        for shared in (True, False)
        for layout in ("row", "1", "column")
        for text, mixed in (("1", 1), ("2", "auto"))
    ]
    entries = {
        ",".join(map(str, point.values())): {**point, "time": 1.234567890123 + number / 7}
        for number, point in enumerate(points)
    }
    path = tmp_path / "named.json"
    path.write_text(json.dumps({"tune_params_keys": names, "cache": entries}))
    assert run(["import-space", str(path)]) == 0
    search = ["search", "named", "--target", "replay:named", "--strategy", "exhaustive"]
    assert run([*search, "--trials", str(len(points))]) == 0
    for exported in ("replay:named", "last"):
        assert run(["export", exported, "--format", "kernel-tuner", "-o", str(path)]) == 0
        document = json.loads(path.read_text())
        assert document["tune_params_keys"] == list(names)
        assert document["cache"].keys() == entries.keys()
        for key, entry in entries.items():
            there = document["cache"][key]
            assert [repr(there[name]) for name in names] == [repr(entry[name]) for name in names]
            assert there["time"] == pytest.approx(entry["time"], rel=1e-14)


def test_both_formats_are_read_back(tmp_path):
    path = tmp_path / "space.json"
    for document, failures in (
        (t4_document(ROWS), ["", "", "compile", "correctness", "runtime"]),
        (
            cache_document(ROWS, "axpy", "emulator:h200"),
            ["", "", "CompilationFailedConfig", *["RuntimeFailedConfig"] * 2],
        ),
    ):
        path.write_text(json.dumps(document))
        space = read_space(path)
        figures = [result.figure for result in space.results]
        assert figures == [pytest.approx(12.5), pytest.approx(25.0), None, None, None]
        assert [result.failure for result in space.results] == failures
        assert space.parameters == ("tile", "layout") and space.device


def test_a_candidate_over_a_limit_of_the_device_stays_apart_from_failed_compilations():
    over = trial(7, "rejected", None, "compile", "over_device_limit", tile=64, layout="column")
    assert t4_document([*ROWS, over])["results"][-1]["invalidity"] == "constraints"
    assert list(_cache([*ROWS, over])["cache"].values())[-1]["time"] == "InvalidConfig"


def test_several_templates_make_one_space(tmp_path):
    other = trial(7, "green", 3.0, warps=4)
    other.template = "other"
    path = tmp_path / "space.json"
    path.write_text(json.dumps(t4_document([*ROWS, other])))
    space = read_space(path)
    assert space.parameters == ("template", "tile", "layout", "warps")
    assert space.results[-1].configuration == ("other", "-", "-", 4)


@pytest.mark.parametrize("document_of", [t4_document, _cache])
def test_a_time_below_the_physical_bound_is_none(document_of, tmp_path):
    """It would be the best of the exported space."""
    wrong = trial(7, "rejected", 0.001, "performance", "implausible", tile=64, layout="column")
    path = tmp_path / "space.json"
    path.write_text(json.dumps(document_of([*ROWS, wrong])))
    results = read_space(path).results
    assert results[-1].figure is None and min(each.figure for each in results[:2]) > 12


def test_an_optuna_storage_has_the_time_of_every_correct_trial(tmp_path):
    """What a tool reads from it: states, values, parameters, and which is the best."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    wrong = trial(7, "rejected", 0.001, "performance", "implausible", tile=64, layout="column")
    for row in (rows := [*ROWS, wrong]):
        row.finding, row.ratio_to_baseline, row.time_kind, row.source_digest = "", None, None, None
    assert _studies(url, "s_1", rows, Originals()) == {"s_1/right": 6}
    study = optuna.load_study(study_name="s_1/right", storage=url)
    assert study.direction is optuna.study.StudyDirection.MINIMIZE
    states = {each.state.name for each in study.trials[:2]}
    assert states == {"COMPLETE"} and {each.state.name for each in study.trials[2:]} == {"FAIL"}
    assert [each.value for each in study.trials[:2]] == [12.5, 25.0]
    assert study.best_params == {"tile": 16, "layout": "row"}
    assert [each.user_attrs["greenfast:number"] for each in study.trials] == [0, 1, 2, 3, 4, 7]
    _studies(url, "s_2", rows, lambda point: {"TILE": point["tile"] / 2})  # of an imported space
    assert optuna.load_study(study_name="s_2/right", storage=url).best_params == {"TILE": 8.0}


def test_a_search_without_trials_is_refused():
    with pytest.raises(UsageError) as error:
        t4_document(ROWS[5:])
    assert error.value.code == "nothing_to_export"
