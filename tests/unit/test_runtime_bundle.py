"""Reading bundles for calls: what is refused, and that nothing of the service is imported."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import time
import zipfile
from dataclasses import replace

import pytest
from runtime_bundles import files_of, sealed, zipped
from slow_cases import quick_first

import greenfast
from greenfast.app.bundle.opened_tuning import is_tuning
from greenfast.runtime.fallbacks import has_fallback
from greenfast.runtime.program import _launch
from greenfast.runtime.read_bundle import kernel_set
from greenfast.runtime.single_bundle import launch_form
from greenfast.search.errors import UsageError

SET = "rmsnorm-h200.zip"
SERVICE = (
    "alembic",
    "cuda",
    "cupy",
    "fastapi",
    "httpx",
    "jinja2",
    "ml_dtypes",
    "numpy",
    "optuna",
    "plotly",
    "pydantic",
    "rich",
    "sqlalchemy",
    "torch",
    "typer",
)


def loaded(tmp_path, files):
    return greenfast.load(zipped(tmp_path / "changed.zip", files))


def refused(tmp_path, files) -> str:
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, files)
    assert caught.value.code == "bad_bundle"
    assert caught.value.message.count("\n") == 0
    return caught.value.message


def test_a_program_that_calls_kernels_keeps_its_environment():
    script = (
        "import os; before = dict(os.environ); import greenfast; greenfast.load; greenfast.explain;"
        "greenfast.attention; greenfast.trace; print(before == dict(os.environ))"
    )
    clean = {name: value for name, value in os.environ.items() if "BLAS" not in name}
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=clean
    )
    assert process.stdout.strip() == "True"


def test_loading_and_explaining_import_no_package_of_the_service():
    script = (
        "import sys, greenfast; from greenfast.runtime.tuned import FOLDER;"
        "greenfast.load(FOLDER / 'attention-h200.zip');"
        "print(greenfast.explain('attention', B=2, H=8, S_q=256, D=64, dtype='bf16'));"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    said, modules = process.stdout.strip().splitlines()
    assert said.startswith("attention: mma 1de68881838b of attention-h200, because")
    assert set(SERVICE) & set(modules.split()) == set()


@pytest.mark.parametrize(
    "name",
    ["dispatch.json", "kernels/k0/kernel.cu", "kernels/k1/kernel.sm_90.cubin", "kernel.toml"],
)
def test_a_changed_file_is_refused_by_its_name(tmp_path, name):
    files = files_of(SET)
    files[name] = files[name] + b" "
    assert name in refused(tmp_path, files)


def test_missing_and_additional_files_are_refused(tmp_path):
    files = files_of(SET)
    assert "extra.txt" in refused(tmp_path, {**files, "extra.txt": b""})
    del files["kernels/k0/kernel.cu"]
    assert "kernels/k0/kernel.cu" in refused(tmp_path, files)


@pytest.mark.parametrize(
    "name",
    [
        "../evil.py",
        "/etc/passwd",
        "kernels/../../evil",
        "a\\b",
        "kernels//k0",
        "a/b/c/d/e",
        ".hidden",
    ],
)
def test_names_that_lead_elsewhere_are_refused(tmp_path, name):
    files = files_of(SET)
    files[name] = b"x"
    assert "holds a file named" in refused(tmp_path, sealed(files))


def test_a_name_that_occurs_twice_is_refused(tmp_path):
    path = zipped(tmp_path / "twice.zip", files_of(SET))
    with zipfile.ZipFile(path, "a") as packed, pytest.warns(UserWarning, match="Duplicate"):
        packed.writestr("dispatch.json", b"{}")
    with pytest.raises(UsageError, match="holds two files named"):
        greenfast.load(path)


def test_names_that_differ_in_case_only_are_refused(tmp_path):
    """On some disks the second one replaces the first, which is the one that was verified."""
    files = files_of(SET)
    files["kernels/k0/Kernel.cu"] = b"// other"
    assert "holds two files named" in refused(tmp_path, sealed(files))


def hidden(data: bytes, place: int) -> bytes:
    """A file with a head, which programs that unpack a stream find, and without an entry."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        packed.writestr("numpy.py", b"import os")
    begin = data.rindex(b"PK\x05\x06")
    first = data.index(b"PK\x01\x02")
    more = buffer.getvalue()[: buffer.getvalue().index(b"PK\x01\x02")]
    end = bytearray(data[begin:])
    struct.pack_into("<I", end, 16, first + len(more))
    entries = bytearray(data[first:begin])
    if place < first:
        at = 0
        while at < len(entries):
            (offset,) = struct.unpack_from("<I", entries, at + 42)
            struct.pack_into("<I", entries, at + 42, offset + len(more))
            at += 46 + sum(struct.unpack_from("<3H", entries, at + 28))
    return data[:place] + more + data[place:first] + bytes(entries) + bytes(end)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: hidden(data, 0), "there are bytes of no file before"),
        (lambda data: hidden(data, data.index(b"PK\x01\x02")), "there are bytes of no file"),
        (lambda data: hidden(data, 0)[:30] + data, "does not end with its directory"),
        (lambda data: data[:-2] + b"\x01\x00x", "does not end with its directory"),
        (lambda data: data[:-14] + b"\x01\x00\x01\x00" + data[-10:], "it states 1 files"),
        (lambda data: data[:18] + b"\x09" + data[19:], "is not as the directory has it"),
    ],
    ids=["before", "behind", "prefix", "comment", "count", "size"],
)
def test_a_zip_file_that_others_unpack_to_other_files_is_refused(tmp_path, change, why):
    data = zipped(tmp_path / "plain.zip", files_of(SET)).read_bytes()
    (tmp_path / "odd.zip").write_bytes(change(data))
    with pytest.raises(UsageError, match=why) as caught:
        greenfast.load(tmp_path / "odd.zip")
    assert caught.value.code == "bad_bundle"


