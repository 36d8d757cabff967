"""Tensor maps on a GPU: encoded by the target, by run_cupy.py and by host.cu."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from greenfast.app.bundle import download
from greenfast.app.bundle.launch_header import launch_header
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.verdict import Passed
from tests.unit.rows_kernel import write_rows

FILES = Path(download.__file__).parent / "files"


@pytest.fixture(scope="module")
def catalogue_of_rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("templates"), boxes=True)


def subject_on(gpu, toolchain, catalogue, **parameters):
    if gpu.device.sm != 90:
        pytest.skip("the template is compiled for sm_90a")
    kernel = catalogue.kernel("rows")
    template, workload = kernel.template("boxes"), kernel.workload("small")
    context = EvaluationContext(
        kernel,
        workload.compile_time(kernel),
        (workload,),
        gpu,
        toolchain,
        catalogue.include_dirs,
        GateLimits(max_spill_bytes=None),
        1,
    )
    values = {each.name: each.default for each in template.parameters} | parameters
    candidate = Candidate("rows", "boxes", tuple(values.items()), Origin(OriginKind.SEEDED))
    return prepare(candidate, context)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("tile", [32, 128])
def test_a_tile_comes_through_its_swizzle(gpu, toolchain, catalogue_of_rows, swizzle, tile):
    subject = subject_on(gpu, toolchain, catalogue_of_rows, swizzle=swizzle, tile=tile)
    result = CorrectnessGate().judge(subject)
    assert isinstance(result, Passed), result.sentence


def bundled(folder: Path, subject) -> dict:
    """The files of a bundle that run the kernel."""
    workload = download.workload_description(
        subject.kernel,
        subject.template,
        subject.kernel.workload("small"),
        dict(subject.candidate.parameters),
        subject.target.device,
    )
    launch = {"arch": "sm_90a", "workloads": [workload]}
    (folder / "kernel.cu").write_text(subject.source.text)
    (folder / "kernel.sm_90a.cubin").write_bytes(subject.machine_code.code)
    (folder / "launch.json").write_text(json.dumps(launch))
    (folder / "launch.h").write_text(launch_header(launch))
    (folder / "reference.py").write_text(subject.kernel.reference_text)
    shutil.copy(FILES / "run_cupy.py.txt", folder / "run_cupy.py")
    shutil.copy(FILES / "host.cu", folder / "host.cu")
    return workload


def test_the_bundles_examples_encode_the_maps(gpu, toolchain, catalogue_of_rows, tmp_path):
    bundled(tmp_path, subject_on(gpu, toolchain, catalogue_of_rows))
    done = subprocess.run(
        [sys.executable, "run_cupy.py", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 and "100.00% within" in done.stdout, done.stdout + done.stderr
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not on the PATH")
    build = [nvcc, "-std=c++17", "-o", "host", "host.cu", "-lcuda"]
    subprocess.run(build, cwd=tmp_path, check=True, timeout=300)
    done = subprocess.run(
        ["./host"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and "0 elements are NaN" in done.stdout, done.stdout + done.stderr
