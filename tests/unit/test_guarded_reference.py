"""A reference.py that does not end is its author's mistake: one sentence, and no process left."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from greenfast.search.errors import Fault, SpecError
from greenfast.search.oracle import drawn, guarded_reference, reference
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.guarded_reference import GuardedReferences

LONG_S, SHORT_S = 60.0, 0.2
FIRST_LINE = '    dtype = options["dtype"]\n    unit, step'

ENDLESS_AT_77_COLUMNS = """
_inputs = make_inputs

def make_inputs(dims, options, recipe, seed, tiles):
    while dims["N"] == 77:
        pass
    return _inputs(dims, options, recipe, seed, tiles)
"""


@pytest.fixture(scope="module")
def guard():
    opened = GuardedReferences(LONG_S)
    yield opened
    opened.close()


@pytest.fixture
def authored(catalogue):
    """Kernel rmsnorm whose reference.py begins with `first`, and its `reference` with `body`."""

    def make(body="", first=""):
        kernel = catalogue.kernel("rmsnorm")
        text = kernel.reference_text
        assert FIRST_LINE in text
        body = "".join(f"    {line}\n" for line in body.splitlines())
        text = text.replace(FIRST_LINE, body + FIRST_LINE)
        future = "from __future__ import annotations\n"
        return replace(kernel, reference_text=text.replace(future, f"{future}{first}\n"))

    return make


def first_case(kernel):
    tiles = {"tile_q": 16, "tile_kv": 32, "depth": 2, "parts": 1, "blocks": 1}
    compiled = kernel.workloads[0].compile_time(kernel)
    return next(iter(derived_cases(kernel, compiled, tiles, 1)))


@pytest.mark.parametrize(
    ("body", "sentence", "code"),
    [
        ("import sys; sys.exit(0)", "case .*: SystemExit: 0", "reference_failed"),
        ("getattr(__import__('os'), '_ex' + 'it')(0)", "ended its process", "reference_failed"),
        ("import numpy; numpy.ones(2**50)", r"more than \d+ GiB of memory", "reference_memory"),
    ],
)
def test_a_reference_that_ends_without_a_result_is_a_mistake(guard, authored, body, sentence, code):
    kernel = authored(body)
    with pytest.raises(SpecError, match=sentence) as error:
        guard.computed(kernel, first_case(kernel))
    assert error.value.code == code and "rmsnorm/reference.py" in str(error.value)


def test_a_reference_whose_process_is_killed_from_outside_is_computed_again(
    guard, authored, tmp_path
):
    """Linux kills a process when memory runs out, whoever has taken it."""
    begun = tmp_path / "begun"
    kill = "getattr(__import__('signal'), 'raise' + '_signal')(9)"
    once = f"import pathlib\nbegun = pathlib.Path({str(begun)!r})\nif not begun.exists():"
    kernel = authored(f"{once}\n    begun.touch(); {kill}")
    assert guard.computed(kernel, first_case(kernel)) is not None and begun.exists()
    always = authored(kill)
    with pytest.raises(SpecError, match=r"ended its process \(exit status -9\)"):
        guard.computed(always, first_case(always))


def test_a_full_folder_for_temporary_files_is_a_fault_of_the_machine(
    guard, authored, monkeypatch, tmp_path
):
    file = tmp_path / "folder" / "file"
    file.parent.mkdir()
    file.symlink_to("/dev/full")
    monkeypatch.setattr(guard._children, "_file", lambda: file)
    kernel = authored()
    sentence = f"references cannot be written below {tmp_path}: No space left on device"
    with pytest.raises(Fault, match=re.escape(sentence)) as full:
        guard.computed(kernel, first_case(kernel))
    assert full.value.code == "disk_full"


def test_a_reference_without_end_is_killed(guard, authored, monkeypatch):
    monkeypatch.setattr(guard, "deadline_s", SHORT_S)
    endless = authored("while True:\n    pass")
    with pytest.raises(SpecError, match=r"case .* takes more than 0\.2 s") as error:
        guard.computed(endless, first_case(endless))
    assert error.value.code == "reference_slow"
    loading = authored(first="while True:\n    pass")
    monkeypatch.setattr(reference._CACHE, "guard", guard)
    with pytest.raises(SpecError, match=r"loading it takes more than 0\.2 s"):
        reference.kernel_module(loading)
    assert guard._children.pool.all == ()


def test_a_large_reference_that_no_gpu_computes_is_watched_too(guard, authored, monkeypatch):
    """A GPU target leaves an author's reference to NumPy, unless it takes CuPy's arrays."""
    monkeypatch.setattr(reference._CACHE, "guard", guard)
    monkeypatch.setattr(guarded_reference, "LARGE_FLOP", 0.0)
    monkeypatch.setattr(guard, "deadline_s", SHORT_S)
    endless = authored("while True:\n    pass")
    case, asked = first_case(endless), []
    with pytest.raises(SpecError, match=r"case .* takes more than 0\.2 s") as error:
        reference.compute_case_data(endless, case, lambda kernel, case: asked.append(case))
    assert error.value.code == "reference_slow" and asked == [case]
    assert guard._large.pool.all == ()


def test_outputs_from_elsewhere_are_taken_with_the_inputs_of_the_child(
    guard, authored, monkeypatch
):
    monkeypatch.setattr(reference._CACHE, "guard", guard)
    kernel = authored()
    case = first_case(kernel)
    right = reference.compute_case_data(kernel, case, None)
    fields = {
        name: {field: getattr(output, field) for field in ("value", "bound", "rounded")}
        for name, output in right.outputs.items()
    }
    endless = authored("while True:\n    pass")
    data = reference.compute_case_data(endless, case, lambda kernel, case: fields)
    assert data.inputs.keys() == right.inputs.keys()
    for name, output in data.outputs.items():
        assert (output.value == right.outputs[name].value).all()


@pytest.mark.slow
def test_outputs_of_more_than_half_a_gigabyte_come_back(guard, album):
    """As those of a bandwidth-bound kernel on a tensor of usual size."""
    size = 2**26 + 1
    kernel = album.kernel("axpy")
    text = (
        f"{kernel.reference_text}\n"
        "def reference(dims, options, inputs):\n"
        '    return {"y": {"value": np.zeros(dims["N"]), "bound": 0.5, "rounded": None}}\n'
    )
    case = replace(first_case(kernel), dims=(("N", size),), inputs="normal")
    _, outputs = guard.computed(replace(kernel, reference_text=text), case)
    assert outputs["y"]["value"].shape == (size,) and not outputs["y"]["value"].any()


def test_inputs_alone_do_not_wait_for_the_reference(guard, authored, monkeypatch):
    """The inputs of a large workload whose time is modelled need no expected outputs."""
    monkeypatch.setattr(reference._CACHE, "guard", guard)
    endless = authored("while True:\n    pass")
    case = first_case(endless)
    data = reference.inputs_alone(endless, case)
    assert data.inputs.keys() == {"x", "residual", "weight"} and data.outputs == {}
    assert reference.inputs_alone(endless, case) is data  # kept


def test_results_that_break_the_contract_are_described_as_ever(guard, authored, monkeypatch):
    monkeypatch.setattr(reference._CACHE, "guard", guard)
    kernel = authored("return {'y': 1}")
    with pytest.raises(SpecError) as error:
        reference.compute_case_data(kernel, first_case(kernel), None)
    assert error.value.code == "reference_failed" and "case" in str(error.value)


def test_only_an_authors_reference_takes_a_child(guard, authored, catalogue, album):
    assert guard.watches(authored("pass"))
    assert not guard.watches(catalogue.kernel("rmsnorm"))
    assert not guard.watches(album.kernel("axpy"))
    assert not guard.watches(authored(f"import {guarded_reference.RUNS_A_KERNEL}"))


def test_inputs_of_drawn_sizes_that_do_not_end_are_killed(guard, authored, monkeypatch):
    """`make_inputs` is asked about sizes that nobody has tried before."""
    monkeypatch.setattr(reference._CACHE, "guard", guard)
    kernel = authored()
    kernel = replace(kernel, reference_text=kernel.reference_text + ENDLESS_AT_77_COLUMNS)
    case = first_case(kernel)
    assert drawn._fits(kernel, case)
    refused = replace(case, inputs="unknown")
    assert not drawn._fits(kernel, refused)
    monkeypatch.setattr(guard, "deadline_s", SHORT_S)
    endless = replace(case, dims=(("M", 3), ("N", 77)))
    with pytest.raises(SpecError, match=r"make_inputs of case .* takes more than 0\.2 s") as error:
        drawn._fits(kernel, endless)
    assert error.value.code == "reference_slow"
