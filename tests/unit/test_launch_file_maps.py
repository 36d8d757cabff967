"""Tensor maps in launch.toml, as docs/tensor_maps.md shows them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from greenfast.app.cli.check_run import check_file
from greenfast.search.devices.facts import device
from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.diagnose.brought import read_brought
from greenfast.search.diagnose.launch_file import read_launch
from greenfast.search.diagnose.plain import PlainOptions
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.targets.emulator.target import EmulatorTarget

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tensor_maps.md"
(EXAMPLE,) = re.findall(
    r"```toml\n(arch_specific(?:(?!```).)*\[\[launches\]\].*?)```", PAGE.read_text(), re.S
)
CUDA = """struct alignas(64) Map { unsigned long long words[16]; };
extern "C" __global__ void copy(const __grid_constant__ Map x_map, __half* y, int rows) {}
"""


@pytest.fixture
def written(tmp_path):
    def write(old: str = "", new: str = "") -> Path:
        assert old in EXAMPLE
        (tmp_path / "k.cu").write_text(CUDA)
        (tmp_path / "launch.toml").write_text(EXAMPLE.replace(old, new) if old else EXAMPLE)
        return tmp_path / "launch.toml"

    return write


def test_the_pages_example_is_a_launch_with_its_map(written):
    problem, _ = read_launch(written(), seed=1)
    x_map, y, rows = problem.launches[0].arguments
    assert x_map == TensorMap("x_map", "x", "fp16", (64, 100), (128,), (64, 32), 128)
    assert (y.name, rows.value) == ("y", 100)
    brought = read_brought(written().with_name("k.cu"), written(), (), 1)
    assert brought.source.arch_specific
    plain = written("arch_specific = true", "arch_specific = false")
    assert not read_brought(plain.with_name("k.cu"), plain, (), 1).source.arch_specific


def test_sizes_and_strides_may_differ_from_the_buffers(written):
    launch = written("box = [64, 32]", "sizes = [8, 50]\nstrides = [128]\nbox = [8, 2]")
    problem, _ = read_launch(launch, seed=1)
    assert problem.arguments[0] == TensorMap("x_map", "x", "fp16", (8, 50), (256,), (8, 2), 128)


def test_a_map_lies_in_a_struct_at_a_multiple_of_64_bytes(written):
    launch = written(
        'arguments = ["x_map", "y", { int32 = 100 }]',
        'arguments = [{ struct = ["y", { struct = [{ int32 = 4 }, "x_map"] }, { int32 = 5 }] }]',
    )
    ((packed,),) = [each.arguments for each in read_launch(launch, seed=1)[0].launches]
    assert packed.pointers == ((0, "y"),)
    ((offset, x_map),) = packed.maps
    assert (offset, x_map.box, len(packed.data)) == (128, (64, 32), 320)
    assert packed.data[64:68] == bytes([4, 0, 0, 0]) and packed.data[256] == 5


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('["x_map", "y"', '["x_map", "x_map"', "is the tensor map x_map, but the parameter is"),
        ('["x_map", "y"', '[{ struct = ["x_map", "y"] }, "y"', "is a value of 192 bytes"),
    ],
)
def test_a_map_for_another_parameter_is_refused(written, artifacts, old, new, words):
    target = EmulatorTarget("h200", artifacts, (), 1, 1.0)
    services = SimpleNamespace(
        target=lambda name, deadline_s=None: target, catalogue=SimpleNamespace(include_dirs=())
    )
    launch = written(old, new)
    with pytest.raises(UsageError, match=words):
        check_file(services, launch.with_name("k.cu"), launch, "emulator:h200", PlainOptions())


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("box = [64, 32]", "box = [128, 32]", "tensor_map", "the swizzle spans 128"),
        ("box = [64, 32]", "box = [64, 32]\nstrides = [63]", "tensor_map", "126 bytes"),
        ("box = [64, 32]", "box = [64]", "tensor_map", "a box of 1 sizes"),
        ("box = [64, 32]", "box = []", "tensor_map", "a box of 0 sizes"),
        ("box = [64, 32]", "box = [64, -1]", "bad_spec", "whole numbers"),
        ("box = [64, 32]", 'box = [64, "32"]', "bad_spec", "whole numbers"),
        ("box = [64, 32]", "box = [64, true]", "bad_spec", "whole numbers"),
        ("box = [64, 32]", "box = [64, 32]\nfill = 'one'", "bad_spec", "fill"),
        ("box = [64, 32]", "box = [64, 32]\nsizes = []", "tensor_map", "0 axes"),
        ('tensor = "x"', 'tensor = "z"', "bad_spec", "known: x, y"),
        ('name = "x_map"', 'name = "y"', "bad_spec", "a second buffer or map 'y'"),
        ('name = "x_map"', 'name = "x-map"', "bad_spec", "letters, digits and _"),
        ('arguments = ["x_map"', 'arguments = ["z_map"', "bad_spec", "known: x, y, x_map"),
        ("arch_specific = true", "arch_specific = 1", "bad_spec", "arch_specific must be bool"),
    ],
)
def test_a_mistake_is_named(written, old, new, code, words):
    with pytest.raises(SpecError) as refused:
        read_launch(written(old, new), seed=1)
    assert refused.value.code == code and words in str(refused.value)


@pytest.mark.parametrize("old", ["", "arch_specific = true"])
def test_a_device_without_tma_is_refused_with_a_target_that_has_it(written, artifacts, old):
    target = EmulatorTarget("l4", artifacts, (), 1, 1.0)
    services = SimpleNamespace(
        target=lambda name, deadline_s=None: target, catalogue=SimpleNamespace(include_dirs=())
    )
    launch = written(old, "arch_specific = false" if old else "")
    with pytest.raises(UsageError, match="need sm_90, and l4 is sm_89") as refused:
        check_file(services, launch.with_name("k.cu"), launch, device("l4").name, PlainOptions())
    assert refused.value.code == "unsupported_device"
    assert "emulator:h200" in str(refused.value)


def test_more_shared_memory_than_the_device_has_is_refused(written, artifacts):
    target = EmulatorTarget("h200", artifacts, (), 1, 1.0)
    services = SimpleNamespace(
        target=lambda name, deadline_s=None: target, catalogue=SimpleNamespace(include_dirs=())
    )
    launch = written("smem_dynamic_bytes = 4096", "smem_dynamic_bytes = 300000")
    with pytest.raises(SpecError, match=r"300000 bytes .* h200 has 232448") as refused:
        check_file(services, launch.with_name("k.cu"), launch, "emulator:h200", PlainOptions())
    assert refused.value.code == "bad_launch"