def test_a_zip_file_that_a_stream_was_packed_to_is_read(tmp_path):
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

        def seek(self, *arguments):
            raise io.UnsupportedOperation

        tell = seek

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for name, data in files_of(SET).items():
            packed.writestr(name, data)
    (tmp_path / "streamed.zip").write_bytes(pipe.getvalue())
    assert greenfast.load(tmp_path / "streamed.zip")


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path):
    files = files_of(SET)
    files["kernel.toml"] = b" " * (33 * 2**20)
    assert "too large" in refused(tmp_path, files)


def test_a_directory_of_a_million_files_is_refused_before_python_reads_it(tmp_path):
    entry = b"PK\x01\x02" + struct.pack("<6H3I5H2I", *[0] * 9, 1, *[0] * 6) + b"a"
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 9, 9, 10**6 * len(entry), 0, 0)
    (tmp_path / "many.zip").write_bytes(entry * 10**6 + end)
    begin_s = time.process_time()
    with pytest.raises(UsageError, match="holds 1000000 files"):
        greenfast.load(tmp_path / "many.zip")
    assert time.process_time() - begin_s < 1.0


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_methods_than_deflate_are_refused(tmp_path, method):
    with zipfile.ZipFile(tmp_path / "other.zip", "w", method) as packed:
        for name, data in files_of(SET).items():
            packed.writestr(name, data)
    with pytest.raises(UsageError, match="by another method than deflate"):
        greenfast.load(tmp_path / "other.zip")


@pytest.mark.parametrize("place", ["pipe", "/dev/zero", "folder"])
def test_only_a_plain_file_is_read(tmp_path, place):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="is not a plain file"):
        greenfast.load(tmp_path / place)
    assert not is_tuning(tmp_path / place)


