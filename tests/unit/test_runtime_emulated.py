"""`greenfast.load(..., device="emulator")`: what it explains and refuses; nothing is compiled."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from runtime_bundles import RECORDED, SETS

import greenfast
import greenfast.runtime.front
from greenfast.runtime.emulated import _target, explained
from greenfast.runtime.frameworks import framework_of
from greenfast.runtime.nvrtc import CACHE_VARIABLE
from greenfast.runtime.signatures import AttentionArguments
from greenfast.search.errors import UsageError

X, WEIGHT = np.zeros((3, 4096), "f2"), np.ones(4096, "f2")
Q = np.zeros((2, 8, 256, 64), ml_dtypes.bfloat16)


@pytest.fixture(scope="module")
def rmsnorm():
    return greenfast.load(SETS / "rmsnorm-h200.zip", device="emulator")


def test_explain_names_the_kernel_that_the_emulator_runs(rmsnorm):
    explained = rmsnorm.explain(X, X, WEIGHT)
    assert explained.kernel is not None and explained.source_digest is not None
    assert explained.launches and explained.launches[0].grid[0] >= 1
    assert "GPU's memory" not in str(explained)
    assert str(explained).startswith(f"rmsnorm: {explained.kernel} of rmsnorm-h200")


def test_explain_gives_the_reason_of_the_refusal(rmsnorm):
    tall = np.zeros((5000, 4096), "f2")
    explained = rmsnorm.explain(tall, tall, WEIGHT)
    assert explained.kernel is None and "outside the measured range 1 to 4096" in explained.why
    assert str(explained).startswith("rmsnorm: no kernel of rmsnorm-h200")
    with pytest.raises(UsageError, match="outside the measured range 1 to 4096"):
        rmsnorm(tall, tall, WEIGHT)


def test_outside_of_the_region_a_kernel_of_the_table_runs_for_want_of_a_library(rmsnorm):
    kernels, tall = rmsnorm.kernels, np.zeros((5000, 4096), "f2")
    first = next(iter(kernels.programs))
    groups = tuple(replace(group, outside=first) for group in kernels.groups)
    tensors = {"x": tall, "residual": tall, "weight": WEIGHT}
    found = explained(
        replace(kernels, groups=groups, has_library=True), framework_of(tall), tensors, {}, {},
        frozenset(),
    )  # fmt: skip
    assert found.kernel is not None and "the kernel is correct there, too" in found.why


@pytest.mark.parametrize("weight", [[1.0] * 4096, 1.0, None, np.float16(1.0)])
def test_what_is_no_array_is_refused_by_its_name(rmsnorm, weight):
    assert "weight is" in rmsnorm.explain(X, X, weight).why
    with pytest.raises(UsageError, match="weight is"):
        rmsnorm(X, X, weight)


def test_a_gradient_is_refused_and_not_lost(rmsnorm):
    torch = pytest.importorskip("torch")
    x = torch.zeros(3, 4096, dtype=torch.float16, requires_grad=True)
    weight = torch.ones(4096, dtype=torch.float16)
    assert "requires a gradient" in rmsnorm.explain(x, x, weight).why
    with pytest.raises(UsageError, match="requires a gradient"):
        rmsnorm(x, x, weight)
    with torch.no_grad():
        assert rmsnorm.explain(x, x, weight).kernel is not None


def test_a_call_of_another_type_is_refused():
    attention = greenfast.load(RECORDED, device="emulator")
    q = np.zeros((1, 1, 8, 64), np.float64)
    assert attention.explain(q, q, q).kernel is None
    with pytest.raises(UsageError):
        attention(q, q, q)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"scale": "1"}, "scale is text, not a number"),
        ({"scale": [1.0]}, "scale is list, not a number"),
        ({"scale": float("nan")}, "scale is not finite"),
        ({"scale": 10**400}, "scale is not finite, or too large"),
        ({"mask": ["none"]}, "mask is list, not an option"),
        ({"optional": ("x",)}, "no optional output 'x'"),
        ({"optional": 5}, "optional=5 is not a list"),
        ({"optional": [["lse"]]}, "no optional output"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_settings_that_are_none_are_refused(settings, why):
    attention = greenfast.load(RECORDED, device="emulator")
    with pytest.raises(UsageError, match=why) as refused:
        attention.explain(Q, Q, Q, **settings)
    assert refused.value.code == "bad_call"


@pytest.mark.parametrize("scale", [0, -1.0, 1e-320])
def test_a_scale_that_the_kernels_were_never_checked_with_is_no_kernels(scale):
    """They take the largest score of a row before they scale it, which is wrong below 0."""
    attention = greenfast.load(RECORDED, device="emulator")
    assert attention.explain(Q, Q, Q).kernel is not None
    assert attention.explain(Q, Q, Q, scale=np.float32(0.5), optional="lse").kernel is not None
    assert "take positive ones" in attention.explain(Q, Q, Q, scale=scale).why
    with pytest.raises(UsageError, match="take positive ones"):
        attention(Q, Q, Q, scale=scale)


def test_an_output_that_cannot_be_written_is_refused_before_the_kernel_runs(rmsnorm):
    fixed = np.frombuffer(bytes(X.nbytes), X.dtype).reshape(X.shape)
    with pytest.raises(UsageError, match="the output y is read-only"):
        rmsnorm(X, X, WEIGHT, y=fixed)
    with pytest.raises(UsageError, match="the output y overlaps x in memory"):
        rmsnorm(X, np.ones_like(X), WEIGHT, y=X)
    with pytest.raises(UsageError, match="x has a mask"):
        rmsnorm(np.ma.array(X), X, WEIGHT)
    with pytest.raises(UsageError, match="no kernel for dtype=object"):
        rmsnorm(X.astype(object), X.astype(object), WEIGHT)


@pytest.mark.parametrize("size", ["x", None, 1.5, True, -1, 2**31, [1]], ids=str)
def test_explain_takes_whole_numbers_as_sizes(size):
    with pytest.raises(UsageError, match="is not a size") as refused:
        greenfast.explain("attention", B=size, H=8, S_q=256, D=64)
    assert refused.value.code == "bad_call"


def test_arrays_of_other_libraries_are_only_read():
    with pytest.raises(UsageError, match="out cannot be written") as refused:
        greenfast.runtime.front.attention_elsewhere(
            AttentionArguments(Q, Q, Q, None, 0.0, False, None, None, False, False, Q)
        )
    assert refused.value.code == "bad_call"
    with pytest.raises(UsageError, match="missing a required argument: 'k'"):
        greenfast.explain("attention", Q)


def test_a_cache_that_is_no_folder_is_named_with_its_variable(rmsnorm, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    _target.cache_clear()
    with pytest.raises(UsageError, match="cannot be created: Not a directory") as refused:
        rmsnorm(X, X, WEIGHT)
    assert CACHE_VARIABLE in refused.value.mend
