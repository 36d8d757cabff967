"""bench/README.md names every script and result; scripts are modules, results are read by name."""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import subprocess
import sys
from fnmatch import fnmatch

import pytest

from bench.gpu.random_calls import served_sizes
from bench.results import (
    COMPRESSED,
    LARGEST_PLAIN_BYTES,
    PLAIN,
    RESULTS,
    ROOT,
    finite,
    read_json,
    read_result,
    result_names,
    result_path,
    write_json,
    write_result,
)
from greenfast.runtime.tuned import shipped

BENCH = ROOT / "bench"
README = (BENCH / "README.md").read_text()
SCRIPTS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    for path in BENCH.rglob("*.py")
    if '\nif __name__ == "__main__":' in path.read_text()
)
SHELL_SCRIPTS = sorted(path.relative_to(ROOT).as_posix() for path in BENCH.rglob("*.sh"))


def table_rows() -> list[list[str]]:
    """The cells of the tables' lines, without their titles."""
    lines = [line for line in README.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def named_results() -> list[str]:
    """The results that the table names; `*` stands for every name."""
    names = []
    for first, *cells in table_rows():
        is_script = first.strip("`") in (*SCRIPTS, *SHELL_SCRIPTS)
        names += re.findall(r"`([\w/*]+)`", cells[1] if is_script else first)
    return names


def test_there_are_scripts_and_results():
    assert len(SCRIPTS) > 30 and len(result_names()) > 40


def test_the_table_has_a_row_for_every_script():
    rows = [first.strip("`") for first, *_ in table_rows()]
    scripts = [row for row in rows if row.startswith("bench")]
    assert sorted(scripts) == sorted([*SHELL_SCRIPTS, *SCRIPTS])


def test_every_result_is_in_the_table_and_every_result_of_the_table_exists():
    names = named_results()
    missing = [
        name for name in result_names() if not any(fnmatch(name, pattern) for pattern in names)
    ]
    unknown = [
        pattern for pattern in names if not any(fnmatch(name, pattern) for name in result_names())
    ]
    assert (missing, unknown) == ([], [])


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_imports_without_a_gpu_and_documents_its_command(name):
    module = importlib.import_module(name)
    assert f"python -m {name}" in module.__doc__, "the docstring is the help: it shows the command"
    assert callable(getattr(module, "main", None) or module.pages)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_shows_its_help(name):
    command = [sys.executable, "-m", name, "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"usage: python -m {name}" in done.stdout, done.stderr


def test_a_gpu_script_exits_with_one_sentence_where_there_is_no_gpu(tmp_path):
    command = [sys.executable, "-m", "bench.gpu.ceilings", str(tmp_path / "out.json")]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("This measurement needs") and done.stderr.count("\n") == 1


def test_no_script_changes_the_module_search_path():
    for path in BENCH.rglob("*.py"):
        assert "sys.path" not in path.read_text(), path


# ---- results ----


def test_large_results_are_compressed_and_small_ones_are_not():
    for path in RESULTS.rglob("*.json*"):
        size = len(path.read_bytes())
        assert path.name.endswith(COMPRESSED) or size <= LARGEST_PLAIN_BYTES, path
    assert len({*result_names()}) == len(result_names()), "a result has one file"


def test_every_small_result_and_schema_is_json():
    """A formatter for Python that is given such a file leaves commas that JSON does not know."""
    schemas = (ROOT / "search" / "kernels" / "schemas").glob("*.json")
    files = [*RESULTS.rglob("*.json"), *schemas]
    assert len(files) > 20
    for path in files:
        assert json.loads(path.read_bytes()), path


def test_a_result_grows_into_a_compressed_file_and_shrinks_back(tmp_path):
    small, large = {"rows": [1]}, {"rows": list(range(40_000))}
    for value, ending in ((small, PLAIN), (large, COMPRESSED), (small, PLAIN)):
        path = write_result("h200/study", value, tmp_path)
        assert path.name == f"study{ending}" and read_result("h200/study", tmp_path) == value
        assert [item.name for item in path.parent.iterdir()] == [path.name]
    assert result_names(tmp_path) == ["h200/study"]
    assert result_path("other", tmp_path) == tmp_path / "other.json"


def test_equal_values_give_equal_bytes(tmp_path):
    files = [tmp_path / name for name in ("first.json.gz", "second.json.gz")]
    for file in files:
        write_json(file, {"rows": [0.1, "a"]})
    assert files[0].read_bytes() == files[1].read_bytes()
    assert read_json(files[0]) == {"rows": [0.1, "a"]}


def test_a_failed_write_leaves_the_result_as_it_was(tmp_path):
    write_result("study", {"rows": [1]}, tmp_path)
    with pytest.raises(ValueError, match="JSON compliant"):
        write_result("study", {"rows": [float("inf")]}, tmp_path)
    assert read_result("study", tmp_path) == {"rows": [1]}
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]


def test_infinities_become_null_and_digits_are_cut():
    value = {"interval": (0.1234567, float("inf")), "count": 3, "name": "a", "none": float("nan")}
    assert finite(value) == {"interval": [0.1234567, None], "count": 3, "name": "a", "none": None}
    assert finite(value, 3)["interval"] == [0.123, None]


@pytest.mark.slow
def test_random_calls_draw_what_the_shipped_set_serves():
    """Rules may limit B beside B * H."""
    kernels = shipped("attention")[0]
    random.seed(1)
    for _ in range(300):
        sizes, compiled = served_sizes(kernels)
        named = dict(zip(("B", "H", "H_kv", "S_q", "S_kv"), sizes, strict=False))
        assert kernels.choose({**named, **compiled}, {}).program is not None
