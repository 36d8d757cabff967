"""Other people's programs read what `greenfast export` writes: Kernel Tuner and optuna-dashboard.

Neither is a dependency: `pip install kernel-tuner optuna-dashboard` lets these tests run.
"""

from __future__ import annotations

import io
import json
from importlib.resources import files

import pytest
from test_export_space import ROWS

from greenfast.app.cli.export_space import cache_document
from greenfast.app.cli.export_space import t4_document as t4_of
from greenfast.search.strategies.optuna_export import ExportedTrial, export_study

pytestmark = pytest.mark.slow


def test_kernel_tuner_simulates_an_exported_cache(tmp_path, monkeypatch):
    interface = pytest.importorskip(
        "kernel_tuner.interface", reason="Kernel Tuner is not installed: pip install kernel-tuner"
    )
    constraint = pytest.importorskip("constraint")
    document = cache_document(ROWS, "axpy", "emulator:h200")
    path = tmp_path / "cache.json"
    path.write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)

    def is_cached(*values):
        return ",".join(map(str, values)) in document["cache"]

    results, _ = interface.tune_kernel(
        "axpy",
        "",
        document["problem_size"],
        [],
        document["tune_params"],
        restrictions=[constraint.FunctionConstraint(is_cached)],
        strategy="brute_force",
        cache=str(path),
        simulation_mode=True,
        lang="CUDA",
        quiet=True,
    )
    times = {
        (each["tile"], each["layout"]): each["time"] for each in results if "__error__" not in each
    }
    assert times == {
        (16, "row"): pytest.approx(0.0125),
        (32, "row"): pytest.approx(0.025),
    }, "Kernel Tuner's times are ms, and failed configurations have none"


def test_an_exported_t4_file_is_one_by_kernel_tuners_schema():
    pytest.importorskip(
        "kernel_tuner", reason="Kernel Tuner is not installed: pip install kernel-tuner"
    )
    jsonschema = pytest.importorskip("jsonschema")
    schemas = files("kernel_tuner") / "schema" / "T4"
    schema = next(
        version / "results-schema.json"
        for version in sorted(schemas.iterdir(), key=str, reverse=True)
        if version.is_dir()
    )
    jsonschema.validate(
        t4_of(ROWS, kernel="axpy", device="NVIDIA H200"), json.loads(schema.read_text())
    )


def _get(app, path):
    """A GET of a WSGI application: status and text."""
    status = []
    environment = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": path,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
    }
    answer = app(environment, lambda line, *_: status.append(line))
    return status[0], b"".join(answer).decode()


def test_optuna_dashboard_opens_an_exported_storage(tmp_path):
    dashboard = pytest.importorskip(
        "optuna_dashboard", reason="not installed: pip install optuna-dashboard"
    )
    url = f"sqlite:///{tmp_path / 'study.db'}"
    trials = [
        ExportedTrial(0, {"tile": 16}, 12.5, {"verdict": "green"}),
        ExportedTrial(1, {"tile": 32}, None, {"verdict": "rejected"}),
    ]
    export_study(url, "s_one/right", trials)
    app = dashboard.wsgi(url)
    status, text = _get(app, "/api/studies")
    assert status.startswith("200") and "s_one/right" in text
    number = json.loads(text)["study_summaries"][0]["study_id"]
    status, text = _get(app, f"/api/studies/{number}")
    assert status.startswith("200")
    states = [trial["state"] for trial in json.loads(text)["trials"]]
    assert states == ["Complete", "Fail"]
