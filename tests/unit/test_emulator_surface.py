"""Values and lane maps of each primitive against NumPy and ml_dtypes; GPUs run the same texts."""

from __future__ import annotations

import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
from emulator_harness import ORDERS, TEMPLATE_INCLUDE, prepared
from slow_cases import quick_every, quick_first

from bench.correctness.conformance import cases
from bench.correctness.conformance.gpu import arch_of, device_source, runs_on
from bench.correctness.gpu_conformance import emulated
from greenfast.search.toolchain import Cubin

CASES = {case.name: case for case in cases()}
LANE, GROUP, POSITION = np.arange(32), np.arange(32) // 4, np.arange(32) % 4
E4M3, E5M2, BFLOAT = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.bfloat16


@pytest.fixture(scope="session")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.fixture
def outputs(emulator):
    return lambda name: emulated(emulator, CASES[name])


@pytest.mark.parametrize(
    "name", quick_every([name for name, case in CASES.items() if not case.fails], 6)
)
@pytest.mark.slow
def test_a_primitive_gives_the_same_in_every_order_and_raises_no_alarm(emulator, name):
    first = emulated(emulator, CASES[name])
    for order in ORDERS:
        again = emulated(emulator, CASES[name], order=order, flavour="checked")
        for output in first:
            assert first[output].tobytes() == again[output].tobytes(), (order, output)


@pytest.mark.parametrize(
    ("architecture", "step"),
    [(90, 5), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in (80, 89, 90))],
)
def test_the_device_form_of_every_case_compiles_with_nvrtc(toolchain, architecture, step):
    for case in list(CASES.values())[::step]:
        if runs_on(case, architecture):
            cubin = toolchain.compile(device_source(case), arch_of(case, architecture))
            assert isinstance(cubin, Cubin), (case.name, cubin)


@pytest.mark.slow  # NVRTC compiles the device form of every case
def test_the_device_form_of_every_header_compiles_with_nvcc(tmp_path):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not on the PATH")
    names = (
        "stmatrix",
        "mma m16n8k8 tf32",
        "mma m16n8k32 e4m3 e5m2",
        "float to tf32 and packed registers",
        "distributed shared memory",
        "approximations",
        "float to fp8",
    )
    files = [tmp_path / f"{number}.cu" for number in range(len(names))]
    for file, name in zip(files, names, strict=True):
        file.write_text(CASES[name].source)
    subprocess.run(
        [nvcc, "-arch=sm_90", "-std=c++17", "-cubin", f"-I{TEMPLATE_INCLUDE}", *files],
        check=True,
        cwd=tmp_path,
    )


# --- tensor cores and their lane maps (PTX ISA, "Matrix Fragments for mma...") ---


