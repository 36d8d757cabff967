"""A call of a size that kernel.toml does not allow is refused, and never launched.

`greenfast import` writes a number in a shape as such a dim: the grid may be for this size alone.
"""

from __future__ import annotations

import pytest

from greenfast.app.cli.new import kernel_files_of
from greenfast.runtime import cpp_header
from greenfast.runtime.operation import completed, read_operation
from greenfast.runtime.program import TensorFacts, complete_sizes
from greenfast.search.errors import UsageError
from greenfast.search.kernels.catalogue import load_kernel


@pytest.fixture(scope="module")
def operation():
    text = kernel_files_of("vecsum")["kernel.toml"]
    changed = text.replace('M = { time = "run", ', 'M = { time = "run", values = [4, 16], ')
    assert changed != text
    return read_operation(changed.encode())


def _facts(operation, rows):
    return {
        each.name: TensorFacts("float32", (rows, 8), (8, 1))
        for each in operation.tensors
        if not each.output and len(each.shape) == 2
    }


def test_only_the_listed_sizes_are_taken(operation):
    assert complete_sizes(operation, _facts(operation, 16), {})["M"] == 16
    with pytest.raises(UsageError, match="has no M=5; it takes 4, 16") as error:
        complete_sizes(operation, _facts(operation, 5), {})
    assert error.value.code == "bad_shape"


def test_the_header_tests_them_too(operation):
    assert "if (!(M == 4 || M == 16))\n        return" in cpp_header._refusal(operation)


def test_a_size_that_kernel_toml_computes_is_not_another(tmp_path):
    """In calls, in the header for C++ and in workloads; no [[requires]] says so."""
    files = kernel_files_of("vecsum")
    files["kernel.toml"] = files["kernel.toml"].replace(
        'N = { time = "run", ', 'N = { time = "run", default = "M // 2", '
    )
    operation = read_operation(files["kernel.toml"].encode())
    ((condition, because),) = operation.requirements
    assert condition({"M": 16, "N": 8}) and not condition({"M": 4, "N": 8})
    assert because == "N={N} must be M // 2; a workload may leave N out"
    assert "if (!((N == floor_div(M, 2LL))))\n        return" in cpp_header._refusal(operation)
    for name, text in files.items():
        (tmp_path / "vecsum" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "vecsum" / name).write_text(text)
    kernel = load_kernel(tmp_path / "vecsum")
    assert dict(kernel.workload_form.workload({"M": 16}, where="it").dims)["N"] == 8
    with pytest.raises(UsageError, match="N=9 must be M // 2"):
        kernel.workload_form.workload({"M": 16, "N": 9}, where="it")


@pytest.mark.parametrize(
    ("default", "size", "rows"),
    [("M + 1", 8, 7), ("M - 2", 8, 10), ("4 * M", 8, 2), ("M * 4", 8, 2), ("4 * M", 9, None)],
)
def test_a_size_follows_from_one_that_is_computed_from_it(default, size, rows):
    """As the rows of a sparse matrix from its offsets."""
    text = kernel_files_of("vecsum")["kernel.toml"].replace(
        'N = { time = "run", ', f'N = {{ time = "run", default = "{default}", '
    )
    values = completed(read_operation(text.encode()), {"N": size})
    assert values.get("M") == rows


def test_a_compiled_size_of_an_output_alone_is_the_kernels():
    """`bins` of a histogram: no input has it, and a call need not give it."""
    text = kernel_files_of("vecsum")["kernel.toml"]
    text = text.replace(
        "[dims]", '[dims]\nbins = { time = "compile", values = [64, 256], doc = "" }'
    )
    sums = 'name = "sums"\nkind = "output"\ndtype = "float32"\nshape = ["M"]'
    assert sums in text
    operation = read_operation(text.replace(sums, sums.replace("M", "bins")).encode())
    facts = _facts(operation, 16)
    assert complete_sizes(operation, facts, {"bins": 256})["bins"] == 256
    with pytest.raises(UsageError, match="no input has the dim bins") as error:
        complete_sizes(operation, facts, {})
    assert error.value.mend == "pass an output that has it: sums=, or give the size itself: bins="
