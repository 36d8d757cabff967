"""Calls of kernels: what a launch is given, on a driver that runs nothing and on the emulator."""

from __future__ import annotations

import dataclasses
import struct
import threading

import numpy as np
import pytest
from runtime_bundles import (
    ATTENTION_WORDS,
    RECORDED,
    SETS,
    files_of,
    forget_driver,
    use_for_attention,
)

import greenfast
from greenfast.runtime import nvrtc
from greenfast.runtime.calls import Call, Prepared, Refused, prepare, run
from greenfast.runtime.driver import DeviceFacts
from greenfast.runtime.frameworks import NumpyArrays
from greenfast.runtime.modules import fitting
from greenfast.runtime.program import ScratchForm, TensorFacts, contiguous_strides, geometry
from greenfast.runtime.signatures import attention_call
from greenfast.runtime.single_bundle import map_forms
from greenfast.runtime.tensor_maps import MOST_MAPS
from greenfast.search.errors import Fault, UsageError
from greenfast.search.kernels.expressions import expression

RMSNORM_WORDS = 12


@pytest.fixture
def stub(stub_library, monkeypatch):
    return use_for_attention(stub_library, monkeypatch)


@pytest.fixture(scope="module")
def attention():
    return greenfast.load(RECORDED).kernels


@pytest.fixture(scope="module")
def rmsnorm():
    return greenfast.load(SETS / "rmsnorm-h200.zip")


def tensor(*shape, dtype="bf16", strides=None) -> TensorFacts:
    return TensorFacts(dtype, shape, strides or contiguous_strides(shape))


def call_of(q, k=None, mask="none", **settings) -> Call:
    k = k or q
    call = attention_call(
        {"q": q, "k": k, "v": k}, mask, settings.get("scale"), grouped=True, lse=False
    )
    assert isinstance(call, Call), call
    return call


def test_a_launch_has_the_addresses_strides_and_scale_of_its_call(stub, attention):
    state = prepare(attention, call_of(tensor(2, 8, 200, 64), tensor(2, 4, 130, 64)), 0)
    assert isinstance(state, Prepared), state
    state.plan.launch((16, 32, 48, 64), 5)
    (launch,) = stub.launches()
    assert (launch["entry"], launch["stream"]) == ("attention_mma", 5)
    assert launch["grid"] == (7, 8, 2)  # ceil(200 / 32) row tiles
    words = launch["arguments"]
    assert words[:5] == [16, 32, 48, 64, 0]  # lse is null
    assert words[5:9] == [8, 4, 200, 130]
    assert struct.unpack("<f", struct.pack("<I", words[9]))[0] == 0.125
    assert words[10:13] == [8 * 200 * 64, 200 * 64, 64]
    assert words[13:16] == words[16:19] == [4 * 130 * 64, 130 * 64, 64]


@pytest.mark.parametrize(
    ("name", "words"),
    [("NVIDIA H100 80GB HBM3", "of attention-h100,"), ("NVIDIA L4", "no tuned set for NVIDIA L4")],
)
def test_a_shape_alone_is_explained_for_the_gpu_of_this_machine(stub, monkeypatch, name, words):
    monkeypatch.setenv("STUB_GPU_NAME", name)
    forget_driver()
    shape = {"B": 2, "H": 8, "S_q": 256, "D": 64}
    assert words in str(greenfast.explain("attention", **shape))
    assert "of attention-h200," in str(greenfast.explain("attention", gpu="NVIDIA H200", **shape))


def test_shared_memory_is_allowed_even_where_it_is_little(stub, attention):
    """A kernel with 48 KB of its own and a little more at launch needs consent for the little."""
    program = next(iter(attention.programs.values()))
    little = [
        dataclasses.replace(launch, smem_dynamic_bytes=expression("1024", ""))
        for launch in program.launches
    ]
    changed = dataclasses.replace(program, launches=tuple(little))
    kernels = dataclasses.replace(attention, programs={"k0": changed}, groups=())
    state = prepare(kernels, call_of(tensor(2, 8, 128, 64), mask="causal_top_left"), 0)
    assert isinstance(state, Prepared), state
    state.plan.launch((16, 32, 48, 64), 5)
    (launch,) = stub.launches()
    assert launch["smem"] == 1024


def test_outputs_follow_the_memory_order_of_the_queries(stub, attention):
    turned = tensor(2, 8, 256, 64, strides=(3 * 256 * 512, 64, 3 * 512, 1))  # part of q, k and v
    state = prepare(attention, call_of(turned), 0)
    assert isinstance(state, Prepared), state
    assert state.plan.geometry.outputs["o"].strides == (256 * 512, 64, 512, 1)


