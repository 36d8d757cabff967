"""Ties of a measured winner: in the detail, the report and the page's sentence."""

from __future__ import annotations

import pytest
from stored_searches import stored_search

from greenfast.app.views.progress import search_detail, standing_of
from greenfast.app.views.report import search_report
from greenfast.app.views.ties import ties_of, ties_sentence

# The first two differ by less than two measurements resolve. The baseline, (128, 1), is 17 %
# slower, and the last is not shown to differ from the baseline.
FAST = {(64, 1): 6.00, (64, 2): 6.03, (128, 1): 7.00, (256, 1): 6.98}


@pytest.fixture
def search(tmp_path, album, toolchain, monkeypatch):
    with stored_search(tmp_path, album, toolchain, monkeypatch, FAST) as stored:
        yield stored


def test_a_measured_winner_names_the_trials_that_tie_with_it_and_no_other(search):
    services, search_id, _ = search
    store = services.store
    numbers = {
        (trial.parameters["threads"], trial.parameters["per_thread"]): trial.number
        for trial in store.trials(search_id, limit=100).items
    }
    best = store.best(search_id)
    pair = {numbers[64, 1], numbers[64, 2]}
    assert best.number in pair
    (other,) = pair - {best.number}
    assert search_detail(store, search_id).best.ties == [other]
    sentence = standing_of(store, best)
    assert sentence.startswith(f"It ties with trial {other}: ")
    assert sentence in search_report(services, search_id).winner_sentence
    # The tie is mutual; a distant trial has its own neighbours, the rejected ones included.
    assert best.number in ties_of(store, store.trial(search_id, other))
    last, baseline = numbers[256, 1], numbers[128, 1]
    assert store.trial(search_id, last).reason == "same"
    assert ties_of(store, store.trial(search_id, last)) == (baseline,)
    assert ties_of(store, store.trial(search_id, baseline)) == (last,)


def test_a_tie_of_many_names_the_first_few():
    assert ties_sentence(()) == ""
    assert ties_sentence((5,), "Trial 3").startswith("Trial 3 ties with trial 5: ")
    many = ties_sentence(tuple(range(20)))
    assert "20 other trials (0, 1, 2, 3, 4, 5, 6, 7, ...)" in many
