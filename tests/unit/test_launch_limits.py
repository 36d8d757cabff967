"""Launches that no device runs are refused, and named with the limit that they exceed."""

from __future__ import annotations

import pytest

from greenfast.app.bundle.machine_code import as_text
from greenfast.search.diagnose.plain import GivenLaunch, PlainOptions, read_plain
from greenfast.search.errors import SpecError
from greenfast.search.targets.emulator.target import EmulatorTarget
from greenfast.search.toolchain.launch_bounds import other_clusters, over_launch_bounds

PTX = """
.visible .entry bound(
\t.param .u64 bound_param_0
)
.maxntid 64, 2, 1
.minnctapersm 2
{
\tret;
}
.visible .entry free()
{
\tret;
}
"""


@pytest.mark.parametrize(
    "entries, threads, is_over",
    [
        (("bound",), 128, False),
        (("bound",), 129, True),
        (("free",), 1024, False),
        (("bound", "free"), 1024, False),  # which one has the large block is not known
        (("other",), 1024, False),
    ],
)
def test_a_block_beyond_its_launch_bounds_is_named(entries, threads, is_over):
    sentence = over_launch_bounds(PTX, entries, threads)
    assert bool(sentence) == is_over
    assert not is_over or ("129 threads" in sentence and "at most 128" in sentence)


CLUSTERS = """
.visible .entry pair(
\t.param .u64 pair_param_0
)
.explicitcluster
.reqnctapercluster 2, 1, 1
{
}
.visible .entry open()
.explicitcluster
{
}
.visible .entry grid_of_clusters()
.blocksareclusters
.reqntid 128, 1, 1
.reqnctapercluster 2, 1, 1
{
}
// .entry alone() .reqnctapercluster 2, 1, 1 {
/* .entry alone()
.reqnctapercluster 2, 1, 1 { */
.pragma ".entry alone() .reqnctapercluster 2, 1, 1 {";
.visible .entry alone()
{
}
"""


@pytest.mark.parametrize(
    ("entry", "cluster", "sentence"),
    [
        ("pair", (2, 1, 1), ""),
        ("pair", (1, 1, 1), "compiled for clusters of 2 x 1 x 1"),  # the word was in a macro
        ("alone", (2, 1, 1), "compiled for clusters of 1 x 1 x 1"),  # it was in a comment
        ("alone", (1, 1, 1), ""),
        ("open", (1, 1, 1), "whose size each launch gives"),
        ("grid_of_clusters", (2, 1, 1), "for grids of clusters"),
        ("other", (4, 1, 1), ""),
    ],
)
def test_the_compiled_cluster_counts_and_not_the_word_in_the_text(entry, cluster, sentence):
    told = other_clusters(CLUSTERS, ((entry, cluster),))
    assert sentence in told and bool(told) == bool(sentence)


@pytest.mark.parametrize(
    ("text", "cluster"),
    [
        ('/* __cluster_dims__(2, 1, 1) */ extern "C" __global__', 2),
        ('#define PAIR(n) __cluster_dims__(n, 1, 1)\nextern "C" __global__ PAIR(2)', 1),
    ],
    ids=["comment", "macro"],
)
def test_a_text_does_not_hide_its_cluster(text, cluster, toolchain):
    source = as_text(f"{text} void mine(float* y) {{ y[0] = 1; }}\n", ("mine",))
    cubin = toolchain.compile(source, "sm_90")
    assert "compiled for clusters" in other_clusters(cubin.ptx, (("mine", (cluster, 1, 1)),))


def test_a_stored_text_has_the_lines_of_compilers():
    """A form feed ends none of them; `greenfast verify` ended with a traceback."""
    assert as_text("int a;\f\u2028int b;\nint c;\n", ("k",)).marked().count("\n") == 3


TEXT = """
constexpr int warps = 2;
template <int W> __global__ void __launch_bounds__(warps * W, 2) bound(float* y) { y[0] = 1; }
__global__ void __cluster_dims__(4, 1, 1) clustered(float* y) { y[blockIdx.x] = 1; }
__launch_bounds__(sizeof(float) * 8) __global__ void unknown(float* y) { y[0] = 1; }
"""


@pytest.fixture(scope="module")
def target(artifacts, catalogue):
    return EmulatorTarget("h200", artifacts, catalogue.include_dirs, 1, 20.0)


def launched(target, folder, entry, *, grid=(1, 1, 1), block=(32, 1, 1), cluster=(1, 1, 1), smem=0):
    (folder / "k.cu").write_text(TEXT)
    launch = GivenLaunch(entry, grid, block, cluster, smem, ("y:float[8]:out",), ())
    plain = read_plain(folder / "k.cu", launch, PlainOptions(), target)
    return plain.brought.problem.launches[0]


@pytest.mark.parametrize(
    "entry, options, words",
    [
        (
            "bound<32>",
            {"block": (65, 1, 1)},
            "65 threads a block, and its __launch_bounds__ allow 64",
        ),
        ("clustered", {"grid": (6, 1, 1)}, "not a multiple of its cluster of 4 x 1 x 1"),
        (
            "clustered",
            {"grid": (8, 1, 1), "cluster": (2, 1, 1)},
            "its text declares 4 x 1 x 1",
        ),
        ("bound<32>", {"grid": (1, 65536, 1)}, "grid = 1 x 65536 x 1; CUDA allows at most"),
        ("bound<32>", {"block": (1, 1, 65)}, "block = 1 x 1 x 65; CUDA allows at most"),
        ("bound<32>", {"smem": 240_000}, "240000 bytes of shared memory a block; h200 has 232448"),
    ],
)
def test_a_launch_that_no_device_makes_is_refused(target, tmp_path, entry, options, words):
    with pytest.raises(SpecError) as refused:
        launched(target, tmp_path, entry, **options)
    assert words in str(refused.value)


def test_a_launch_at_the_limits_is_not(target, tmp_path):
    assert launched(target, tmp_path, "bound<64>", block=(128, 1, 1)).block == (128, 1, 1)
    assert launched(target, tmp_path, "unknown", block=(1024, 1, 1)).block == (1024, 1, 1)
    assert launched(target, tmp_path, "bound<32>", grid=(2, 65535, 1)).grid == (2, 65535, 1)
    assert launched(target, tmp_path, "clustered", grid=(8, 1, 1)).cluster == (4, 1, 1)
