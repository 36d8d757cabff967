"""A kernel other than attention: searched, listed, bundled and verified."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

import greenfast

# The same ways with axpy and attention run by default.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def searched(service):
    """A completed search over both templates; some presets exceed the register limit."""
    row = service.submit(
        "rmsnorm",
        workloads=["one_row"],
        budget={"trials": 7},
        strategy="random",
        seed=4,
        gates={"ptxas": {"max_registers": 70}},
    )
    return service.wait(row["id"], deadline_s=600)


def test_both_templates_come_through_and_nothing_is_ours_to_blame(service, searched):
    trials = service._get(f"/api/v1/searches/{searched['id']}/trials").json()["items"]
    assert searched["status"] == "completed" and {trial["template"] for trial in trials} == {
        "row",
        "split",
    }
    assert {trial["verdict"] for trial in trials} <= {"green", "rejected"}
    assert {trial["stage"] for trial in trials if trial["verdict"] == "rejected"} == {"ptxas"}


def test_its_negatives_say_what_changed_and_the_figures(service, searched):
    negatives = service._get(f"/api/v1/negatives?search_id={searched['id']}").json()["items"]
    assert negatives and all(
        negative["kernel"] == "rmsnorm" and negative["workloads"] == ["one_row"]
        for negative in negatives
    )
    for negative in negatives:
        assert negative["changed"] and negative["sentence"].startswith(negative["changed"]), (
            negative["sentence"]
        )
        assert "registers a thread; the request allows 70" in negative["sentence"], negative[
            "sentence"
        ]


def test_its_bundle_agrees_on_new_seeds(service, searched, home):
    content = service._get(f"/api/v1/searches/{searched['id']}/bundle").content
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        texts = {name: packed.read(name).decode(errors="replace") for name in packed.namelist()}
    assert not [
        name for name, text in texts.items() if "attention" in text.lower() or "tile_q" in text
    ]
    home.data.mkdir(exist_ok=True)
    (home.data / "bundle.zip").write_bytes(content)
    ended = home.run("verify", "bundle.zip", "--target", "emulator:h200", "--json")
    assert ended.code == 0 and ended.json["finding"] == "agrees", ended.out + ended.err


def test_its_bundle_is_loaded_and_called(service, searched, artifacts, tmp_path, monkeypatch):
    (tmp_path / "emulator").symlink_to(artifacts, target_is_directory=True)
    monkeypatch.setenv("GREENFAST_RUNTIME_CACHE", str(tmp_path))
    content = service._get(f"/api/v1/searches/{searched['id']}/bundle").content
    (tmp_path / "bundle.zip").write_bytes(content)
    kernels = greenfast.load(tmp_path / "bundle.zip", device="emulator")
    x, residual = np.random.default_rng(1).standard_normal((2, 3, 520)).astype(np.float16)
    h, y = kernels(x, residual, np.full(520, 2, np.float16), eps=0.5)
    exact = x.astype(np.float64) + residual
    assert np.abs(h - exact).max() < 4e-3
    scale = np.sqrt((exact**2).mean(-1, keepdims=True) + 0.5)
    assert np.abs(y - 2 * exact / scale).max() < 1e-2


def test_its_page_says_what_may_vary_and_nothing_of_attention(service):
    page = service._get("/kernels/rmsnorm").text
    assert "rows_per_block" in page and "supports ." not in page and "S_kv" not in page
