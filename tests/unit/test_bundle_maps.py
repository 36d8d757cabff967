"""A bundle's launch.json and launch.h with tensor maps, and the host example that encodes them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from greenfast.app.bundle import download
from greenfast.app.bundle.launch_header import launch_header
from greenfast.search.devices.facts import device
from greenfast.search.toolchain.toolkit import find_toolkit
from tests.unit.rows_kernel import write_rows

FILES = Path(download.__file__).parent / "files"
# Prints the maps that host.cu hands to the driver.
DRIVER = """
#include <cstdio>
#include <cstring>
#define main bundle_main
#include "host.cu"
#undef main
CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
    const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    std::printf("%d %u %p", type, rank, address);
    for (unsigned i = 0; i < rank; ++i) std::printf(" %lu", (unsigned long)sizes[i]);
    for (unsigned i = 0; i + 1 < rank; ++i) std::printf(" %lu", (unsigned long)strides[i]);
    for (unsigned i = 0; i < rank; ++i) std::printf(" %u", box[i] * steps[i]);
    std::printf(" %d %d %d\\n", swizzle, promotion, fill);
    std::memset(map, 7, sizeof *map);
    return CUDA_SUCCESS;
}
int main()
{
    for (const Workload& workload : workloads)
        for (int i = 0; i < workload.argument_count; ++i)
            if (workload.arguments[i].kind == Kind::tensor_map) {
                const Argument& argument = workload.arguments[i];
                Value value;
                value.as_map = encode(argument, 16 * argument.map->argument);
                const void* taken = value_of(argument, value);
                if (reinterpret_cast<unsigned long>(taken) % 64) return 1;
                if (*static_cast<const char*>(taken) != 7) return 2;
            }
}
"""


@pytest.fixture
def workload(tmp_path):
    kernel = write_rows(tmp_path / "templates").kernel("rows")
    template = kernel.template("mapped")
    return download.workload_description(
        kernel, template, kernel.workload("small"), {"tile": 64}, device("h200")
    )


def test_the_description_has_the_maps_last_and_as_numbers(workload):
    arguments = json.loads(json.dumps(workload))["arguments"]
    assert [argument["kind"] for argument in arguments[-4:]] == ["workspace", *["tensor_map"] * 3]
    assert arguments[-3] == {
        "name": "x_map",
        "kind": "tensor_map",
        "buffer": "x",
        "dtype": "fp16",
        "sizes": [128, 100, 2],
        "strides_bytes": [256, 25600],
        "box": [64, 64, 1],
        "swizzle_bytes": 128,
        "fill": "nan",
        "l2_promotion_bytes": 256,
    }


@pytest.mark.slow
def test_the_host_example_encodes_them(workload, tmp_path):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not on the PATH")
    (tmp_path / "launch.h").write_text(launch_header({"arch": "sm_90", "workloads": [workload]}))
    shutil.copy(FILES / "host.cu", tmp_path / "host.cu")
    (tmp_path / "driver.cpp").write_text(DRIVER)
    include = [f"-I{folder}" for folder in find_toolkit(None).include_dirs]
    # The driver's other functions are never called.
    options = [
        "-std=c++17",
        "-O1",
        "-no-pie",
        "-Wl,-z,lazy,--unresolved-symbols=ignore-all",
        *include,
    ]
    subprocess.run(
        [compiler, *options, "driver.cpp", "-o", "driver"], cwd=tmp_path, check=True, timeout=120
    )
    done = subprocess.run(
        [tmp_path / "driver"], capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout.splitlines() == [
        "6 3 (nil) 128 100 2 256 25600 64 64 1 3 3 1",
        "6 2 0x10 128 200 256 8 64 0 0 0",
        "7 2 0x50 4 100 16 4 16 0 0 0",
    ]


def test_no_text_of_launch_json_becomes_code_of_the_header(workload):
    evil = 'x"}}; int stolen = 1; //\n'
    named = {**workload, "name": evil, "launches": [{**workload["launches"][0], "entry": evil}]}
    text = launch_header({"arch": evil, "workloads": [named]})
    assert "stolen" not in re.sub(r'"(?:\\.|[^"\\\n])*"', "", text)
    for key, place in (("name", -1), ("kind", 0)):
        arguments = [dict(argument) for argument in workload["arguments"]]
        arguments[place][key] = "q = {}; int stolen"
        with pytest.raises(ValueError, match="is no name"):
            launch_header({"arch": "sm_90", "workloads": [{**workload, "arguments": arguments}]})
