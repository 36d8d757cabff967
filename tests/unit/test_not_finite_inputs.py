"""One NaN or infinity in an input: what a kernel must give, and what it may."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from greenfast.search.devices.facts import device
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.comparison import compare_output
from greenfast.search.oracle.expected import CaseData, Expected
from greenfast.search.oracle.not_finite import not_finite_cases, planted
from greenfast.search.oracle.reference import case_data
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve


def _cases(kernel, workload=None):
    template, preset = kernel.preset(kernel.baseline)
    chosen = kernel.workload(workload) if workload else kernel.workloads[0]
    compiled = chosen.compile_time(kernel)
    candidate = preset_candidate(template, preset.name, compiled)
    point = resolve(template, candidate.parameters, compiled, device("h200"))
    derived = derived_cases(kernel, compiled, point.tiles, 0)
    return {case.name: case for case in not_finite_cases(kernel, derived, lambda case: True)}


def _case(kernel, name, **dims):
    """The case with other sizes."""
    case = _cases(kernel, dims.pop("workload", None))[name]
    return replace(case, dims=tuple((dim, dims.get(dim, size)) for dim, size in case.dims))


def _passes(kernel, case, output, damage):
    data = case_data(kernel, case)
    got = data.outputs[output].value.copy()
    damage(got)
    return compare_output(kernel, case, kernel.argument(output), got, data).passes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("attention", {"nan_in_q", "nan_in_k", "nan_in_v", "infinity_in_v"}),
        ("rmsnorm", {"nan_in_x", "nan_in_residual", "infinity_in_residual"}),
        ("attention_fp8", set()),  # codes, and scales that are > 0
        ("histogram", set()),  # integers
        ("narrow", {"nan_in_a", "nan_in_b"}),  # its conversions saturate
    ],
)
def test_values_that_are_not_finite_go_into_the_data(album, name, expected):
    assert set(_cases(album.kernel(name))) == expected


def test_inputs_name_their_value_and_plain_recipes_do_not():
    put = planted("normal, one NaN in q")
    assert put is not None and (put.recipe, put.argument) == ("normal", "q")
    assert np.isnan(put.value)
    assert planted("normal, one infinity in v").value == np.inf
    assert planted("normal") is planted("row_code") is planted("normal, one zero in q") is None


def test_a_nan_in_a_row_of_rmsnorm_makes_that_row_nan_and_no_other(album):
    kernel = album.kernel("rmsnorm")
    case = _case(kernel, "nan_in_x", M=5, N=64)
    data = case_data(kernel, case)
    assert np.isnan(data.inputs["x"].astype(np.float64)).sum() == 1
    rows = np.isnan(data.outputs["y"].value)
    row = int(np.argmax(rows.any(axis=1)))
    assert rows[row].all() and rows.sum() == 64
    assert np.isnan(data.outputs["h"].value).sum() == 1
    assert _passes(kernel, case, "y", lambda got: None)
    assert not _passes(kernel, case, "y", lambda got: got.__setitem__((row, 3), 0.0))
    other = (row + 1) % 5
    assert not _passes(kernel, case, "y", lambda got: got.__setitem__((other, 3), np.nan))
    assert not _passes(kernel, case, "y", lambda got: got.__setitem__((other, 3), 9.0))


def test_a_nan_in_a_query_stays_in_its_row_of_attention(album):
    kernel = album.kernel("attention")
    case = _case(kernel, "nan_in_q")
    for output, count in (("o", 64), ("lse", 1)):
        assert np.isnan(case_data(kernel, case).outputs[output].value).sum() == count
        assert not _passes(kernel, case, output, lambda got: got.fill(np.nan))
        assert not _passes(kernel, case, output, lambda got: got.fill(0.0))


def test_a_nan_in_a_value_is_open_where_a_mask_hides_it_and_nowhere_else(album):
    """The reference multiplies it by 0; a kernel may skip hidden keys."""
    kernel = album.kernel("attention")
    case = _case(kernel, "nan_in_v", workload="mission_causal", H=2, H_kv=2)
    expected = case_data(kernel, case).outputs["o"]
    batch, head, key, column = np.argwhere(
        np.isnan(case_data(kernel, case).inputs["v"].astype(np.float64))
    )[0]
    assert 0 < key < dict(case.dims)["S_q"] - 1
    nan = np.isnan(expected.value)
    assert expected.undefined[batch, head, :key, column].all()
    assert nan[batch, head, key:, column].all()
    assert not expected.undefined[batch, head, key:, column].any()
    assert (nan | expected.undefined).sum() == dict(case.dims)["S_q"]  # that column, that head

    def skip_hidden(got):
        got[batch, head, :key, column] = 0.125

    def drop_seen(got):
        got[batch, head, key + 1, column] = 0.125

    def leak_into_a_column(got):
        got[batch, head, key + 1, column - 1] = np.nan

    assert _passes(kernel, case, "o", skip_hidden)
    assert not _passes(kernel, case, "o", drop_seen)
    assert not _passes(kernel, case, "o", leak_into_a_column)


def test_an_infinite_value_makes_outputs_infinite(album):
    kernel = album.kernel("attention")
    case = _case(kernel, "infinity_in_v")
    expected = case_data(kernel, case).outputs["o"]
    assert np.isposinf(expected.value).sum() == dict(case.dims)["S_q"]
    assert not _passes(kernel, case, "o", lambda got: np.clip(got, -1e4, 1e4, out=got))
    assert not _passes(kernel, case, "o", lambda got: np.negative(got, out=got))


def test_an_infinity_times_a_probability_that_rounds_to_zero_is_open(album):
    """In fp16, a probability below 2^-25 is 0, and 0 times infinity NaN."""
    kernel = album.kernel("attention")
    case = _case(kernel, "infinity_in_v")
    case = replace(case, dims=tuple({**dict(case.dims), "scale": 2.0}.items()))
    expected = case_data(kernel, case).outputs["o"]
    assert np.isinf(expected.value).all(where=expected.undefined)
    rows = np.isinf(expected.value)
    assert 0 < expected.undefined.sum() < rows.sum(), "both kinds of rows"

    def give(got, where):
        got[where] = np.nan

    assert _passes(kernel, case, "o", lambda got: give(got, expected.undefined))
    assert not _passes(kernel, case, "o", lambda got: give(got, rows & ~expected.undefined))


def test_a_finite_value_that_a_comparison_made_of_a_nan_is_open(album):
    """quantise's reference calls the scale of a row with a NaN 1; kernels need not."""
    kernel = album.kernel("quantise")
    case = _case(kernel, "nan_in_x")
    expected = case_data(kernel, case).outputs["s"]
    assert expected.undefined.sum() == 1 and not np.isnan(expected.value).any()
    row = int(np.argmax(expected.undefined))
    assert _passes(kernel, case, "s", lambda got: got.__setitem__(row, 0.005))
    assert not _passes(kernel, case, "s", lambda got: got.__setitem__(row - 1, 0.005))


