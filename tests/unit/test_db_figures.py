"""A figure is defined once: its column, row and REST field follow, or are held against it here."""

from __future__ import annotations

import typing

import pytest

from greenfast.app.views.schemas import TrialOut
from greenfast.db.figures import FIGURES, SORTABLE, Figures
from greenfast.db.models import TrialRecord
from greenfast.db.rows import TrialRow

COLUMN_TYPES = {"Text": str, "Double": float, "Integer": int}


def test_there_are_figures_and_some_sort():
    assert len(FIGURES) > 10 and set(SORTABLE) < set(FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_has_a_column_a_row_field_and_a_rest_field(name):
    hint = typing.get_type_hints(Figures)[name]
    column = TrialRecord.__table__.c[name]
    assert COLUMN_TYPES[type(column.type).__name__] in (typing.get_args(hint) or (hint,))
    assert column.nullable == (type(None) in typing.get_args(hint))
    assert name in typing.get_type_hints(TrialRow)
    assert TrialOut.model_fields[name].annotation == hint
