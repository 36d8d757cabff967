"""Space files that are cut off, inconsistent, or built to harm: one sentence, and nothing runs."""

from __future__ import annotations

import bz2
import copy
import gzip
import io
import json
import lzma
import sys
import tarfile
import tracemalloc
import zipfile

import pytest

from greenfast.search.errors import UsageError
from greenfast.search.recordings.foreign import read_space

T4 = {
    "schema_version": "1.0.0",
    "metadata": {"kernel_name": "k", "timeunit": "ms"},
    "results": [
        {
            "configuration": {"a": a, "b": b},
            "objectives": ["time"],
            "measurements": [{"name": "time", "value": a + b / 8, "unit": "ms"}],
            "invalidity": "correct",
        }
        for a in (1, 2)
        for b in (4, 5)
    ],
}
CACHE = {
    "schema_version": "1.0.0",
    "device_name": "d",
    "kernel_name": "k",
    "tune_params_keys": ["a", "b"],
    "objective": "time",
    "cache": {f"{a},{b}": {"a": a, "b": b, "time": a + b / 8} for a in (1, 2) for b in (4, 5)},
}
OWNED = "__import__('pathlib').Path('owned').touch()"


def _changed(content, *path, value):
    content = copy.deepcopy(content)
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return content


@pytest.fixture
def read(tmp_path):
    def read_content(content):
        path = tmp_path / "space.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return read_space(path)

    return read_content


def _refused(read, content):
    with pytest.raises(UsageError) as error:
        read(content)
    assert error.value.mend and "\n" not in error.value.message
    return error.value


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("content", [T4, CACHE], ids=["T4", "cache"])
def test_a_file_that_is_cut_off_anywhere_is_refused_or_an_open_cache(read, pack, content):
    """Kernel Tuner leaves a cache open until its run ends: whole entries, and no last braces."""
    whole = pack(json.dumps(content, indent=1).encode())
    results = read(whole).results
    codes = set()
    for length in range(0, len(whole), 1 if pack is bytes else 3):
        try:
            space = read(whole[:length])
        except UsageError as error:
            codes.add(error.code)
            continue
        assert content is CACHE and pack is bytes
        assert space.results == results[: len(space.results)], length
    assert codes <= {"space_damaged", "not_a_space"}


def _zip(data):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("space.json", data)
    return file.getvalue()


def _tar_in_gzip(data):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        entry = tarfile.TarInfo("space.json")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return file.getvalue()


@pytest.mark.parametrize(("pack", "program"), [(_zip, "unzip"), (_tar_in_gzip, "tar -xf")])
def test_an_archive_is_refused_with_the_program_that_unpacks_it(read, pack, program):
    error = _refused(read, pack(json.dumps(T4).encode()))
    assert error.code == "space_packed" and program in error.mend


def test_a_form_that_this_python_cannot_unpack_is_named(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "compression.zstd", None)  # as before Python 3.14
    error = _refused(read, b"\x28\xb5\x2f\xfd" + bytes(50))
    assert error.code == "space_packed" and "unzstd" in error.mend


@pytest.mark.parametrize(
    ("content", "part"), [(b" \n", "empty"), (b"\n<!DOCTYPE html>\n<html>404", "a web page")]
)
def test_what_a_download_leaves_in_place_of_a_file_is_named(read, content, part):
    assert part in _refused(read, content).message


@pytest.mark.parametrize(
    ("content", "part"), [([1, 2], "a list of 2"), (7, "a single value"), ([], "a list of 0")]
)
def test_json_without_an_object_is_told_the_form_of_one(read, content, part):
    error = _refused(read, content)
    assert error.code == "space_damaged" and part in error.message and '"results"' in error.mend


def test_t4s_results_without_the_object_around_them_are_read(read):
    figures = [[each.figure for each in read(content).results] for content in (T4, T4["results"])]
    assert figures[0] == figures[1]


