"""A bundle carries the modules that its reference.py imports; damaged files have one sentence."""

from __future__ import annotations

import hashlib
import json
import zipfile

import pytest

from greenfast.app.bundle.opened import OpenedBundle, kernel_of, open_bundle
from greenfast.app.cli.new import kernel_files_of
from greenfast.runtime.loaded import load
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.reference_text import SHIPPED_MODULES

LAUNCH = {
    "schema": 1,
    "kernel": "vecsum",
    "template": "block",
    "parameters": {},
    "workloads": [{"name": "small", "dims": {"M": 4, "N": 8}, "options": {"dtype": "float32"}}],
    "launches": [],
    "sm_count": 132,
}


@pytest.fixture
def files():
    own = kernel_files_of("vecsum")
    kernel = own["kernel.toml"].replace(
        'reference_uses = ["', 'reference_uses = ["my_operations:twice", "'
    )
    source = b"// nothing"
    launch = {**LAUNCH, "source_digest": hashlib.sha256(source).hexdigest()}
    return {
        "kernel.toml": kernel.encode(),
        "reference.py": own["reference.py"].encode(),
        "my_operations.py": b"def twice(x):\n    return x + x\n",
        "greenfast_bounds.py": (SHIPPED_MODULES / "greenfast_bounds.py").read_bytes(),
        "run_cupy.py": b"raise SystemExit\n",
        "template.toml": own["block.toml"].encode(),
        "template.cu.j2": own["block.cu.j2"].encode(),
        "kernel.cu": source,
        "launch.h": b"",
        "README.txt": b"",
        "launch.json": json.dumps(launch).encode(),
        "evidence.json": b"{}",
        "environment.json": b"{}",
    }


def _zipped(path, files):
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())
    with zipfile.ZipFile(path, "w") as packed:
        for name, data in {**files, "SHA256SUMS": sums.encode()}.items():
            packed.writestr(name, data)
    return path


def test_a_module_of_the_author_is_written_and_judged_like_the_reference(files, tmp_path):
    """It was left out: the bundle could be verified on its author's machine only."""
    bundle = OpenedBundle(files, json.loads(files["launch.json"]), None, {}, {})
    modules = {"reference.py", "my_operations.py", "greenfast_bounds.py"}
    assert set(bundle.reference_files) == modules
    kernel = kernel_of(bundle, tmp_path)
    assert dict(kernel.reference_uses)["my_operations:twice"] == files["my_operations.py"].decode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("launch.json", b"[" * 200_000),
        ("evidence.json", b'{"a":' * 200_000),
        ("kernel.toml", b'title = "\xe8"'),
    ],
)
def test_a_damaged_file_is_a_bad_bundle(files, tmp_path, name, content):
    path = _zipped(tmp_path / "b.zip", {**files, name: content})
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError) as error:
        kernel_of(open_bundle(path), tmp_path / "out")
    assert error.value.code == "bad_bundle" and name in error.value.message


def test_an_infinite_number_is_a_bad_bundle(files, tmp_path):
    launch = {**json.loads(files["launch.json"]), "sm_count": float("inf")}
    changed = {**files, "launch.json": json.dumps(launch).encode()}
    with pytest.raises(GreenfastError) as error:
        load(str(_zipped(tmp_path / "b.zip", changed)), device="emulator")
    assert error.value.code == "bad_bundle"
