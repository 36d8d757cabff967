"""launch.toml: what a person may write, and what is said of everything else."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from greenfast.search.diagnose.brought import read_brought
from greenfast.search.diagnose.brought_buffers import BUFFER_DTYPES
from greenfast.search.diagnose.check import compare
from greenfast.search.diagnose.launch_file import read_launch
from greenfast.search.errors import SpecError
from greenfast.search.oracle.problem import POISON, Scalar
from greenfast.search.targets.base import Execution

WHOLE = """
[[buffers]]
name = "x"
role = "input"
dtype = "float32"
shape = [2, 3]

[[buffers]]
name = "y"
role = "output"
dtype = "fp16"
elements = 4

[[launches]]
entry = "k"
grid = [4, 2]
block = 128
smem_dynamic_bytes = 64
arguments = ["x", "y", { int32 = -7 }, { float32 = 2.5 }, { null = true }]
"""
CUDA = 'extern "C" __global__ void k(const float* x, __half* y, int n, float a, float* none) {}\n'


@pytest.fixture
def written(tmp_path):
    def write(text: str = WHOLE, cuda: str = CUDA):
        (tmp_path / "launch.toml").write_text(text)
        (tmp_path / "k.cu").write_text(cuda)
        return tmp_path / "k.cu", tmp_path / "launch.toml"

    return write


def test_a_launch_becomes_a_problem_with_everything_in_its_place(written):
    problem, expected = read_launch(written()[1], seed=1)
    x, y = problem.tensors
    assert (x.shape, x.dtype, x.role, x.starts_poisoned) == ((2, 3), np.float32, "input", False)
    assert (y.shape, y.dtype, y.image.nbytes, y.starts_poisoned) == ((4,), np.float16, 8, True)
    (launch,) = problem.launches
    assert (launch.entry, launch.grid, launch.block, launch.smem_dynamic_bytes) == (
        "k",
        (4, 2, 1),
        (128, 1, 1),
        64,
    )
    assert (
        launch.arguments == (x, y, Scalar("int32", -7), Scalar("float32", 2.5), None)
        and expected == ()
    )


@pytest.mark.parametrize(
    ("fill", "values"),
    [
        ('"zeros"', [0, 0, 0, 0]),
        ('"ones"', [1, 1, 1, 1]),
        ('"iota"', [0, 1, 2, 3]),
        ("7", [7, 7, 7, 7]),
    ],
)
@pytest.mark.parametrize("dtype", sorted(BUFFER_DTYPES))
def test_fills_hold_what_they_say_in_every_type(written, fill, values, dtype):
    text = WHOLE.replace('"fp16"\nelements = 4', f'"{dtype}"\nelements = 4\nfill = {fill}')
    tensor = read_launch(written(text)[1], 0)[0].tensors[1]
    assert tensor.view(tensor.image).astype(float).tolist() == values and not tensor.starts_poisoned


def test_random_follows_from_the_seed_and_poison_counts_as_never_written(written):
    path = written(
        WHOLE + '[[buffers]]\nname = "w"\nrole = "workspace"\ndtype = "int32"\nelements = 3\n'
        'fill = "random"'
    )[1]
    images = [
        [tensor.image.tolist() for tensor in read_launch(path, seed)[0].tensors]
        for seed in (1, 1, 2)
    ]
    assert images[0] == images[1] != images[2]
    assert set(images[0][1]) == {POISON}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("elements = 4", "elementz = 4", "elements or shape"),
        ("elements = 4", "elements = 4\nsize = 3", "unknown key 'size'"),
        ("elements = 4", "elements = -4", "whole numbers from 0"),
        ("elements = 4", "elements = 4000000000", "1 GiB"),
        ('"fp16"', '"half"', "it may be fp16, bf16"),
        ('"output"', '"result"', "input, output, workspace"),
        ('"y"\nrole', '"x"\nrole', "a second buffer 'x'"),
        ('"y"\nrole', '"y y"\nrole', "names are letters"),
        ('entry = "k"', 'entry = "k()"', "not a valid function name"),
        ("grid = [4, 2]", "grid = 0", "whole numbers above 0"),
        ("grid = [4, 2]", "grid = [1, 1, 1, 1]", "one to three"),
        ("block = 128", "block = 2048", "at most 1024 x 1024 x 64"),
        ("block = 128", "block = [64, 32]", "at most 1024 threads"),
        ('"x", "y", {', '"x", "z", {', "known: x, y"),
        ("int32 = -7", "int32 = 3000000000", "{ int32 = ... }"),
        ("int32 = -7", "int4 = 1", "{ uint32 = ... }"),
        ("int32 = -7", "int32 = true", "an argument is a buffer's name"),
        ("[[launches]]", "[[launch]]", "there is no [[launches]]"),
        (
            'fp16"\nelements = 4',
            'fp16"\nelements = 4\nfill = "noise"',
            "random, zeros, ones, iota, poison or a number",
        ),
        ('name = "x"', 'name = "x"\nfile = "no.npy"', "no.npy cannot be read"),
    ],
)
def test_a_mistake_is_refused_in_one_sentence_that_names_the_place(written, old, new, says):
    assert old in WHOLE
    with pytest.raises(SpecError) as refused:
        read_launch(written(WHOLE.replace(old, new, 1))[1], 0)
    assert (
        says in str(refused.value)
        and "launch.toml" in str(refused.value)
        and "\n" not in str(refused.value)
    )


def test_files_beside_it_are_taken_in_once_and_keep_their_lines(
    written, tmp_path, monkeypatch, catalogue
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.cuh").write_text('#pragma once\n#include "b.cuh"\nint a;\n')
    (tmp_path / "b.cuh").write_text("int b;\n")
    cuda = (
        '#include <cuda_fp16.h>\n#include "a.cuh"\n#include "b.cuh"\n#include "gf/dtype.cuh"\n'
        + CUDA
    )
    brought = read_brought(*written(cuda=cuda), catalogue.include_dirs, 0)
    assert (
        brought.source.unit.count("int b;") == 1
        and '#include "gf/dtype.cuh"' in brought.source.unit
    )
    where = {
        text.strip(): (line.file, line.number)
        for text, line in zip(brought.source.text.splitlines(), brought.source.lines, strict=True)
    }
    assert (
        where["int b;"] == ("b.cuh", 1)
        and where["int a;"] == ("a.cuh", 3)
        and where[CUDA.strip()] == ("k.cu", 5)
    )
    assert (
        set(brought.files) == {"k.cu", "a.cuh", "b.cuh"} and "dtype.cuh" not in brought.source.text
    )


def test_an_entry_that_the_file_does_not_have_is_refused(written, catalogue):
    with pytest.raises(SpecError, match=r"'k' is not in k.cu"):
        read_brought(
            *written(cuda=CUDA.replace("void k(", "void other(")), catalogue.include_dirs, 0
        )


@pytest.mark.parametrize(
    ("text", "is_asm"),
    [
        ('asm volatile("mov.u32 %0, %laneid;");', True),
        ("// no asm here", False),
        ("int plasma = 1;", False),
    ],
)
def test_inline_assembly_is_seen_and_the_word_in_a_comment_is_not(written, catalogue, text, is_asm):
    brought = read_brought(*written(cuda=text + "\n" + CUDA), catalogue.include_dirs, 0)
    assert brought.source.raw_asm is is_asm


@pytest.mark.parametrize(
    ("got", "value", "is_right"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.05], [1.0, 2.0], True),
        ([1.0, 2.5], [1.0, 2.0], False),
        ([np.nan, 2.0], [1.0, 2.0], False),
        ([np.nan, 2.0], [np.nan, 2.0], True),
        ([np.inf, 2.0], [np.inf, 2.0], True),
        ([np.inf, 2.0], [-np.inf, 2.0], False),
    ],
)
def test_an_expected_output_is_compared_within_its_tolerance(
    written, tmp_path, got, value, is_right
):
    np.save(tmp_path / "y.npy", np.array(value))
    text = (
        WHOLE.replace("elements = 4", "elements = 2")
        + """
[[expect]]
output = "y"
file = "y.npy"
absolute_tolerance = 0.1
"""
    )
    problem, (expected,) = read_launch(written(text)[1], 0)
    image = np.array(got, np.float16).view(np.uint8)
    difference = compare(Execution(problem, "forward", {"y": image}, None), expected)
    assert (difference is None) is is_right
    if difference is not None:
        assert difference.kind == "wrong_values" and "y[" in difference.sentence


def test_every_type_is_one_that_numpy_knows():
    assert BUFFER_DTYPES["e4m3"] == ml_dtypes.float8_e4m3fn and len(
        {str(dtype) for dtype in BUFFER_DTYPES.values()}
    ) == len(BUFFER_DTYPES)
