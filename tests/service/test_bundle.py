"""Bundles: the same bytes each time, and sources that compile with CUDA's headers alone."""

from __future__ import annotations

import hashlib
import io
import json
import py_compile
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from service_home import axpy

import greenfast

FILES = {
    "README.txt",
    "SHA256SUMS",
    "baseline.cu",
    "baseline_launch.json",
    "baseline_template.cu.j2",
    "baseline_template.toml",
    "environment.json",
    "evidence.json",
    "host.cu",
    "kernel.sm_90.cubin",
    "kernel.cu",
    "kernel.toml",
    "launch.h",
    "launch.json",
    "reference.py",
    "run_cupy.py",
    "template.cu.j2",
    "template.toml",
}


@pytest.fixture(scope="module")
def search(service):
    hostile = "../../../etc/passwd <script> \u202e"
    row = service.submit(**axpy(name=hostile[:-1], workloads=["line", "odd"]))
    return service.wait(row["id"], deadline_s=600)


@pytest.fixture(scope="module")
def attention(service):
    row = service.submit(
        "attention", workloads=["small"], templates=["wmma"], budget={"trials": 2}, seed=1
    )
    return service.wait(row["id"], deadline_s=600)


@pytest.fixture
def folder(service, attention, tmp_path):
    """The attention bundle of trial 1, unpacked."""
    with zipfile.ZipFile(io.BytesIO(download(service, attention, "?trial=1"))) as packed:
        packed.extractall(tmp_path)
    return tmp_path


def download(service, search, query=""):
    return service._get(f"/api/v1/searches/{search['id']}/bundle{query}").content


@pytest.mark.slow
def test_it_is_the_same_bytes_over_rest_and_from_the_command(service, search):
    once = download(service, search, "?trial=1")
    assert once == download(service, search, "?trial=1")
    ended = service.home.run("bundle", search["id"], "--trial", "1", "-o", "mine.zip", "--json")
    assert ended.code == 0 and (service.home.data / "mine.zip").read_bytes() == once
    assert (
        ended.json["sha256"] == hashlib.sha256(once).hexdigest()
        and set(ended.json["files"]) == FILES
    )


def test_its_names_are_ours_and_its_sums_are_right(service, search):
    with zipfile.ZipFile(io.BytesIO(download(service, search, "?trial=1"))) as packed:
        contents = {name: packed.read(name) for name in packed.namelist()}
    assert set(contents) == FILES
    sums = dict(reversed(line.split("  ")) for line in contents["SHA256SUMS"].decode().splitlines())
    assert sums == {
        name: hashlib.sha256(data).hexdigest()
        for name, data in contents.items()
        if name != "SHA256SUMS"
    }
    evidence = json.loads(contents["evidence.json"])
    assert evidence["candidate"]["source_digest"] == sums["kernel.cu"]
    assert evidence["candidate"]["gates"]["correctness"]["checks"]
    recorded = json.loads(contents["environment.json"])["recorded"]
    assert (
        "nvidia-cuda-nvrtc" in recorded
        and recorded["arch"] == json.loads(contents["launch.json"])["arch"] == "sm_90"
    )


def test_it_is_loaded_and_called(service, search, artifacts, tmp_path, monkeypatch):
    (tmp_path / "emulator").symlink_to(artifacts, target_is_directory=True)
    monkeypatch.setenv("GREENFAST_RUNTIME_CACHE", str(tmp_path))
    (tmp_path / "bundle.zip").write_bytes(download(service, search, "?trial=1"))
    kernels = greenfast.load(tmp_path / "bundle.zip", device="emulator")
    x = np.random.default_rng(1).standard_normal(96).astype(np.float16)
    y = kernels(x)
    assert np.abs(y - (2.5 * x.astype(np.float64) - 0.75)).max() < 1e-2


def test_the_file_name_holds_nothing_that_a_user_wrote(service, search):
    answer = service._get(f"/api/v1/searches/{search['id']}/bundle")
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"].startswith(
        f'attachment; filename="greenfast-{search["id"]}-'
    )


@pytest.mark.slow
def test_a_candidate_that_is_not_right_is_not_bundled(service):
    row = service.submit(
        **axpy(templates=["broken"], workloads=["odd"], strategy="random", budget={"trials": 6})
    )
    service.wait(row["id"], deadline_s=600)
    wrong = service.trials(row["id"], verdict="rejected")[0]["number"]
    ended = service.home.run("bundle", row["id"], "--trial", str(wrong), "--json")
    assert ended.code == 2 and ended.json["error"]["code"] == "not_right"


def test_launch_json_describes_what_the_reference_takes_and_gives(folder):
    description = json.loads((folder / "launch.json").read_text())
    workload = description["workloads"][0]
    arguments = {argument["name"]: argument for argument in workload["arguments"]}
    sys.path.insert(0, str(folder))
    try:
        import reference

        inputs = reference.make_inputs(
            workload["dims"], workload["options"], "normal", 1, workload["tiles"]
        )
        expected = reference.reference(workload["dims"], workload["options"], inputs)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("reference", None)
    for name, value in {
        **inputs,
        **{name: item["value"] for name, item in expected.items()},
    }.items():
        assert list(value.shape) == arguments[name]["shape"]
    assert arguments["scale"]["value"] == pytest.approx(workload["dims"]["D"] ** -0.5)
    assert arguments["q_row_stride"]["value"] == workload["dims"]["D"]
    assert (
        np.prod(workload["launches"][0]["block"]) % 32 == 0
        and workload["launches"][0]["smem_dynamic_bytes"] > 0
    )


def test_the_python_example_is_valid_python(folder):
    py_compile.compile(str(folder / "run_cupy.py"), cfile=str(folder / "compiled"), doraise=True)


def test_the_kernel_compiles_with_nvrtc_given_only_cudas_headers(folder):
    from cuda.core import Program, ProgramOptions

    from greenfast.search.toolchain import Toolchain

    include = list(Toolchain(folder / "cache", 1).include_dirs)
    for name in ("kernel.cu", "baseline.cu"):
        options = ProgramOptions(arch="sm_90", std="c++17", include_path=include)
        assert Program((folder / name).read_text(), "c++", options).compile("cubin").code


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="NVCC IS NOT INSTALLED: the C++ example was not compiled"
)
def test_the_cpp_example_compiles_with_nvcc_given_only_cudas_headers(folder):
    done = subprocess.run(
        ["nvcc", "-std=c++17", "-Werror", "all-warnings", "-c", "-o", "host.o", "host.cu"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
