"""Spaces of other tuners: read liberally, refused with one sentence, searched as replay targets."""

from __future__ import annotations

import gzip
import json
import math

import pytest
from test_run import ListSink

from greenfast.app.cli.import_space import import_space, own_name
from greenfast.app.cli.main import run
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import Ended, History
from greenfast.search.loop.target_space import target_space
from greenfast.search.recordings.foreign import read_space
from greenfast.search.recordings.foreign_kernel import parameters_of
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Green, Rejected

NAMES = ("MWG", "use shared", "sm_count", "scale", "layout")


def t4_result(configuration, value, invalidity="correct", unit="ms", **more):
    named = {"time": (value, unit), **more}
    return {
        "timestamp": "",
        "configuration": configuration,
        "times": {"compilation": 1.0, "runtimes": []},
        "invalidity": invalidity,
        "correctness": 1,
        "measurements": [
            {"name": name, "value": figure, "unit": of} for name, (figure, of) in named.items()
        ],
        "objectives": ["time"],
    }


def configurations():
    return [
        dict(zip(NAMES, (size, shared, stage, scale, layout), strict=True))
        for size in (16, 32, 64)
        for shared in (False, True)
        for stage in (1, 2)
        for scale in (0.5, 1)
        for layout in ("row", 'c"o{{l}}\n')
    ][:-5]  # a missing part


def t4_space():
    rows = [
        t4_result(each, 1.0 + number, gflops=(1000.0 / (1 + number), "GFLOP/s"))
        for number, each in enumerate(configurations())
    ]
    rows[3] = t4_result(rows[3]["configuration"], "RuntimeFailedConfig", "runtime")
    rows[4] = t4_result(rows[4]["configuration"], 1e-9, "correctness")
    rows[5] = t4_result(rows[5]["configuration"], "InvalidConfig", "constraints")
    return {"schema_version": "1.0.0", "metadata": {"timeunit": "miliseconds"}, "results": rows}


def cache_space(**more):
    entries = {}
    for number, each in enumerate(configurations()):
        time = "CompilationFailedConfig" if number == 2 else 1.0 + number
        entries[",".join(map(str, each.values()))] = {
            **each,
            "time": time,
            "times": [time, time],
            "GFLOP/s": 1000.0 / (1 + number),
        }
    return {
        "device_name": "NVIDIA RTX A4000",
        "kernel_name": "gemm",
        "problem_size": [1, 1],
        "tune_params_keys": list(NAMES),
        "tune_params": {},
        "objective": "time",
        **more,
        "cache": entries,
    }


def written(folder, content, name="gemm_A4000_T4.json.gz"):
    text = content if isinstance(content, str) else json.dumps(content)
    data = text.encode()
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("GREENFAST_TEMPLATE_PATH", raising=False)
    return tmp_path


def test_a_t4_file_is_read_with_failures_and_units(tmp_path):
    space = read_space(written(tmp_path, t4_space()))
    assert space.parameters == NAMES and len(space.results) == len(configurations())
    assert space.results[0].figure == pytest.approx(1000.0)  # milliseconds as microseconds
    assert [result.failure for result in space.results[3:6]] == [
        "runtime",
        "correctness",
        "constraints",
    ]
    assert all(result.figure is None for result in space.results[3:6])


@pytest.mark.parametrize(
    ("unit", "microseconds"),
    [("msec", 1e3), ("\N{MICRO SIGN}s", 1.0), ("\N{GREEK SMALL LETTER MU}s", 1.0), ("nsec", 1e-3)],
)
def test_units_have_several_spellings(unit, microseconds, tmp_path):
    results = [t4_result(point, 2.0, unit=unit) for point in configurations()]
    space = read_space(written(tmp_path, {**t4_space(), "results": results}))
    assert space.results[0].figure == pytest.approx(2.0 * microseconds)


