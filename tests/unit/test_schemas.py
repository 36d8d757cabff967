"""The schemas for editors and the loader's forms are the same, in both directions."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from bench.pages import schemas
from greenfast.app.cli.main import run
from greenfast.app.cli.new import kernel_files_of
from greenfast.search.kernels import forms, tables
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES
from greenfast.search.kernels.forms import SCHEMA_FOLDER
from greenfast.search.kernels.kernel_file import load_kernel

ROOT = Path(__file__).resolve().parents[2]
KERNELS = [
    *sorted(path.parent for path in REPOSITORY_TEMPLATES.glob("*/kernel.toml")),
    *sorted(path.parent for path in (ROOT / "tests" / "kernels").glob("*/kernel.toml")),
]
# Tables whose keys are the author's own names, read with Table.items.
NAMED = {"options", "dims", "constants", "locals", "tiles", "supports", "parameters", "probes"}


def _refusals(schema: dict, value: object, place: str = "") -> list[str]:
    """Where `value` breaks the schema: the part of JSON Schema that the files use."""
    found: list[str] = []
    kinds = schema.get("type")
    names = {"string": str, "integer": int, "number": (int, float), "boolean": bool,
             "array": list, "object": dict}  # fmt: skip
    if kinds and not any(
        isinstance(value, names[kind]) and (kind == "boolean" or not isinstance(value, bool))
        for kind in ([kinds] if isinstance(kinds, str) else kinds)
    ):
        return [f"{place}: {value!r} is not {kinds}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: {value!r} is not among {schema['enum']}")
    if "pattern" in schema and not re.search(schema["pattern"], str(value)):
        found.append(f"{place}: {value!r} does not match")
    if isinstance(value, list):
        for number, item in enumerate(value):
            found += _refusals(schema.get("items", {}), item, f"{place}[{number}]")
    if isinstance(value, dict):
        properties, other = schema.get("properties", {}), schema.get("additionalProperties", {})
        found += [f"{place}: no {key}" for key in schema.get("required", []) if key not in value]
        for key, item in value.items():
            if key in properties:
                found += _refusals(properties[key], item, f"{place}.{key}")
            elif other is False:
                found.append(f"{place}: unknown {key}")
            else:
                found += _refusals(other, item, f"{place}.{key}")
    return found


@pytest.mark.parametrize("path", schemas.pages(), ids=lambda path: path.name)
def test_the_shipped_schemas_are_current(path):
    assert path.read_text() == schemas.pages()[path], "python -m bench.pages.schemas --save"
    assert path.parent == SCHEMA_FOLDER


@pytest.mark.parametrize("folder", KERNELS, ids=lambda folder: folder.name)
def test_every_kernel_in_the_repository_satisfies_its_schema(folder):
    for path in folder.glob("*.toml"):
        kind = "kernel" if path.name == "kernel.toml" else "template"
        schema = json.loads((SCHEMA_FOLDER / f"{kind}.schema.json").read_text())
        assert _refusals(schema, tomllib.loads(path.read_text()), path.name) == []


def test_a_misspelt_or_missing_key_breaks_the_schema():
    schema = forms.file_schema("template")
    table = tomllib.loads(kernel_files_of("vecsum")["block.toml"])
    assert _refusals(schema, table) == []
    for change in (
        {"launch": []},
        {"parameters": {"threads": {**table["parameters"]["threads"], "vals": [1]}}},
        {"parameters": {"threads": {"type": "int", "values": [1]}}},
        {"parameters": {"threads": {**table["parameters"]["threads"], "type": "float"}}},
        {"minimum_sm": "90"},
    ):
        assert len(_refusals(schema, {**table, **change})) == 1


def _keys_that_the_loader_reads(monkeypatch, folders) -> dict[str, set[str]]:
    """By the form of a table, the keys that loading asks it for."""
    read: dict[str, set[str]] = {}
    get = tables.Table.get

    def recorded(table, key, kind, *default):
        read.setdefault(_form_of(table.where), set()).add(key)
        return get(table, key, kind, *default)

    optional = tables.Table.optional_expression

    def recorded_optional(table, key):
        read.setdefault(_form_of(table.where), set()).add(key)
        return optional(table, key)

    monkeypatch.setattr(tables.Table, "get", recorded)
    monkeypatch.setattr(tables.Table, "optional_expression", recorded_optional)
    for folder in folders:
        load_kernel(folder)
    return read


def _form_of(where: str) -> str:
    """`rmsnorm/kernel.toml, [options] dtype` is of the form `kernel [options] NAME`."""
    file, _, rest = where.partition(", ")
    kind = "kernel" if file.endswith("/kernel.toml") else "template"
    rest = re.sub(r"\]\] \d+", "]]", rest)
    rest = re.sub(r"\[(\w+)\.\w+\]", r"[\1.NAME]", rest)
    rest = re.sub(r"\[(\w+)\] \w+", r"[\1] NAME", rest)
    return f"{kind} {rest}".strip()


def test_the_forms_have_the_keys_that_the_loader_reads(monkeypatch, tmp_path):
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "kernel.toml").write_text(ALL_KERNEL)
    (folder / "one.toml").write_text(ALL_TEMPLATE)
    (folder / "one.cu.j2").write_text("")
    (folder / "reference.py").write_text("")
    read = _keys_that_the_loader_reads(monkeypatch, [folder])
    compared = 0
    for kind, (whole, *parts) in forms.TABLES.items():
        assert read[kind] == {key.name for key in whole.keys}
        for form in parts:
            keys = {key.name for key in form.keys}
            header = f"{kind} {form.header}"
            extra = {"dims", "options"} if form.header.startswith("[workloads") else set()
            assert read[header] == keys, header
            assert extra <= keys
            compared += 1
    assert compared == 16


ALL_KERNEL = """
name = "all"
title = "every table"
baseline = "one:plain"
[options]
kind = { values = ["a"], default = "a" }
[dims]
N = { time = "run" }
[constants]
c = "1"
[[arguments]]
name = "y"
kind = "output"
dtype = "float32"
shape = ["N"]
[[arguments]]
name = "n"
kind = "scalar"
dtype = "int32"
value = "N"
[work]
flop = "1"
bytes = "1"
[workloads.w]
dims = { N = 1 }
[[requires]]
that = "N > 0"
because = "so"
[[checks]]
name = "c"
dims = { N = 1 }
inputs = "normal"
[probes.p]
doc = "p"
bound = "b"
reference = "f"
of = "y"
axes = ["n"]
"""
ALL_TEMPLATE = """
name = "one"
kernel = "all"
idea = "none"
minimum_sm = 90
[parameters.t]
type = "int"
values = [32]
default = 32
[locals]
l = "t"
[[constraints]]
expr = "t > 0"
because = "so"
[tiles]
tile = "t"
[[launches]]
entry = "e"
grid = ["1", "1", "1"]
block = ["1", "1", "1"]
[[scalars]]
name = "s"
dtype = "int32"
value = "1"
[[workspaces]]
name = "w"
bytes = "4"
[[tensor_maps]]
name = "m"
tensor = "w"
dtype = "float32"
sizes = ["64"]
box = ["64"]
[[tensor_maps]]
name = "y_map"
tensor = "y"
box = ["64"]
[presets.plain]
[probes]
warp_rows = "1"
p = { when = "t > 0" }
"""


CUDA = """extern "C" __global__ void scaled(const float* x, float* y, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""
IMPORT = [
    *("import", "scaled.cu", "--tune", "block_size_x=64,128"),
    *("--grid", "ceil_div(n, block_size_x)", "--arg", "x:float32[n]", "--arg", "y:float32[n]:out"),
    *("--arg", "n:int32=4096"),
]


@pytest.mark.parametrize("command", [["new", "kernel", "scaled"], IMPORT], ids=("new", "import"))
def test_an_editor_finds_the_schemas_wherever_the_folder_is(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scaled.cu").write_text(CUDA)
    assert run(command) == 0
    assert run(["new", "template", "scaled", "other"]) == 0
    moved = (tmp_path / "kernels" / "scaled").rename(tmp_path / "elsewhere")
    files = sorted(moved.glob("*.toml"))
    assert len(files) == 3
    for file in files:
        text = file.read_text()
        directive, _, place = text.partition("\n")[0].partition(" ")
        assert directive == "#:schema" and str(tmp_path) not in text and "site-packages" not in text
        schema = json.loads((moved / place).read_text())
        kind = "kernel" if file.name == "kernel.toml" else "template"
        assert schema == json.loads((SCHEMA_FOLDER / f"{kind}.schema.json").read_text())
