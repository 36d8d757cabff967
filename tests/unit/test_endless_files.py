"""Files that never end, or that hold something else than they claim: refused at once."""

from __future__ import annotations

import gzip
import json
import os

import numpy as np
import pytest

from greenfast.app.bundle.opened import OpenedBundle, _with_own_baseline
from greenfast.app.views.ledger_exchange import _json as ledger_line
from greenfast.app.views.ledger_exchange import _lines_of as ledger_lines
from greenfast.runtime.archive import toml_table
from greenfast.search.diagnose.brought import _lines_with_includes
from greenfast.search.diagnose.brought_buffers import array_from_file
from greenfast.search.diagnose.plain import is_written_for_greenfast
from greenfast.search.diagnose.plain_text import _text as cuda_text
from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.author_files import parsed_toml, read_author_file
from greenfast.search.kernels.plain_file import NotPlain, open_plain
from greenfast.search.kernels.workload_files import read_workloads
from greenfast.search.recordings.file import read as read_recording
from greenfast.search.recordings.file import read_heading
from greenfast.search.recordings.foreign_text import text_of as foreign_text

FLOAT32 = np.dtype(np.float32)
READERS = {
    "workloads.json": read_workloads,
    "workloads.toml": read_workloads,
    "workloads.csv": read_workloads,
    "kernel.cu": lambda path, kernel: cuda_text(path),
    "brought.cu": lambda path, kernel: _lines_with_includes(path, {}),
    "launch.toml": lambda path, kernel: read_author_file(path, path.name),
    "values.npy": lambda path, kernel: array_from_file(path, (4,), FLOAT32, "x"),
    "own.recording.jsonl.gz": lambda path, kernel: read_recording(path),
    "heading.recording.jsonl.gz": lambda path, kernel: read_heading(path),
    "space.json": lambda path, kernel: foreign_text(path),
    "ledger.jsonl": lambda path, kernel: ledger_lines(path),
}


@pytest.fixture(scope="module")
def kernel(catalogue):
    return catalogue.kernel("attention")


def endless(path, kind):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    return path


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize("name", READERS)
def test_only_a_plain_file_is_read(tmp_path, kernel, name, kind):
    path = endless(tmp_path / name, kind)
    with pytest.raises(GreenfastError, match=r"plain file|folder|cannot be read") as refused:
        READERS[name](path, kernel)
    assert "\n" not in refused.value.message


def test_a_pipe_is_not_searched_for_includes_and_no_descriptor_is_left(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    assert not is_written_for_greenfast(endless(tmp_path / "pipe", "pipe"))
    for kind in ("pipe", "device", "folder"):
        with pytest.raises(NotPlain):
            open_plain(endless(tmp_path / f"{kind}_again", kind))
    assert len(os.listdir("/proc/self/fd")) == before


DEEP, DIGITS = "[" * 100_000, "9" * 5000


@pytest.mark.parametrize(
    ("content", "words"),
    [(DEEP, "nested too deeply"), (f"[{DIGITS}]", "a whole number has more than 4,300 digits")],
    ids=["deep", "digits"],
)
def test_what_python_s_parsers_do_not_read_is_told_in_plain_words(tmp_path, kernel, content, words):
    recording = tmp_path / "own.recording.jsonl.gz"
    heading = json.dumps({"format": "greenfast-recording"})
    recording.write_bytes(gzip.compress(f"{heading}\n{content}\n".encode()))
    (tmp_path / "w.json").write_text(content)
    (tmp_path / "w.toml").write_text(f"workloads = {content}")
    refusals = []
    for read in (
        lambda: read_workloads(tmp_path / "w.json", kernel),
        lambda: read_workloads(tmp_path / "w.toml", kernel),
        lambda: parsed_toml(f"a = {content}", "kernel.toml"),
        lambda: toml_table({"template.toml": f"a = {content}".encode()}, "template.toml"),
        lambda: ledger_line(content[:9000], 1, "invalid"),
    ):
        with pytest.raises(GreenfastError) as refused:
            read()
        refusals.append(refused.value.message)
    assert all(words in sentence for sentence in refusals), refusals
    assert not any("recursion" in sentence or "sys." in sentence for sentence in refusals)


def head(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


NPY = "{'descr': %s, 'fortran_order': False, 'shape': %s, }"


@pytest.mark.parametrize(
    "content",
    [
        head(NPY % ("'<f4'", f"({2**50},)")),
        head(NPY % ("'<f4'", "(-4,)")),
        head(NPY % ("'<f4'", "4")),
        head(NPY % ("'|O'", "(4,)")) + bytes(32),
        head(NPY % ("'<U4'", "(4,)")) + bytes(64),
        head(NPY % ("'<c8'", "(4,)")) + bytes(32),
        head(NPY % ("[('a', '<f4')]", "(4,)")) + bytes(16),
        head(NPY % ("'<f4'", "(" * 5000 + ")" * 5000)),
        head(NPY % ("[" * 3000 + "]" * 3000, "(4,)")),
        head("__import__('os').system('true')"),
        b"PK\x03\x04" + bytes(100),
        b"\x80\x04N.",
        b"",
    ],
)
def test_an_npy_file_of_somebody_else_is_refused_in_one_sentence(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(GreenfastError, match=r"x\.npy (cannot be read as|holds)") as refused:
        array_from_file(tmp_path / "x.npy", (4,), FLOAT32, "x")
    assert "\n" not in refused.value.message and len(refused.value.message) < 400


def test_an_npy_file_is_read(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.int64))
    values = array_from_file(tmp_path / "x.npy", (2, 2), FLOAT32, "x")
    assert values.tolist() == [[0, 1], [2, 3]] and values.dtype == FLOAT32


@pytest.mark.parametrize(
    "toml", [f"a = {DIGITS}", f"a = {DEEP}", "a = \0"], ids=["digits", "deep", "nul"]
)
def test_a_bundle_s_toml_is_refused_in_one_sentence(toml):
    files = {"kernel.toml": toml.encode(), "template.toml": toml.encode()}
    bundle = OpenedBundle(files, {"template": "t"}, None, {}, {})
    for read in (lambda: bundle.reference_files, lambda: _with_own_baseline(bundle)):
        with pytest.raises(GreenfastError, match=r"of the bundle is not TOML") as refused:
            read()
        assert refused.value.code == "bad_bundle" and "\n" not in refused.value.message


def test_presets_of_another_shape_are_no_traceback():
    files = {"kernel.toml": b'baseline = "x:y"', "template.toml": b"presets = 5"}
    bundle = OpenedBundle(files, {"template": "t"}, None, {}, {})
    assert _with_own_baseline(bundle) == 'baseline = "x:y"'