@pytest.mark.parametrize(
    ("q", "settings", "why"),
    [
        (tensor(2, 8, 256, 64, dtype="fp16"), {}, "no kernel for D=64, dtype=fp16"),
        (tensor(2, 8, 256, 128), {}, "no kernel for D=128"),
        (tensor(2, 8, 2048, 64), {}, "S_kv=2048 is outside the measured range 128 to 512"),
        (tensor(2, 8, 256, 64, strides=(8 * 256 * 65, 256 * 65, 65, 1)), {}, "the stride 65"),
        (tensor(2, 8, 256, 64, strides=(131072, 16384, 1, 256)), {}, "the stride 256 in dim 3"),
        (tensor(2, 8, 256, 64, strides=(131072, 16384, -64, 1)), {}, "multiples of 8"),
    ],
)
def test_what_the_kernels_cannot_take_has_a_reason(stub, attention, q, settings, why):
    state = prepare(attention, call_of(q, **settings), 0)
    assert isinstance(state, Refused)
    assert why in state.why
    assert stub.launches() == []


@pytest.mark.parametrize(
    ("shapes", "settings", "why"),
    [
        (((2, 8, 256), (2, 8, 256), (2, 8, 256)), {}, "not all of the form"),
        (((2, 8, 256, 64), (2, 8, 256, 64), (2, 8, 255, 64)), {}, "need broadcasting"),
        (((2, 8, 256, 64), (1, 8, 256, 64), (1, 8, 256, 64)), {}, "need broadcasting"),
        (((2, 0, 256, 64),) * 3, {}, "empty"),
        (((2, 8, 256, 64), (2, 4, 256, 64), (2, 4, 256, 64)), {}, "enable_gqa is off"),
        (((2, 8, 256, 64), (2, 3, 9, 64), (2, 3, 9, 64)), {"grouped": True}, "not a multiple of 3"),
        (((2, 8, 256, 64),) * 3, {"scale": 0.0}, "the scale is 0.0"),
        (((2, 8, 256, 64),) * 3, {"scale": float("nan")}, "the scale is nan"),
    ],
)
def test_calls_that_are_not_ours_are_left_to_the_library(shapes, settings, why):
    facts = {name: tensor(*shape) for name, shape in zip("qkv", shapes, strict=True)}
    given = {"grouped": False, "scale": None, **settings}
    call = attention_call(facts, "none", given["scale"], grouped=given["grouped"], lse=False)
    assert isinstance(call, Refused)
    assert why in call.why


def test_masks_that_are_the_same_here_use_what_was_measured():
    square, one_row = tensor(2, 8, 256, 64), tensor(2, 8, 1, 64)
    assert call_of(square, mask="causal_bottom_right").options == {"mask": "causal_top_left"}
    assert call_of(one_row, square, mask="causal_bottom_right").options == {"mask": "none"}