def test_a_reference_that_does_not_take_them_has_no_such_cases(album):
    kernel = album.kernel("axpy")
    template, preset = kernel.preset(kernel.baseline)
    compiled = kernel.workloads[0].compile_time(kernel)
    point = resolve(
        template,
        preset_candidate(template, preset.name, compiled).parameters,
        compiled,
        device("h200"),
    )
    derived = derived_cases(kernel, compiled, point.tiles, 0)
    assert not_finite_cases(kernel, derived, lambda case: False) == ()


def test_an_output_of_whole_numbers_is_open_where_the_reference_gives_nan(album):
    """No int8 is NaN; the same values as floats are wrong, and so are they for plain inputs."""
    kernel = album.kernel("axpy")
    case = _case(kernel, "nan_in_x")
    value = np.array([np.nan, 2.0])
    data = CaseData({}, {"y": Expected(value, np.zeros(2), None)})
    whole = replace(kernel.argument("y"), dtype="int8")
    got = np.array([7.0, 2.0])
    assert compare_output(kernel, case, whole, got, data).passes
    assert not compare_output(kernel, case, whole, got + 1, data).passes
    assert not compare_output(kernel, case, replace(whole, dtype="float32"), got, data).passes
    plain = replace(case, inputs="normal")
    assert not compare_output(kernel, plain, whole, got, data).passes