def test_a_cache_is_read_also_when_an_interrupted_run_left_it_open(tmp_path):
    text = json.dumps(cache_space(), indent=0)
    closed = read_space(written(tmp_path, text, "gemm.json"))
    cut = text.removesuffix("}").rstrip().removesuffix("}").rstrip() + ","
    opened = read_space(written(tmp_path, cut, "open.json"))
    assert closed.results == opened.results and closed.device == "NVIDIA RTX A4000"
    assert opened.form == f"unfinished {closed.form}"
    assert closed.results[2].failure == "CompilationFailedConfig"


def test_a_rate_is_maximised_and_an_unknown_objective_refused(tmp_path):
    path = written(tmp_path, t4_space())
    rates = read_space(path, "gflops")
    figures = [result.figure for result in rates.results if result.figure is not None]
    assert figures == sorted(figures) and figures[0] == pytest.approx(1e-3)
    with pytest.raises(UsageError, match="measures no watts") as error:
        read_space(path, "watts")
    assert error.value.code == "unknown_objective" and "gflops" in error.value.mend


def test_every_form_of_value_becomes_a_parameter(tmp_path):
    space = read_space(written(tmp_path, t4_space()))
    parameters = parameters_of(space)
    assert [(each.name, each.kind) for each in parameters] == [
        ("mwg", "int"),
        ("use_shared", "bool"),
        ("sm_count_", "int"),
        ("scale", "choice"),
        ("layout", "choice"),
    ]
    assert [here for _, here in parameters[3].values] == ["0.5", "1"]
    for parameter, value in zip(parameters, space.results[7].configuration, strict=True):
        assert parameter.here(value) in [here for _, here in parameter.values]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "space_damaged"),
        (json.dumps(t4_space())[:-100], "space_damaged"),
        (json.dumps(cache_space())[:-100], "space_damaged"),
        ("[1, 2]", "space_damaged"),
        ("[" * 100_000, "space_damaged"),
        ({"points": []}, "not_a_space"),
        ({**t4_space(), "schema_version": "2.0.0"}, "space_version"),
        (cache_space(schema_version="7.1"), "space_version"),
        ({**t4_space(), "results": []}, "space_damaged"),
        ({**t4_space(), "results": [{"times": {}}]}, "space_damaged"),
        ({**cache_space(), "tune_params_keys": ["absent"]}, "space_damaged"),
        ({**cache_space(), "cache": {}}, "space_damaged"),
        (
            {"results": [t4_result({"a": 1}, 1.0), t4_result({"a": 1}, 2.0)]},
            "space_damaged",
        ),
        ({"results": [t4_result({"a": 1}, 1.0), t4_result({"b": 1}, 2.0)]}, "space_damaged"),
        ({"results": [t4_result({"a": 1}, math.nan), t4_result({"a": 2}, -1.0)]}, "space_damaged"),
        ({"results": [t4_result({}, 1.0)]}, "space_damaged"),
        ({"results": [t4_result({"a": 1}, "failed", "compile")]}, "space_damaged"),
    ],
)
def test_a_damaged_or_inconsistent_file_is_refused_with_one_sentence(home, content, code):
    path = written(home, content, "space.json")
    with pytest.raises(UsageError) as error:
        import_space(path)
    assert error.value.code == code and "\n" not in str(error.value)
    assert not (home / "data" / "spaces").exists()


def test_a_truncated_archive_is_refused(home):
    path = written(home, t4_space())
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UsageError) as error:
        import_space(path)
    assert error.value.code == "space_damaged"


def searched(home, strategy, trials, target="replay:gemm_a4000"):
    catalogue = Catalogue.from_environment()
    kernel = catalogue.kernel("gemm_a4000")
    plan = make_plan(
        SearchRequest("gemm_a4000", target=target, strategy=strategy, trials=trials, seed=3),
        catalogue,
    )
    settings = TargetSettings(home / "cache", catalogue.include_dirs, 1)
    context = EvaluationContext(
        kernel,
        (),
        (kernel.workload("recorded"),),
        open_target(plan.target, settings),
        None,
        catalogue.include_dirs,
        plan.limits,
        plan.seed,
    )
    sink = ListSink()
    return SearchRun(plan, context, sink, History()).run(), sink.trials


