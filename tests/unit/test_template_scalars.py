"""Scalars of a template's own: from its toml to the arguments of a launch, here and in bundles."""

from __future__ import annotations

import hashlib
import json
import struct
import tomllib
from dataclasses import asdict

import pytest

import greenfast
from bench.gpu.set_files import Entry, built, bundle_bytes
from greenfast.app.bundle import download
from greenfast.runtime.cpp_header import header
from greenfast.runtime.program import TensorFacts, geometry
from greenfast.runtime.single_bundle import single_program
from greenfast.search.devices.facts import device
from greenfast.search.errors import SpecError
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import Scalar, lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve
from greenfast.search.toolchain.signature import passed_arguments
from tests.unit.rows_kernel import write_rows

SCALARS = """
[[scalars]]
name = "batches"
dtype = "int32"
value = "B"

[[scalars]]
name = "share"
dtype = "float32"
value = "R / tile"
when = "tile > 32"

[[workspaces]]
"""
H200 = device("h200")


@pytest.fixture
def rows(tmp_path):
    """The kernel with `SCALARS`, of which a text may be replaced."""

    def written(old="", new=""):
        scalars = SCALARS.replace(old, new) if old else SCALARS
        return write_rows(
            tmp_path / "templates",
            lambda file, text: (
                text.replace("[[workspaces]]\n", scalars) if file == "mapped.toml" else text
            ),
        ).kernel("rows")

    return written


def resolved(kernel, tile):
    template, workload = kernel.template("mapped"), kernel.workload("small")
    compiled = workload.compile_time(kernel)
    candidate = preset_candidate(template, "default", compiled, {"tile": tile})
    return template, resolve(template, candidate.parameters, compiled, H200)


@pytest.mark.parametrize(("tile", "own"), [(32, [2]), (64, [2, 100 / 64])])
def test_scalars_follow_the_kernels_arguments(rows, tile, own):
    kernel = rows()
    template, point = resolved(kernel, tile)
    case = workload_case(kernel.workload("small"), 1)
    arguments = lay_out(kernel, template, point, case, case_data(kernel, case)).arguments
    before, rest = arguments[:5], arguments[5:]
    assert [isinstance(each, Scalar) for each in before] == [False, False, True, True, True]
    assert [each.value for each in rest if isinstance(each, Scalar)] == own
    assert [each.name for each in rest[len(own) :]][:2] == ["partial", "x_map"]
    passed = passed_arguments(kernel, template, dict(point.values), probe=False)
    names = ["batches", "share"][: len(own)]
    assert [each.name for each in passed[5 : 6 + len(own)]] == [*names, "partial"]
    described = download.workload_description(
        kernel, template, kernel.workload("small"), {"tile": tile}, H200
    )["arguments"]
    assert [row["name"] for row in described] == [each.name for each in passed]
    assert [row["value"] for row in described[5 : 5 + len(own)]] == own


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"share"', '"batches"', "'batches' is the name of another argument"),
        ('"share"', '"x"', "'x' is the name of another argument"),
        ('"share"', '"partial"', "'partial' is the name of another argument"),
        ('"share"', '"x_map"', "'x_map' is the name of another argument"),
        ('"float32"', '"fp16"', "dtype"),
        ('"R / tile"', '"Q / tile"', "unknown name 'Q'"),
        ('"tile > 32"', '"R > 32"', "unknown name 'R'"),
        ('"share"', '"share"\nbytes = "4"', "unknown key 'bytes'"),
    ],
)
def test_an_authors_mistake_is_named(rows, old, new, words):
    with pytest.raises(SpecError, match=r"rows/mapped\.toml") as refused:
        rows(old, new)
    assert words in str(refused.value)


@pytest.mark.parametrize("value", ["R / 3", "B * 2 ** 40"])
def test_a_number_that_the_type_cannot_hold_is_named(rows, value):
    kernel = rows('"B"', f'"{value}"')
    template, point = resolved(kernel, 64)
    case = workload_case(kernel.workload("small"), 1)
    with pytest.raises(SpecError, match="which is not of type int32") as refused:
        lay_out(kernel, template, point, case, case_data(kernel, case))
    assert "[[scalars]] 1, value" in refused.value.message


def test_a_candidates_bundle_passes_them(rows):
    """`greenfast bundle` keeps them in the template's file, as it keeps workspaces."""
    kernel = rows()
    template = kernel.template("mapped")
    text = b"// no matter"
    digest = hashlib.sha256(text).hexdigest()
    described = download.workload_description(
        kernel, template, kernel.workload("small"), {"tile": 64}, H200
    )
    launches = [asdict(launch)["entry"] for launch in template.launches]
    launch = {
        "schema": 1,
        "template": "mapped",
        "source_digest": digest,
        "parameters": {"tile": 64},
        "sm_count": 132,
        "arch": "sm_90",
        "launches": [
            {"entry": entry, "grid": ["1"] * 3, "block": ["1"] * 3, "smem_dynamic_bytes": "0"}
            for entry in launches
        ],
        "workloads": [described],
    }
    files = {
        "launch.json": json.dumps(launch).encode(),
        "kernel.cu": text,
        "kernel.toml": (kernel.folder / "kernel.toml").read_bytes(),
        "template.toml": (kernel.folder / "mapped.toml").read_bytes(),
    }
    program = single_program(files)
    facts = {"x": TensorFacts("fp16", (3, 40, 128), (40 * 128, 128, 1))}
    made = geometry(program, facts, {})
    assert made.arguments[5:8] == (struct.pack("<i", 3), struct.pack("<f", 40 / 64), "partial")
    assert program.argument_bytes[5:8] == (4, 4, 8)
    small = {**launch, "parameters": {"tile": 32}}
    program = single_program({**files, "launch.json": json.dumps(small).encode()})
    assert [item.name for item in program.scalars] == ["batches"]
    assert tomllib.loads(files["template.toml"].decode())["scalars"][0]["name"] == "batches"


def test_a_set_whose_kernel_walks_all_batches_says_how_many_there_are(
    catalogue, toolchain, tmp_path
):
    """The kernel's own launch: as many blocks as the SMs hold, and the number of batches."""
    kernel = catalogue.kernel("attention")
    template = kernel.template("wgmma")
    compiled = {"D": 64, "dtype": "bf16", "mask": "none"}
    candidate = preset_candidate(
        template,
        "persistent_short",
        tuple(sorted(compiled.items())),
        {"scheduler": "persistent_all"},
    )
    entry = Entry("wgmma", dict(candidate.parameters), compiled, "", "all")
    made = built(catalogue, kernel, entry, H200, toolchain)
    rules = [{"when": [], "use": "k0"}]
    group = {"compiled": compiled, "region": {}, "rules": rules, "outside": "library"}
    content = bundle_bytes(
        kernel, [made], [{**group, "workloads": [], "regret": {}}], H200, name="all", toolchain={}
    )
    path = tmp_path / "all.zip"
    path.write_bytes(content)
    kernels = greenfast.load(path).kernels
    (program,) = kernels.programs.values()
    shape = (139, 12, 64, 64)
    facts = TensorFacts("bf16", shape, (12 * 64 * 64, 64 * 64, 64, 1))
    call = geometry(program, dict.fromkeys("qkv", facts), {}, without=frozenset({"lse"}))
    assert [launch.grid for launch in call.launches] == [(3 * 132, 1, 1)]
    own = len(program.operation.arguments)
    assert call.arguments[own] == struct.pack("<i", 139)
    assert "int32_t argument_batches = int32_t(B);" in header(kernels)