VALUE = ("results", 1, "measurements", 0, "value")
UNIT = (*VALUE[:-1], "unit")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (_changed(T4, *VALUE, value="1.25"), "configuration 1: time is the text '1.25'"),
        (_changed(CACHE, "cache", "1,5", "time", value="7"), "time is the text '7'"),
        (_changed(T4, *VALUE, value="fast"), "configuration 1: time is the text 'fast'"),
        (_changed(T4, *VALUE, value=-1.5), "time is -1.5, and it is called correct"),
        (_changed(T4, *VALUE, value=float("nan")), "time is nan"),
        (_changed(T4, "results", 1, "correctness", value=0), "invalidity 'correct' and"),
        (_changed(CACHE, "cache", "1,5", "time", value="fast"), "time is the text 'fast'"),
        (_changed(CACHE, "tune_params", value={"a": [2], "b": [4, 5]}), "a=1, which is none of"),
        (_changed(T4, *UNIT, value="furlong"), "furlong is not a known unit of time"),
        (_changed(CACHE, "tune_params_keys", value=["a", ["b"]]), "tune_params_keys"),
        (_changed(CACHE, "tune_params_keys", value=["a", "a"]), "tune_params_keys"),
        (_changed(CACHE, "tune_params_keys", value=["a", "b", "\ud800"]), "lacks a parameter"),
        (_changed(T4, "results", 0, "configuration", "a", value="x\0"), "NUL"),
        (_changed(T4, "results", 0, "configuration", "a", value="\udfff"), "not valid Unicode"),
        (_changed(T4, "results", 0, "configuration", "a", value=float("nan")), "a is nan"),
        (_changed(T4, "results", 1, "configuration", value={"a": 1}), "other parameters"),
        (_changed(T4, "results", 1, "configuration", value={"a": 1, "b": 4}), "occurs twice"),
    ],
)
def test_an_inconsistent_file_is_refused(read, content, part):
    error = _refused(read, content)
    assert error.code == "space_damaged" and part in error.message


def test_a_cache_may_write_the_numbers_of_its_parameters_in_another_way(read):
    for values in ({"a": [1.0, 2], "b": ["4", "5"]}, {"a": [], "c": [7]}, {"a": "range"}):
        assert len(read(_changed(CACHE, "tune_params", value=values)).results) == 4


def test_each_time_has_its_own_unit(read):
    figures = [each.figure for each in read(T4).results]
    seconds = _changed(T4, *UNIT, value="s")
    seconds["results"][1]["measurements"][0]["value"] /= 1e3
    assert [each.figure for each in read(seconds).results] == pytest.approx(figures)


@pytest.mark.parametrize("version", ["2.0.0", "0.9", 11, "10.0", ["1"], "one"])
def test_another_version_is_refused_with_the_one_that_is_read(read, version):
    error = _refused(read, _changed(T4, "schema_version", value=version))
    assert error.code == "space_version" and "reads version 1" in error.message
    assert read(_changed(T4, "schema_version", value=1)).form == "T4 1"


def test_a_result_without_invalidity_is_valid(read):
    content = _changed(T4, "results", 0, "invalidity", value=None)
    assert read(content).results == read(T4).results


@pytest.mark.parametrize(
    "content",
    [
        _changed(CACHE, "restrictions", value=[OWNED, "a < b"]),
        _changed(T4, "metadata", "restrictions", value=OWNED),
        _changed(T4, "results", 0, "configuration", "a", value=OWNED),
        _changed(CACHE, "tune_params", value={"a": OWNED}),
    ],
)
def test_code_in_a_file_is_text(read, content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(read(content).results) == 4 and not (tmp_path / "owned").exists()


def test_a_bomb_is_refused_before_it_fills_the_memory(read):
    bomb = gzip.compress(b"[" + b" " * 100_000_000, 6)
    tracemalloc.start()
    error = _refused(read, bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "inflates to more than 200 times" in error.message and peak < 100e6


@pytest.mark.parametrize("nested", [b"[" * 200_000, b'{"results":' * 100_000])
def test_deep_nesting_is_refused(read, nested):
    assert _refused(read, nested).code == "space_damaged"