def test_an_imported_space_is_searched_to_its_end(home):
    assert import_space(written(home, t4_space())) == 0
    result, trials = searched(home, "random", 1000)
    assert result.ended is Ended.COMPLETED and result.why == "every valid candidate was tried"
    assert len(trials) == len(configurations())
    verdicts = [type(trial.verdict) for trial in trials]
    assert verdicts.count(Rejected) == 3 and verdicts.count(Green) == len(trials) - 3


def test_an_imported_space_has_no_seeds_and_runs_nowhere_else(home):
    import_space(written(home, t4_space()))
    kernel = Catalogue.from_environment().kernel("gemm_a4000")
    space = target_space("replay:gemm_a4000", kernel.template("recorded"), ())
    assert space.template.presets == () and len(space.points) == len(configurations())
    with pytest.raises(UsageError, match="no code") as error:
        make_plan(SearchRequest("gemm_a4000"), Catalogue.from_environment())
    assert error.value.code == "no_code"


def test_a_value_that_the_template_of_a_space_lost_is_named(home):
    import_space(written(home, t4_space()))
    path = home / "data" / "spaces" / "gemm_a4000" / "recorded.toml"
    text = path.read_text()
    assert "values = [16, 32, 64]" in text
    path.write_text(text.replace("values = [16, 32, 64]", "values = [16, 64]"))
    template = Catalogue.from_environment().kernel("gemm_a4000").template("recorded")
    with pytest.raises(UsageError, match="32") as error:
        target_space("replay:gemm_a4000", template, ())
    assert error.value.code == "unknown_value"


def test_names_are_not_taken_twice_and_shipped_kernels_stay(home):
    path = written(home, t4_space())
    import_space(path)
    for name in (None, "attention"):
        with pytest.raises(UsageError) as error:
            import_space(path, name=name)
        assert error.value.code == "name_taken"
    with pytest.raises(GreenfastError) as error:
        import_space(path, name="attention", replace=True)
    assert error.value.code == "name_taken"
    assert import_space(path, replace=True) == 0


def test_an_import_that_fails_leaves_the_space_that_it_would_replace(home, monkeypatch):
    path = written(home, t4_space())
    import_space(path)

    def files():
        return {each: each.read_bytes() for each in home.rglob("*") if each.is_file()}

    before = files()
    assert any(each.name == "kernel.toml" for each in before)
    monkeypatch.setattr("greenfast.search.recordings.imported.imported_recording", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        import_space(path, replace=True)
    assert files() == before


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("gemm_A4000_T4.json.gz", "gemm_a4000"),
        ("7-point stencil.json", "space_7_point_stencil"),
        ("A100-cache.json", "a100_cache"),
    ],
)
def test_a_file_gives_its_space_a_name(tmp_path, file, name):
    assert own_name(tmp_path / file, None) == name


def test_a_name_that_leaves_the_folder_is_refused(tmp_path):
    with pytest.raises(UsageError) as error:
        own_name(tmp_path / "x.json", "../x")
    assert error.value.code == "bad_name"


def test_a_rate_is_shown_as_what_it_is(home, capsys):
    path = written(home, cache_space(), "gemm.json")
    assert run(["import-space", str(path), "--objective", "GFLOP/s", "--name", "rates"]) == 0
    said = capsys.readouterr()
    assert "searches show 1 / GFLOP/s in the place of times: lower is better" in said.out + said.err
    assert run(["search", "rates", "--target", "replay:rates", "--trials", "3"]) == 0
    said = capsys.readouterr()
    assert "0.00 us" not in said.out + said.err and "us (replayed" in said.out + said.err