@pytest.mark.parametrize("kind", ["half", "nv_bfloat16"])
def test_wmma_operands_hold_the_documented_elements(outputs, kind):
    computed = outputs(f"wmma map {kind} m16n16k16")
    count = 16 if kind == "half" else 8
    i = np.arange(count) % 8
    row = GROUP[:, None] + 8 * (i // 2 % 2)
    depth = POSITION[:, None] * 2 + i % 2 + 8 * (i // 4)
    np.testing.assert_array_equal(computed["a_row"][:, :count], row * 16 + depth)
    np.testing.assert_array_equal(computed["a_col"][:, :count], depth * 16 + row)
    depth, column = POSITION[:, None] * 2 + i % 2 + 8 * (i // 2 % 2), GROUP[:, None] + 8 * (i // 4)
    np.testing.assert_array_equal(computed["b_row"][:, :count], depth * 16 + column)
    np.testing.assert_array_equal(computed["b_col"][:, :count], column * 16 + depth)


def test_wmma_tf32_operands_are_those_of_mma(outputs):
    computed = outputs("wmma map tf32 m16n16k8")
    i = np.arange(4)
    row, depth = GROUP[:, None] + 8 * (i % 2), POSITION[:, None] + 4 * (i // 2)
    np.testing.assert_array_equal(computed["a_row"].view(np.float32), 1 + row * 8 + depth)
    np.testing.assert_array_equal(computed["a_col"].view(np.float32), 1 + depth * 16 + row)
    depth, column = POSITION[:, None] + 4 * (i % 2), GROUP[:, None] + 8 * (i // 2)
    np.testing.assert_array_equal(computed["b_row"].view(np.float32), 1 + depth * 16 + column)
    np.testing.assert_array_equal(computed["b_col"].view(np.float32), 1 + column * 8 + depth)


def mma_answer(a: np.ndarray, b: np.ndarray, c: np.ndarray, neighbours: int) -> np.ndarray:
    """Each lane's part of C + A B from its registers, which hold `neighbours` elements each."""
    whole_a, whole_b, whole_c = (
        np.zeros(shape, np.float64)
        for shape in ((16, 8 * neighbours), (8 * neighbours, 8), (16, 8))
    )
    for lane in range(32):
        g, t = lane // 4, lane % 4
        for register, i in np.ndindex(4, neighbours):
            whole_a[g + 8 * (register % 2), neighbours * (t + 4 * (register // 2)) + i] = a[
                lane, register * neighbours + i
            ]
        for register, i in np.ndindex(2, neighbours):
            whole_b[neighbours * (t + 4 * register) + i, g] = b[lane, register * neighbours + i]
        for i in range(4):
            whole_c[g + 8 * (i // 2), 2 * t + i % 2] = c[lane, i]
    d = whole_c + whole_a @ whole_b
    return np.array(
        [[d[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2] for i in range(4)] for lane in LANE]
    )


@pytest.mark.parametrize(
    "name, type_a, type_b, neighbours",
    quick_first(
        [
            ("m16n8k16 f16", np.float16, np.float16, 2),
            ("m16n8k16 bf16", BFLOAT, BFLOAT, 2),
            ("m16n8k8 tf32", np.float32, np.float32, 1),
            ("m16n8k32 e4m3 e4m3", E4M3, E4M3, 4),
            ("m16n8k32 e4m3 e5m2", E4M3, E5M2, 4),
            ("m16n8k32 e5m2 e4m3", E5M2, E4M3, 4),
            ("m16n8k32 e5m2 e5m2", E5M2, E5M2, 4),
        ],
        3,
    ),
)
def test_mma_multiplies_by_the_documented_lane_map(outputs, name, type_a, type_b, neighbours):
    inputs = CASES[f"mma {name}"].inputs
    a, b = inputs["a"].view(type_a).astype(np.float64), inputs["b"].view(type_b).astype(np.float64)
    assert np.abs(a).max() > 4 and np.abs(b).max() > 4
    np.testing.assert_array_equal(
        outputs(f"mma {name}")["d"], mma_answer(a, b, inputs["c"], neighbours)
    )


def test_mma_drops_what_tf32_does_not_hold(outputs):
    np.testing.assert_array_equal(
        outputs("mma m16n8k8 tf32, low bits set")["d"], outputs("mma m16n8k8 tf32")["d"]
    )


def test_wmma_tf32_equals_numpy(outputs):
    inputs = CASES["wmma tf32"].inputs
    want = inputs["a"].reshape(16, 8) @ inputs["b"].reshape(16, 8).T + 1
    np.testing.assert_array_equal(outputs("wmma tf32")["d"].reshape(16, 16), want)


# --- matrices in shared memory ---


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix_move_the_documented_elements(outputs, count):
    loaded, stored = outputs("ldmatrix"), outputs("stmatrix")
    low, high = GROUP * 8 + 2 * POSITION, GROUP * 8 + 2 * POSITION + 1
    low_turned, high_turned = 2 * POSITION * 8 + GROUP, (2 * POSITION + 1) * 8 + GROUP
    for m in range(count):
        np.testing.assert_array_equal(
            loaded[f"x{count}"][:, m], (m * 64 + high) << 16 | (m * 64 + low)
        )
        np.testing.assert_array_equal(
            loaded[f"x{count}t"][:, m], (m * 64 + high_turned) << 16 | (m * 64 + low_turned)
        )
        registers = CASES["stmatrix"].inputs["registers"][:, m]
        plain, turned = (
            stored[name][m * 64 : (m + 1) * 64] for name in (f"x{count}", f"x{count}t")
        )
        for matrix, at_low, at_high in ((plain, low, high), (turned, low_turned, high_turned)):
            np.testing.assert_array_equal(matrix[at_low], registers & 0xFFFF)
            np.testing.assert_array_equal(matrix[at_high], registers >> 16)
    assert (stored[f"x{count}"][count * 64 :] == 0xBEEF).all()


def test_asynchronous_copies_fill_the_rest_with_zeros(outputs):
    source = CASES["cp.async with zero fill"].inputs["source"].reshape(32, 16)
    for size, computed in (
        (size, outputs("cp.async with zero fill")[f"of{size}"]) for size in (4, 8, 16)
    ):
        valid = np.arange(size) < (LANE % (size + 1))[:, None]
        np.testing.assert_array_equal(computed, np.where(valid, source[:, :size], 0))


# --- narrow formats ---


def same(computed: np.ndarray, want: np.ndarray) -> None:
    """Bit for bit, NaNs apart."""
    nan = np.isnan(want.astype(np.float32))
    words = f"u{computed.dtype.itemsize}"
    np.testing.assert_array_equal(computed.view(words)[~nan], want.view(words)[~nan])
    assert np.isnan(computed.view(want.dtype)[nan].astype(np.float32)).all()


def saturated(x: np.ndarray, dtype) -> np.ndarray:
    """Rounded, and what overflowed to NaN or infinity is the largest finite value."""
    largest = float(ml_dtypes.finfo(dtype).max)
    with np.errstate(invalid="ignore"):
        return np.clip(x, -largest, largest).astype(dtype)


def test_every_fp8_code_becomes_what_ml_dtypes_says(outputs):
    computed = outputs("fp8 codes to float and half")
    codes = np.arange(256, dtype=np.uint8)
    same(computed["e4m3"], codes.view(E4M3).astype(np.float32))
    same(computed["e5m2"], codes.view(E5M2).astype(np.float32))
    same(computed["half_e4m3"], codes.view(E4M3).astype(np.float16))
    same(computed["half_e5m2"], codes.view(E5M2).astype(np.float16))
    same(computed["pair"], codes.view(E4M3).astype(np.float32))
    same(computed["four"], codes.view(E5M2).astype(np.float32))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_floats_round_to_fp8_as_ml_dtypes_rounds_them(outputs):
    x, computed = CASES["float to fp8"].inputs["x"], outputs("float to fp8")
    assert np.isnan(x).sum() > 10
    same(computed["e4m3"], saturated(x, E4M3))
    same(computed["e4m3_open"], x.astype(E4M3))
    same(computed["e5m2"], saturated(x, E5M2))
    same(computed["e5m2_open"], x.astype(E5M2))
    same(computed["of_type"], saturated(x, E5M2))
    both = np.stack([x, x.reshape(-1, 2)[:, ::-1].reshape(-1)], axis=1)
    same(computed["pair"].view(np.uint8).reshape(-1, 2), saturated(both, E4M3))
    same(computed["pair_open"].view(np.uint8).reshape(-1, 2), both.astype(E5M2))
    four = np.stack([x[np.arange(x.size) ^ i] for i in range(4)], axis=1)
    same(computed["four"].view(np.uint8).reshape(-1, 4), saturated(four, E4M3))
    assert set(computed["e4m3"][np.isnan(x)]) == {0x7F} and set(
        computed["e5m2_open"][np.isnan(x)]
    ) == {0x7F}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_half_and_bfloat16_rounds_to_fp8_as_ml_dtypes_rounds_it(outputs):
    computed = outputs("half and bfloat16 to fp8")
    bits = np.arange(65536, dtype=np.uint16)
    half, bfloat = bits.view(np.float16).astype(np.float32), bits.view(BFLOAT).astype(np.float32)
    same(computed["e4m3"], saturated(half, E4M3))
    same(computed["e4m3_open"], half.astype(E4M3))
    same(computed["e5m2"], saturated(half, E5M2))
    same(computed["e5m2_open"], half.astype(E5M2))
    same(computed["bf_e4m3"], saturated(bfloat, E4M3))
    same(computed["bf_e5m2_open"], bfloat.astype(E5M2))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_packed_registers_and_tf32(outputs):
    x, computed = (
        CASES["float to tf32 and packed registers"].inputs["x"],
        outputs("float to tf32 and packed registers"),
    )
    bits = x.view(np.uint32)
    rounding = np.where(
        np.isnan(x), np.uint32(0), np.uint32(0x1000)
    )  # a NaN keeps its leading bits
    want = (bits + rounding) & np.uint32(0xFFFFE000)
    np.testing.assert_array_equal(computed["tf32"], want)
    both = np.stack([x, x.reshape(-1, 2)[:, ::-1].reshape(-1)], axis=1)
    positive = np.where(both <= 0, np.float32(0), both)
    for name, dtype in (("half2", np.float16), ("bfloat2", BFLOAT)):
        same(computed[name].view(np.uint16).reshape(-1, 2), both.astype(dtype))
        same(computed[f"{name}_relu"].view(np.uint16).reshape(-1, 2), positive.astype(dtype))
    same(computed["unpacked"][:, :2], both.astype(np.float16).astype(np.float32))
    same(computed["unpacked"][:, 2:], both.astype(BFLOAT).astype(np.float32))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_half_arithmetic_rounds_once(outputs):
    computed = outputs("half and bfloat16 arithmetic")
    bits = CASES["half and bfloat16 arithmetic"].inputs["bits"].reshape(3, -1)
    for name, dtype in (("half", np.float16), ("bfloat", BFLOAT)):
        a, b, _ = bits.view(dtype)
        for column, want in enumerate((a + b, a - b, a * b)):
            same(computed[name][:, column], want)


def test_16_bit_atomics_sum(outputs):
    x, computed = CASES["16-bit atomics"].inputs["x"], outputs("16-bit atomics")
    np.testing.assert_array_equal(computed["half_sum"].view(np.float16), [1 + x.sum(), 62])
    np.testing.assert_array_equal(
        computed["bfloat_sum"].view(BFLOAT).astype(np.float32), [64, 4 - x.sum()]
    )
    np.testing.assert_array_equal(computed["one"].view(np.float16), [x.sum() + 0.5])


# --- collectives and approximations ---


def test_reductions_equal_numpy(outputs):
    x, computed = CASES["warp reductions"].inputs["x"], outputs("warp reductions")
    assert (computed["whole"] == [x.sum(), x.min(), x.max()]).all()
    u = x.view(np.uint32)
    folds = [
        u.sum(dtype=np.uint32),
        u.min(),
        u.max(),
        *(f.reduce(u) for f in (np.bitwise_and, np.bitwise_or, np.bitwise_xor)),
    ]
    assert (computed["unsigned_whole"] == folds).all()
    assert (computed["part"] == np.where(LANE % 2, x[1::2].sum(), x[::2].sum())).all()


def test_barriers_vote(outputs):
    assert (outputs("__syncthreads with a vote")["out"] == [48, 1, 0]).all()


@pytest.mark.parametrize(
    "name, function",
    [
        ("exp2", np.exp2),
        ("log2", np.log2),
        ("reciprocal", lambda x: 1 / x),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("sqrt", np.sqrt),
        ("tanh", np.tanh),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_approximations_stay_within_their_stated_error(outputs, name, function):
    x = CASES["approximations"].inputs["x"]
    relative, absolute = CASES["approximations"].bounds[name]
    flushed = x if name == "tanh" else np.where(np.abs(x) < 2.0**-126, np.copysign(0, x), x)
    want, computed = function(flushed.astype(np.float64)), outputs("approximations")[name]
    finite = (
        np.isfinite(want) & (np.abs(want) >= 2.0**-126) & (np.abs(want) <= np.finfo(np.float32).max)
    )
    assert (np.abs(computed - want)[finite] <= relative * np.abs(want[finite]) + absolute).all()
    np.testing.assert_array_equal(np.isnan(computed), np.isnan(want))
    if name != "tanh":
        tiny = np.abs(want) < 2.0**-127
        assert (computed[tiny] == 0).all()


# --- clusters ---


def test_blocks_know_their_place_in_their_cluster(outputs):
    computed = outputs("cluster ids")["ids"].reshape(4, 6, 12)
    y, x = np.meshgrid(np.arange(4), np.arange(6), indexing="ij")
    zero, one, two = (np.full_like(x, value) for value in (0, 1, 2))
    want = [y % 2 * 2 + x % 2, 4 * one, two, two, one, x % 2, y % 2, zero, x // 2, y // 2, zero, x]
    np.testing.assert_array_equal(computed, np.stack(want, axis=-1))


def test_blocks_read_and_update_each_others_shared_memory(outputs):
    x, computed = (
        CASES["distributed shared memory"].inputs["x"].reshape(2, 4, 64),
        outputs("distributed shared memory"),
    )
    np.testing.assert_array_equal(computed["from_static"].reshape(2, 4, 64), np.roll(x, -1, axis=1))
    np.testing.assert_array_equal(
        computed["from_dynamic"].reshape(2, 4, 64), 2 * np.roll(x, 1, axis=1)[..., ::-1]
    )
    want = np.zeros((2, 4, 8), int)
    for cluster in range(2):
        np.add.at(want[cluster], (x[cluster].ravel() % 4, x[cluster].ravel() % 8), 1)
    np.testing.assert_array_equal(computed["histogram"].reshape(2, 4, 8), want)