def test_threads_do_not_mix_up_their_arguments(stub, attention):
    state = prepare(attention, call_of(tensor(2, 8, 256, 64)), 0)
    assert isinstance(state, Prepared)

    def work(number: int) -> None:
        stub.library.stub_enter()
        for _ in range(300):
            state.plan.launch([number * 1000 + place for place in range(4)], number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    launches = stub.launches()
    assert len(launches) == 1200
    for launch in launches:
        first = launch["stream"] * 1000
        assert launch["arguments"][:4] == [first, first + 1, first + 2, first + 3]


def test_a_thread_without_a_context_launches_in_the_devices_own(stub, attention):
    state = prepare(attention, call_of(tensor(2, 8, 256, 64)), 0)
    assert isinstance(state, Prepared)
    stub.leave()
    state.plan.launch((16, 32, 48, 64), 0)
    assert len(stub.launches()) == 1


def test_scratch_memory_is_zeroed_where_the_kernel_needs_it(stub, attention):
    program = next(iter(attention.programs.values()))
    scratch = (
        ScratchForm("workspace", expression("4 * B * H", ""), False),
        ScratchForm("tickets", expression("4 * B", ""), True),
    )
    changed = dataclasses.replace(program, scratch=scratch)
    kernels = dataclasses.replace(attention, programs={"k0": changed}, groups=())
    stub.reset(ATTENTION_WORDS + 2)
    state = prepare(kernels, call_of(tensor(2, 8, 128, 64), mask="causal_top_left"), 0)
    assert isinstance(state, Prepared), state
    assert state.plan.names == ("q", "k", "v", "o", "workspace", "tickets")
    arrays = {name: np.zeros(16, "uint8") for name in "qkvo"}
    run(state.plan, NumpyArrays(), arrays, arrays["q"], 0)
    assert stub.memsets == 1
    (launch,) = stub.launches()
    assert launch["arguments"][0] == arrays["q"].ctypes.data
    assert 0 not in launch["arguments"][22:24]


def test_tensor_maps_are_encoded_for_the_addresses_of_each_call(stub, attention):
    program = attention.programs["k3"]
    launch = {
        "tensor_maps": [
            {
                "name": "k_map",
                "tensor": "k",
                "dtype": "dtype",
                "sizes": ["D", "S_kv", "H_kv"],
                "axes": [3, 2, 1],
                "strides": [],
                "box": ["64", "tile_n", "1"],
                "swizzle_bytes": "128",
                "fill": "nan",
                "l2_promotion_bytes": "256",
            }
        ]
    }
    mapped = dataclasses.replace(program, tensor_maps=map_forms(launch, program.compiled))
    kernels = dataclasses.replace(attention, programs={"k0": mapped}, groups=())
    k = tensor(1, 1, 100, 64, strides=(3, 5, 128, 1))  # batch and heads of one element
    state = prepare(kernels, call_of(tensor(1, 8, 128, 64), k), 0)
    assert isinstance(state, Prepared), state
    stub.library.stub_show_map(22)
    places = (0x1000, 0x1000, 0x2000, 0x1000)
    for address in places:
        state.plan.launch((16, address, 48, 64), 0)
    maps = [launch["arguments"][22:38] for launch in stub.launches()]
    assert [words[0] for words in maps] == list(places)
    assert stub.library.stub_encoded() == 2
    for address in range(0x3000, 0x3000 + MOST_MAPS):  # more than are kept
        state.plan.launch((16, address, 48, 64), 0)
    state.plan.launch((16, 0x1000, 48, 64), 0)
    assert stub.launches()[-1]["arguments"][22] == 0x1000
    assert stub.library.stub_encoded() == MOST_MAPS + 3
    tile = program.point["tile_n"]
    assert maps[0][1:15] == [3, 9, 3, 3, 1, 64, 100, 1, 0, 256, 16, 64, tile, 1]
    odd = tensor(1, 2, 100, 64, strides=(6400, 6400, 8, 1))
    wide = dataclasses.replace(mapped.tensor_maps[0], box=(expression("64", ""),) * 3)
    assert isinstance(prepare(kernels, call_of(tensor(1, 8, 128, 64), odd), 0), Prepared)
    small = dataclasses.replace(wide, swizzle_bytes=expression("64", ""))
    refused = dataclasses.replace(mapped, tensor_maps=(small,))
    state = prepare(
        dataclasses.replace(kernels, programs={"k0": refused}), call_of(tensor(1, 8, 128, 64)), 0
    )
    assert isinstance(state, Refused) and "the swizzle spans 64" in state.why


def test_code_for_one_architecture_alone_is_compiled_for_no_other(stub, rmsnorm):
    program = dataclasses.replace(rmsnorm.kernels.programs["k0"], arch="sm_100a", cubins={})
    kernels = dataclasses.replace(rmsnorm.kernels, programs={"k0": program}, groups=())
    x = tensor(1, 8192, dtype="fp16")
    call = Call({"x": x, "residual": x, "weight": tensor(8192, dtype="fp16")}, {}, {})
    state = prepare(kernels, call, 0)
    assert isinstance(state, Refused)
    assert "written for sm_100a alone, and NVIDIA H200 is sm_90" in state.why


def test_code_of_another_gpu_names_both_gpus_and_why_its_source_does_not_help(
    stub, rmsnorm, monkeypatch
):
    program = dataclasses.replace(rmsnorm.kernels.programs["k0"], cubins={"sm_80": b""})
    kernels = dataclasses.replace(rmsnorm.kernels, programs={"k0": program}, groups=())

    def none() -> None:
        raise Fault("no NVRTC is installed", mend="pip install it")

    monkeypatch.setattr(nvrtc, "find_toolkit", none)
    x = tensor(1, 8192, dtype="fp16")
    call = Call({"x": x, "residual": x, "weight": tensor(8192, dtype="fp16")}, {}, {})
    state = prepare(kernels, call, 0)
    assert isinstance(state, Refused)
    assert "has machine code for sm_80, NVIDIA H200 is sm_90" in state.why
    assert "cannot be compiled for that: no NVRTC is installed (pip install it)" in state.why


@pytest.mark.parametrize(
    ("device", "archs", "expected"),
    [
        ((9, 0), ["sm_80", "sm_90"], ["sm_90"]),
        ((8, 9), ["sm_80", "sm_86", "sm_90"], ["sm_86", "sm_80"]),
        ((8, 0), ["sm_86"], []),
        ((9, 0), ["sm_90", "sm_90a"], ["sm_90a", "sm_90"]),
        ((10, 3), ["sm_100a", "sm_100", "sm_103"], ["sm_103", "sm_100"]),
        ((12, 0), ["sm_100", "garbage"], []),
    ],
)
def test_machine_code_runs_on_its_major_version_and_higher_minor_ones(device, archs, expected):
    facts = DeviceFacts(0, "GPU", *device, 100, 100_000)
    assert fitting(dict.fromkeys(archs, b""), facts) == expected


def test_refused_machine_code_is_compiled_once_and_kept(
    stub, rmsnorm, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv(nvrtc.CACHE_VARIABLE, str(tmp_path))
    program = rmsnorm.kernels.programs["k0"]
    image = nvrtc.compiled(program.source, "sm_90")
    (kept,) = tmp_path.glob("*.cubin")
    monkeypatch.setattr(nvrtc, "_compile", None)  # nothing compiles from here on
    assert nvrtc.compiled(program.source, "sm_90") == image
    assert image[:4] == b"\x7fELF"
    bare = dataclasses.replace(program, cubins={"sm_90": b"of another driver"})
    kernels = dataclasses.replace(rmsnorm.kernels, programs={"k0": bare}, groups=())
    x = tensor(1, 8192, dtype="fp16")
    call = Call({"x": x, "residual": x, "weight": tensor(8192, dtype="fp16")}, {}, {})
    stub.reset(RMSNORM_WORDS)
    state = prepare(kernels, call, 0)
    assert isinstance(state, Prepared), state
    assert "the driver refuses its machine code" in caplog.text
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")  # damaged on disk: not used
    with pytest.raises(TypeError):
        nvrtc.compiled(program.source, "sm_90")


@pytest.fixture
def emulator_cache(artifacts, tmp_path, monkeypatch):
    (tmp_path / "emulator").symlink_to(artifacts, target_is_directory=True)
    monkeypatch.setenv(nvrtc.CACHE_VARIABLE, str(tmp_path))


def test_a_bundle_is_called_on_the_emulator(emulator_cache):
    kernels = greenfast.load(SETS / "rmsnorm-h200.zip", device="emulator")
    random = np.random.default_rng(0)
    wide = random.standard_normal((3, 4104)).astype(np.float16)
    x, residual = wide[:, :4096], random.standard_normal((3, 4096)).astype(np.float16)
    weight = random.standard_normal(4096).astype(np.float16)
    h, y = kernels(x, residual, weight=weight, eps=1e-3)
    exact = x.astype(np.float64) + residual
    assert np.abs(h - exact).max() < 4e-3
    scale = np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-3)
    assert np.abs(y - exact / scale * weight).max() < 2e-2
    with pytest.raises(UsageError, match="weight is missing"):
        kernels(x, residual)
    with pytest.raises(UsageError, match="has no argument 'gain'"):
        kernels(x, residual, weight, gain=1.0)
    with pytest.raises(UsageError, match="N is 4096 in x and 4000 in weight"):
        kernels(x, residual, weight[:4000])
    with pytest.raises(UsageError, match="outside the measured range 1 to 4096"):
        kernels(np.zeros((5000, 4096), "f2"), np.zeros((5000, 4096), "f2"), weight)


def test_the_emulator_runs_no_other_source_than_the_bundles(emulator_cache, tmp_path, monkeypatch):
    from runtime_bundles import sealed, zipped

    from greenfast.runtime import emulated

    monkeypatch.setattr(emulated, "_PROGRAMS", {})
    files = files_of("rmsnorm-h200.zip")
    for number in range(3):
        name = f"kernels/k{number}/template.cu.j2"
        files[name] += b"// another line\n"
    path = zipped(tmp_path / "other.zip", sealed(files))
    kernels = greenfast.load(path, device="emulator")
    x, weight = np.zeros((3, 4096), "f2"), np.zeros(4096, "f2")
    with pytest.raises(UsageError, match="renders another source"):
        kernels(x, x, weight)


def test_arrays_in_host_memory_are_refused_with_a_reason(rmsnorm):
    x, weight = np.zeros((3, 4096), "f2"), np.zeros(4096, "f2")
    with pytest.raises(UsageError, match=r"not in a GPU's memory|PyTorch"):
        rmsnorm(x, x, weight)
    with pytest.raises(UsageError, match="it has no __dlpack__"):
        rmsnorm([1.0], [1.0], [1.0])


# ---- a call that the chosen kernel cannot run goes to another of the set that can ----

FAR = (1 << 40) // 2  # elements of 2 bytes: a stride that no tensor map holds
MAP = {
    "name": "k_map",
    "tensor": "k",
    "dtype": "dtype",
    "sizes": ["D", "S_kv", "H_kv", "B"],
    "axes": [3, 2, 1, 0],
    "strides": [],
    "box": ["64", "64", "1", "1"],
    "swizzle_bytes": "128",
    "fill": "zero",
    "l2_promotion_bytes": "0",
}


def without_mask(**changes):
    """Three kernels without a mask and one with, the first changed; no library was measured."""
    recorded = greenfast.load(RECORDED).kernels
    programs = {name: recorded.programs[name] for name in ("k3", "k4", "k5", "k0")}
    programs["k3"] = dataclasses.replace(programs["k3"], **changes)
    return dataclasses.replace(recorded, programs=programs, groups=(), has_library=False)


def with_map():
    compiled = greenfast.load(RECORDED).kernels.programs["k3"].compiled
    return {"tensor_maps": map_forms({"tensor_maps": [MAP]}, compiled)}


def far_call(batch_stride: int = 8 * 256 * 64):
    q = TensorFacts("bf16", (2, 8, 256, 64), contiguous_strides((2, 8, 256, 64)))
    k = TensorFacts("bf16", q.shape, (batch_stride, *q.strides[1:]))
    return attention_call({"q": q, "k": k, "v": q}, "none", None, grouped=True, lse=False)


ELSEWHERE = {"arch": "sm_100a", "cubins": {}}


@pytest.mark.parametrize(
    ("changes", "stride", "why"),
    [
        (lambda: ELSEWHERE, 8 * 256 * 64, "written for sm_100a alone, and NVIDIA H200 is sm_90"),
        (with_map, FAR, "k_map"),
    ],
    ids=["another GPU", "a stride too long for the copy engine"],
)
def test_another_kernel_runs_what_the_chosen_one_cannot(stub, changes, stride, why):
    able, unable = without_mask(), without_mask(**changes())
    state = prepare(able, far_call(stride), 0)
    assert isinstance(state, Prepared) and state.plan.program is able.programs["k3"]
    state = prepare(unable, far_call(stride), 0)
    assert isinstance(state, Prepared) and state.plan.program is unable.programs["k4"]
    assert f"{unable.programs['k3'].name} cannot run it" in state.choice.why
    assert why in state.choice.why
    state.plan.launch((16, 32, 48, 64), 0)
    assert len(stub.launches()) == 1


def test_a_set_that_knows_a_library_leaves_the_call_to_it(stub):
    measured = dataclasses.replace(without_mask(**ELSEWHERE), has_library=True)
    state = prepare(measured, far_call(), 0)
    assert isinstance(state, Refused) and "sm_100a alone" in state.why


def test_where_no_kernel_runs_it_each_reason_is_given_once(stub):
    unable = without_mask(**ELSEWHERE)
    programs = {
        name: dataclasses.replace(program, **ELSEWHERE) for name, program in unable.programs.items()
    }
    state = prepare(dataclasses.replace(unable, programs=programs), far_call(), 0)
    assert isinstance(state, Refused) and state.why.count("sm_100a") == 1


def test_kernels_of_other_compile_time_values_are_no_alternative(stub):
    unable = without_mask(**ELSEWHERE)
    kept = {name: unable.programs[name] for name in ("k3", "k0")}
    assert isinstance(prepare(dataclasses.replace(unable, programs=kept), far_call(), 0), Refused)


def test_the_strides_of_an_output_that_is_left_out_are_those_of_a_contiguous_one(attention):
    program = next(iter(attention.programs.values()))
    of_lse = tuple(
        dataclasses.replace(each, stride_of=("lse", 0))
        if getattr(each, "stride_of", None) == ("o", 0)
        else each
        for each in program.operation.arguments
    )
    operation = dataclasses.replace(program.operation, arguments=of_lse)
    program = dataclasses.replace(program, operation=operation)
    q = tensor(2, 8, 256, 64, dtype=str(program.compiled["dtype"]))
    laid_out = geometry(program, {"q": q, "k": q, "v": q}, {}, without=frozenset({"lse"}))
    place = of_lse.index(
        next(each for each in of_lse if getattr(each, "stride_of", 0) == ("lse", 0))
    )
    assert struct.unpack("<q", laid_out.arguments[place]) == (8 * 256,)
    assert "lse" not in laid_out.outputs