def test_a_truncated_file_and_other_files_are_refused(tmp_path):
    path = zipped(tmp_path / "whole.zip", files_of(SET))
    for length in (10, len(path.read_bytes()) // 2):
        (tmp_path / "part.zip").write_bytes(path.read_bytes()[:length])
        with pytest.raises(UsageError, match="cannot be read as a zip file"):
            greenfast.load(tmp_path / "part.zip")
    with pytest.raises(UsageError, match="does not exist"):
        greenfast.load(tmp_path / "none.zip")
    assert "neither manifest.json nor SHA256SUMS" in refused(tmp_path, {"a.txt": b""})
    with pytest.raises(UsageError, match="unknown device 'tpu'"):
        greenfast.load(path, device="tpu")


KERNELS = json.loads(files_of(SET)["manifest.json"])["kernels"]
TWICE = [*KERNELS, KERNELS[0]]
RENAMED = [KERNELS[0] | {"cubins": {"sm_80": "kernels/k0/kernel.sm_90.cubin"}}]
OUTSIDE = [KERNELS[0] | {"template": "../../../stolen"}]
ANOTHERS = [KERNELS[0] | {"cubins": {"sm_90": "kernels/k1/kernel.sm_90.cubin"}}]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("manifest.json", {"schema": 2}, "this version reads greenfast-tuning, schema 1"),
        ("manifest.json", {"format": "other"}, "has format 'other'"),
        ("manifest.json", {"kernels": []}, "contradicts itself"),
        ("manifest.json", {"kernels": [{"id": "../x"}]}, "contradicts itself"),
        ("manifest.json", {"kernels": OUTSIDE}, "'../../../stolen' is not a name"),
        ("manifest.json", {"kernels": TWICE}, "kernel k0 occurs twice"),
        ("manifest.json", {"kernels": RENAMED}, "is not machine code of kernels/k0/ for sm_80"),
        ("manifest.json", {"kernels": ANOTHERS}, "is not machine code of kernels/k0/ for sm_90"),
        ("dispatch.json", {"schema": 2}, "greenfast-dispatch, schema 1"),
    ],
)
def test_other_formats_are_refused(tmp_path, name, change, message):
    files = files_of(SET)
    if name == "manifest.json":
        assert message in refused(tmp_path, sealed(files, **change))
        return
    files[name] = json.dumps(json.loads(files[name]) | change).encode()
    assert message in refused(tmp_path, sealed(files))


