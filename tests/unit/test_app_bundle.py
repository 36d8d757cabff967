"""Parts of a bundle: reproducible bytes, and C++ tables that agree with launch.json."""

from __future__ import annotations

import pytest

from greenfast.app.bundle.download import laid_out_workload, measured_arch, zip_bytes
from greenfast.app.bundle.launch_header import launch_header
from greenfast.search.devices.facts import device


def test_a_zip_has_the_same_bytes_whatever_the_order_and_the_time():
    first, other = {"b": b"2", "a": b"1"}, {"a": b"1", "b": b"2"}
    assert zip_bytes(first) == zip_bytes(other) != zip_bytes({"a": b"1", "b": b"3"})


def test_a_workload_is_laid_out_with_its_numbers_without_computing_its_reference(catalogue):
    kernel = catalogue.kernel("attention")
    template, preset = kernel.preset("scalar:vec")
    laid_out = laid_out_workload(
        kernel, template, kernel.workload("long"), dict(preset.parameters), device("h200")
    )
    assert (
        laid_out.launches[0].grid == (128, 8, 2)
        and laid_out.launches[0].smem_dynamic_bytes == 16384
    )
    assert {tensor.name: tensor.shape for tensor in laid_out.tensors}["q"] == (2, 8, 2048, 64)


def test_the_header_holds_every_argument_and_launch():
    text = launch_header(
        {
            "arch": "sm_90",
            "workloads": [
                {
                    "name": "line",
                    "flop": 8192,
                    "bytes": 16384,
                    "launches": [
                        {
                            "entry": "axpy",
                            "grid": [32, 1, 1],
                            "block": [128, 1, 1],
                            "smem_dynamic_bytes": 0,
                        }
                    ],
                    "arguments": [
                        {"name": "x", "kind": "input", "dtype": "fp16", "bytes": 8192},
                        {"name": "codes", "kind": "input", "dtype": "uint8", "bytes": 4096},
                        {"name": "N", "kind": "scalar", "dtype": "int32", "value": 4096},
                        {"name": "a", "kind": "scalar", "dtype": "float32", "value": 2.5},
                        {"name": "scratch", "kind": "workspace", "bytes": 64, "zero_fill": True},
                    ],
                }
            ],
        }
    )
    for part in (
        '{"x", Kind::input, Type::fp16, 8192, false, 0LL, 0.0}',
        '{"codes", Kind::input, Type::uint8, 4096, false, 0LL, 0.0}',
        "Type::int32, 0, false, 4096LL, 0.0}",
        "Type::float32, 0, false, 0LL, 2.5}",
        "Kind::workspace, Type::none, 64, true",
        'compiled_arch[] = "sm_90";',
        '{"axpy", {32u, 1u, 1u}, {128u, 1u, 1u}, 0}',
        '{"line", 8192.0, 16384.0, arguments_0, 5, launches_0, 1}',
    ):
        assert part in text


@pytest.mark.parametrize(
    ("target", "environment", "arch"),
    [
        ("emulator:l4", {}, "sm_89"),
        (
            "cuda:0",
            {"device": "nvidia-b200", "arch": "sm_100"},
            "sm_100",
        ),  # no model of our own facts
        ("cuda:0", {"device": "a100"}, "sm_80"),  # stored before the architecture was
        ("replay:mission-mma-h200", {"device": "h200"}, "sm_90"),
        ("cuda:0", {}, "sm_90"),
    ],
)
def test_a_bundle_names_the_architecture_of_the_device_that_was_measured(target, environment, arch):
    assert measured_arch(target, environment) == arch
