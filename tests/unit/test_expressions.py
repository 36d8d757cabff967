"""Expressions of template files: right values for what is allowed, refusal of everything else."""

from __future__ import annotations

import pytest

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import computed_size, expression, require_names


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ceil_div(S_q, tile_m)", 5),
        ("round_up(S_q, 16)", 144),
        ("tile_m * 2 if mask == 'none' else 0", 64),
        ("mask in ('none', 'causal')", True),
        ("not (tile_m < 32 or S_q > 200)", True),
        ("1 < tile_m <= 32", True),
        ("D ** -0.5", 0.125),
        ("min(tile_m, 7) + max(1, 2) - abs(-3)", 6),
        ("S_q // 10 % 7", 5),
        ("(tile_m & (tile_m - 1)) == 0", True),
        ("(tile_m > 1) & (S_q >> 7 | 2 == 3)", 1),
        ("42", 42),
    ],
)
def test_allowed_expressions_have_their_value(text, value):
    assert expression(text, "here")({"S_q": 129, "tile_m": 32, "mask": "none", "D": 64}) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "tile_m.__class__",
        "[1, 2]",
        "lambda: 1",
        "9 ** 9 ** 9",
        "2 ** tile_m",
        "1 << tile_m",
        "(2 ** 60) ** 60",
        "'a' * 10",
        "10 ** 100000",
        "open('x')",
        "min(a=1)",
        "f'{tile_m}'",
        "tile_m if",
        "x := 3",
        "(lambda: 1)()",
        "min.__self__",
        "1 if True else (yield)",
        "x" * 2000,
        "1e400",
        "b'x'",
        "{1: 2}",
        "a[0]",
    ],
)
def test_everything_else_is_refused_at_load_with_its_place(text):
    with pytest.raises(SpecError) as refused:
        expression(text, "wmma.toml, tile_m")
    assert refused.value.code == "bad_expression"
    assert "wmma.toml, tile_m" in refused.value.message


def test_a_name_without_a_value_is_refused_at_load_with_the_known_ones():
    with pytest.raises(SpecError, match=r"til_m.*known: tile_m"):
        require_names(expression("til_m + 1", "here"), {"tile_m"})


def test_what_cannot_be_computed_is_the_authors_error_and_no_traceback():
    for text in ("1 // zero", "zero + mask", "min()", "1 >> -1", "zero & 1.5"):
        with pytest.raises(SpecError, match="here"):
            expression(text, "here")({"zero": 0, "mask": "none"})


@pytest.mark.parametrize(
    ("default", "values", "conditions", "is_free"),
    [
        ("K if turned else M", (), (), False),
        ("2 * M", (), ("M % 8 == 0",), False),
        ("2 * M", (), ("twice >= M",), True),
        ("2 * M", (64, 128), (), True),
        ("M", (), (), True),
        ("(M)", (), (), True),
        ("64", (), (), True),
    ],
)
def test_a_size_that_its_default_computes_is_not_free(default, values, conditions, is_free):
    written = [expression(text, "requires") for text in conditions]
    computed = computed_size("twice", expression(default, "dims"), values, written)
    assert (computed is None) is is_free
    if computed is not None:
        names = {"M": 3, "K": 6, "turned": 1}
        assert computed[0]({**names, "twice": 6}) and not computed[0]({**names, "twice": 5})