def with_dispatch(change) -> dict[str, bytes]:
    files = files_of(SET)
    table = json.loads(files["dispatch.json"])
    change(table)
    rest = {name: value for name, value in table.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    table["digest"] = hashlib.sha256(text.encode()).hexdigest()
    files["dispatch.json"] = json.dumps(table).encode()
    return sealed(files)


def test_a_tampered_table_is_refused(tmp_path):
    files = files_of(SET)
    table = json.loads(files["dispatch.json"])
    table["groups"][0]["rules"][0]["use"] = "k1"
    files["dispatch.json"] = json.dumps(table).encode()
    assert "does not match its digest" in refused(tmp_path, sealed(files))


def rule(value, **changes):
    def change(table):
        table["groups"][0]["rules"][0] = {
            "when": [{"value": value, "above": None, "at_most": 1, **changes}],
            "use": "k0",
        }

    return change


@pytest.mark.parametrize(
    "change",
    [
        rule("__import__('os')"),
        rule("M.real"),
        rule("Z"),
        rule("M ** M"),
        rule("M", at_most="1"),
        rule("M", at_most=float("nan")),
        rule("M", above=float("-inf")),
        rule("M", at_most=10**400),
        rule("M", at_most=True),
        lambda table: table["groups"][0].update(region={"M": [9, 1]}),
        lambda table: table["groups"][0].update(region={"M": ["1", "9"]}),
        lambda table: table["groups"][0].update(rules=[{"when": [], "use": "k0"}] * 1025),
        lambda table: table.update(groups=table["groups"] * 300),
        lambda table: table["groups"][0].update(outside="k9"),
        lambda table: table["groups"][0].update(compiled={"dtype": "bf16"}),
        lambda table: table["groups"][0].update(region={"Q": [1, 2]}),
        lambda table: table.update(groups=[]),
        lambda table: table.update(groups=7),
    ],
)
def test_a_table_that_is_no_table_is_refused(tmp_path, change):
    refused(tmp_path, with_dispatch(change))


@pytest.mark.parametrize("value", [["M"], {"M": 1}, None])
def test_a_rule_without_an_expression_is_told_what_it_needs(tmp_path, value):
    assert "an expression is needed" in refused(tmp_path, with_dispatch(rule(value)))


def test_where_a_table_prefers_a_library_it_runs_if_there_is_one():
    files = with_dispatch(
        lambda table: table["groups"][0].update(
            rules=[{"when": [], "use": "library"}], outside="k0"
        )
    )
    kernels = kernel_set(files, SET)
    sizes = {name: low for name, (low, _) in kernels.groups[0].region.items()}
    values = {**kernels.groups[0].compiled, **sizes}
    assert replace(kernels, has_library=True).choose(values, {}).program is None
    assert has_fallback("rmsnorm") is kernels.has_library and not has_fallback("softmax")
    alone = replace(kernels, has_library=False).choose(values, {})
    assert alone.program is kernels.programs["k0"] and "another library was faster" in alone.why


def test_a_pytorch_for_the_cpu_alone_is_no_library(tmp_path, monkeypatch):
    facts = tmp_path / "torch-9.0+cpu.dist-info"
    facts.mkdir()
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for version, expected in (("9.0+cpu", False), ("9.0", True)):
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        assert has_fallback("attention") is expected


def test_a_launch_that_contradicts_the_operation_is_refused(tmp_path):
    for key, value in (
        ("interface", []),
        ("entries", [{"entry": "x; y"}]),
        ("entries", []),
        ("source_digest", "0" * 64),
        ("schema", 9),
    ):
        files = files_of(SET)
        launch = json.loads(files["kernels/k0/launch.json"]) | {key: value}
        files["kernels/k0/launch.json"] = json.dumps(launch).encode()
        assert "contradicts itself" in refused(tmp_path, sealed(files))


@pytest.mark.parametrize("name", ["kernel.toml", "dispatch.json"])
def test_a_deeply_nested_file_is_refused(tmp_path, name):
    opening = b"a = [" if name == "kernel.toml" else b"["
    files = {**files_of(SET), name: opening + b"[" * 10**6 + b"]" * 10**6 + b"]"}
    assert name in refused(tmp_path, sealed(files))


def test_more_folders_than_a_bundle_has_are_refused(tmp_path):
    path = zipped(tmp_path / "folders.zip", files_of(SET))
    with zipfile.ZipFile(path, "a") as packed:
        for number in range(4097):
            packed.writestr(f"folder{number}/", b"")
    with pytest.raises(UsageError, match="a bundle has at most 4096"):
        greenfast.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"grid": ["2147483648", "1", "1"]},
        {"grid": ["-1", "1", "1"]},
        {"block": ["0 - 1", "0 - 1", "1"]},
        {"block": ["4096", "1", "1"]},
        {"smem_dynamic_bytes": "0 - 4"},
        {"smem_dynamic_bytes": "2 ** 40"},
    ],
)
def test_a_launch_that_no_gpu_runs_is_refused_before_the_driver_sees_it(change):
    row = {"entry": "k", "grid": "111", "block": "111", "smem_dynamic_bytes": "0"} | change
    with pytest.raises(UsageError) as error:
        _launch(launch_form(row), {})
    assert error.value.code in ("too_large", "bad_launch")


def test_explain_tells_the_rule_the_measurement_and_the_way_back():
    said = greenfast.explain("attention", B=2, H=8, S_q=256, D=64, dtype="bf16")
    assert said.kernel == "mma 1de68881838b"
    assert "255 < S_q <= 256" in said.why
    outside = greenfast.explain("attention", B=2, H=8, S_q=40960, D=64, dtype="bf16")
    assert outside.kernel is None
    assert "outside the measured range" in str(outside)
    half = greenfast.explain("attention", B=2, H=8, S_q=256, D=64, dtype="fp16")
    assert half.kernel is not None and half.kernel != said.kernel
    for settings in ({"D": 72}, {"D": 64, "dtype": "fp8"}):
        other = greenfast.explain("attention", B=2, H=8, S_q=256, **settings)
        assert other.kernel is None
    h100 = {"gpu": "NVIDIA H100 80GB HBM3", "B": 2, "H": 8, "S_q": 256, "D": 64}
    assert "the table of attention-h100" in greenfast.explain("attention", **h100).why
    elsewhere = greenfast.explain("attention", gpu="NVIDIA L4", B=2, H=8, S_q=256, D=64)
    assert "only for NVIDIA H100 80GB HBM3 and NVIDIA H200" in elsewhere.why
    with pytest.raises(UsageError, match="the dim S_q is missing"):
        greenfast.explain("attention", B=1, H=1, D=64)
    with pytest.raises(UsageError, match="unknown operation 'softmax'"):
        greenfast.explain("softmax")
    for activation in ("relu", ["relu"]):
        with pytest.raises(UsageError, match="activation") as refused:
            greenfast.explain("linear", M=8, N=64, K=64, activation=activation)
        assert refused.value.code == "bad_activation"
    with pytest.raises(UsageError, match="attention has no mask 'left'"):
        greenfast.explain("attention", B=1, H=1, S_q=8, D=64, mask="left")


