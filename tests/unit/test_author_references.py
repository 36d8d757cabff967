"""A reference.py that ends its process, or whose inputs are none, is its author's mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenfast.app.cli.new import kernel_files_of
from greenfast.search.errors import SpecError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.expected import CaseData
from greenfast.search.oracle.reference import compute_case_data, raised

TEXT = kernel_files_of("vecsum")["reference.py"]


def kernel_of(folder: Path, reference: str) -> KernelSpec:
    (folder / "vecsum").mkdir()
    for name, text in {**kernel_files_of("vecsum"), "reference.py": reference}.items():
        (folder / "vecsum" / name).write_text(text)
    return Catalogue([folder]).kernel("vecsum")


def computed(folder: Path, reference: str) -> CaseData:
    kernel = kernel_of(folder, reference)
    return compute_case_data(kernel, workload_case(kernel.workload("odd"), 1), None)


@pytest.mark.parametrize(
    ("added", "sentence"),
    [
        ("\ndef reference(dims, options, inputs):\n    raise SystemExit(7)\n", "SystemExit: 7"),
        ("\ndef make_inputs(d, o, recipe, seed, t):\n    exit()\n", "SystemExit: None"),
        ("\nimport sys; sys.exit(3)\n", "does not load: SystemExit: 3"),
        (
            "\ndef make_inputs(dims, options, recipe, seed, tiles):\n    return None\n",
            "make_inputs returns nothing, and it must return a dict",
        ),
        (
            "\ndef make_inputs(dims, options, recipe, seed, tiles):\n    return {}\n",
            "make_inputs returns no a",
        ),
    ],
)
def test_it_is_told_with_its_cause(tmp_path, added, sentence):
    with pytest.raises(SpecError) as refused:
        computed(tmp_path, TEXT + added)
    assert refused.value.code == "reference_failed"
    assert sentence in str(refused.value) and "vecsum/reference.py" in str(refused.value)


@pytest.mark.parametrize("step", ["inputs['a'] *= 0", "inputs['a'][...] = 0"])
def test_a_reference_cannot_do_a_step_for_the_kernel_in_place(tmp_path, step):
    line = "    a, b = as_float64(inputs)"
    assert TEXT.count(line) == 1
    with pytest.raises(SpecError, match=r"vecsum/reference.py:\d+: case .*read-only") as refused:
        computed(tmp_path, TEXT.replace(line, f"    {step}\n{line}"))
    assert refused.value.code == "reference_failed"


def test_a_reference_that_replaces_an_input_replaces_its_own_alone(tmp_path):
    line = "    a, b = as_float64(inputs)"
    changed = TEXT.replace(line, f"    inputs['a'] = inputs['a'] * 0\n{line}")
    assert computed(tmp_path, changed).inputs["a"].any()


def test_a_kernel_without_templates_is_told_so(tmp_path):
    kernel_of(tmp_path, TEXT)
    (tmp_path / "vecsum" / "block.toml").unlink()
    with pytest.raises(SpecError) as refused:
        Catalogue([tmp_path]).kernel("vecsum")
    assert refused.value.code == "no_template"
    assert "greenfast new template vecsum NAME" in str(refused.value)


def test_an_error_of_greenfasts_own_is_its_sentence_alone():
    refused = SpecError("the plain kernel k writes nothing to y", code="reference_failed")
    sentence = raised("k/reference.py", "one (N=1)", refused)
    assert sentence == "k/reference.py: case one (N=1): the plain kernel k writes nothing to y"
    assert "ValueError: x" in raised("k/reference.py", "one (N=1)", ValueError("x"))
