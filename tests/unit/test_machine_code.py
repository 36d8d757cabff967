"""Machine code of a bundle is what its name and its launch state, or the bundle is not loaded."""

from __future__ import annotations

import json
import random
import struct

import pytest
from runtime_bundles import files_of, sealed, zipped
from slow_cases import quick_first

import greenfast
from greenfast.runtime.machine_code import code_fault, sm_version
from greenfast.search.errors import UsageError

SET, CUBIN, LAUNCH = "rmsnorm-h200.zip", "kernels/k0/kernel.sm_90.cubin", "kernels/k0/launch.json"
IMAGE = files_of(SET)[CUBIN]
OTHER = files_of(SET)["kernels/k1/kernel.sm_90.cubin"]  # of another entry
ENTRY, BYTES = "rmsnorm_cluster", [8] * 5 + [4] * 3 + [8] * 4


def put(image: bytes, form: str, at: int, value: int) -> bytes:
    data = bytearray(image)
    struct.pack_into(form, data, at, value)
    return bytes(data)


def loaded(tmp_path, files):
    return greenfast.load(zipped(tmp_path / "changed.zip", files))


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (put(IMAGE, "<I", 0x30, 0x6005004), "it is machine code for sm_80"),
        (put(put(IMAGE, "<B", 8, 7), "<I", 0x30, 0x500550), "it is machine code for sm_80"),
        (put(IMAGE, "<B", 4, 1), "of another machine"),
        (put(IMAGE, "<H", 0x12, 62), "of another machine"),
        (b"not machine code", "it is not an ELF file"),
        (b"", "it is not an ELF file"),
        (IMAGE[:40], "cut off"),
        (IMAGE[: len(IMAGE) // 2], "cut off"),
        (put(IMAGE, "<Q", 0x28, 2**64 - 1), "cut off"),
        (OTHER, "it has no entry rmsnorm_cluster"),
        (IMAGE.replace(b".nv.callgraph\0", b".nv.compat\0...", 1), "cut off or damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_code_than_the_name_states_is_refused_with_what_it_is(tmp_path, image, why):
    with pytest.raises(UsageError, match=why) as refused:
        loaded(tmp_path, sealed({**files_of(SET), CUBIN: image}))
    assert refused.value.code == "bad_bundle" and "for sm_90 is wrong" in refused.value.message


def test_an_entry_that_takes_other_arguments_than_a_launch_passes_is_refused(tmp_path):
    """The driver would read as many arguments as the entry takes, beyond those that are there."""
    files = files_of(SET)
    launch = json.loads(files[LAUNCH])
    launch["interface"].append({"name": "more", "kind": "workspace", "bytes": "64"})
    files[LAUNCH] = json.dumps(launch).encode()
    with pytest.raises(UsageError, match="12 arguments of 84 bytes, and a launch passes 13"):
        loaded(tmp_path, sealed(files))
    assert code_fault(IMAGE, "sm_90", {ENTRY: BYTES}) == ""
    assert "takes 12 arguments" in code_fault(IMAGE, "sm_90", {ENTRY: BYTES[:-1]})


def test_no_byte_of_machine_code_makes_reading_it_fail():
    rng = random.Random(1)
    for _ in range(2000):
        image = bytearray(IMAGE[: rng.choice((64, 700, len(IMAGE)))])
        for _ in range(4):
            image[rng.randrange(len(image))] = rng.randrange(256)
        code_fault(bytes(image), "sm_90", {ENTRY: BYTES})
    assert sm_version(IMAGE) == 90


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("entries", {"grid": ["blocks", "1", "1"]}, "unknown name 'blocks'"),
        ("entries", {"smem_dynamic_bytes": "kernel_bytes"}, "unknown name 'kernel_bytes'"),
        ("constants", {"split": {"a": 1}}, "split is neither a number nor text"),
        ("constants", {"split": None}, "split is neither a number nor text"),
    ],
)
def test_a_launch_that_cannot_be_computed_is_refused_when_the_bundle_is_loaded(
    tmp_path, key, value, why
):
    files = files_of(SET)
    launch = json.loads(files[LAUNCH])
    place = launch[key][0] if key == "entries" else launch[key]
    place.update(value)
    files[LAUNCH] = json.dumps(launch).encode()
    with pytest.raises(UsageError, match=why):
        loaded(tmp_path, sealed(files))


@pytest.mark.parametrize("name", ["x", "eps", "h"])
def test_scratch_memory_takes_no_name_of_an_argument(tmp_path, name):
    files = files_of(SET)
    launch = json.loads(files[LAUNCH])
    launch["interface"].append({"name": name, "kind": "workspace", "bytes": "64"})
    files[LAUNCH] = json.dumps(launch).encode()
    with pytest.raises(UsageError, match="two arguments have one name"):
        loaded(tmp_path, sealed(files))


@pytest.mark.parametrize(
    "change",
    quick_first(
        [
            {"tensor": "x"},
            {"tensor": "lse"},
            {"axes": [4, 2, 1, 0]},
            {"axes": [0]},
            {"dtype": "fp4"},
            {"fill": "one"},
            {"box": []},
        ],
        2,
    ),
    ids=str,
)
def test_a_tensor_map_that_no_call_can_have_is_refused(tmp_path, change):
    files = files_of("attention-h200.zip")
    place = next(
        name
        for name, data in files.items()
        if name.endswith("launch.json") and json.loads(data).get("tensor_maps")
    )
    launch = json.loads(files[place])
    launch["tensor_maps"][0].update(change)
    files[place] = json.dumps(launch).encode()
    with pytest.raises(UsageError, match="q_map: "):
        loaded(tmp_path, sealed(files))


def test_a_long_name_in_a_bundle_is_not_repeated_at_length(tmp_path):
    with pytest.raises(UsageError) as refused:
        loaded(tmp_path, sealed(files_of(SET), format="a\x1b[31m\n" * 10_000))
    assert len(refused.value.message) <= 400 and refused.value.message.isprintable()