@pytest.mark.parametrize("gpu", quick_first(["h200", "h100"], 1))
@pytest.mark.parametrize("dtype", quick_first(["bf16", "fp16"], 1))
def test_the_shipped_kernels_are_those_that_won_a_measured_shape(dtype, gpu):
    from bench.gpu.grid_rules import judged, uses
    from bench.gpu.grid_set import kind_of, sixty, won_by

    kernels = greenfast.load(files_path(f"attention-{gpu}.zip")).kernels
    programs = [item for item in kernels.programs.values() if item.compiled["dtype"] == dtype]
    cells, alone = judged(dtype, gpu=gpu), sixty(dtype, gpu=gpu)
    won = {(*kind_of(row), label) for row in alone if (label := won_by(row)) is not None}
    for kind in {kind_of(cell.row) for cell in cells}:
        labels = uses([cell for cell in cells if kind_of(cell.row) == kind]).values()
        won |= {(*kind, label) for label in labels}
    assert len(programs) == len(won) > 20
    archs = {arch for program in programs for arch in program.cubins}
    assert archs == {"sm_90", "sm_90a"}


def test_a_point_that_lies_off_a_multiple_of_128_keys_says_little_about_one():
    """Libraries are much faster at such lengths, so an uneven point's kernel has to win by far."""
    from bench.gpu.grid_rules import Judged, conditions
    from bench.gpu.grid_shapes import cells

    cell = next(
        cell for cell in cells() if cell.shape.S_kv % 128 and 256 in range(*cell_keys(cell))
    )
    texts = {
        ratio: [part["value"] for part in conditions(Judged(cell, {}, True, {"k": ratio}, {}), "k")]
        for ratio in (0.6, 0.9)
    }
    assert "S_kv % 128" in texts[0.9] and "S_kv % 128" not in texts[0.6]


def cell_keys(cell):
    (keys,) = (part for part in cell.when if part["value"] == "S_kv")
    return keys["above"] + 1, keys["at_most"] + 1


def files_path(name):
    from runtime_bundles import SETS

    return SETS / name


def test_every_kernel_is_read_as_the_catalogue_reads_it(album):
    from greenfast.runtime.operation import ScalarArgument, read_operation

    for name in album.names():
        kernel = album.kernel(name)
        operation = read_operation((kernel.folder / "kernel.toml").read_bytes())
        assert [item.name for item in operation.arguments] == [
            item.name for item in kernel.arguments
        ]
        for ours, theirs in zip(operation.arguments, kernel.arguments, strict=True):
            assert ours.dtype == theirs.dtype
            if isinstance(ours, ScalarArgument):
                assert ours.stride_of == theirs.stride_of
                texts = [item.value and item.value.text for item in (ours, theirs)]
                assert texts[0] == texts[1]
            else:
                assert (ours.shape, ours.optional) == (theirs.shape, theirs.optional)
        assert operation.compiled_names == tuple(
            [dim.name for dim in kernel.dims if dim.time == "compile"]
            + [option.name for option in kernel.options]
        )
        assert dict(operation.options) == {item.name: item.default for item in kernel.options}
        figures = operation.pointer_bytes, operation.stride_elements
        assert figures == (kernel.pointer_bytes, kernel.stride_elements)
        assert operation.empty_dims == set(kernel.empty_dims)
