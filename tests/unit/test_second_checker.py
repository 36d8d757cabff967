"""The second checker of kernels for Hopper agrees with the emulator's checks on the album."""

from __future__ import annotations

import pytest

from bench.correctness.order_apart import EXPLAINED, judged_row, subjects_of_album
from bench.correctness.second_checker import runtime_library
from bench.results import read_result
from bench.session import open_session
from greenfast.search.diagnose.album import entries
from greenfast.search.targets.emulator.build import EmulatorBuild

# One of each kind of disorder, and right kernels that come near.
JUDGED = (
    "product-consumers=1",
    "product-stages=3-self_loading=True-release_by=one",
    "product-no_wgmma_fence",
    "product-accumulators_read_early",
    "product-scaled_without_a_fence",
    "product-left_before_the_store",
    "relay-no_wait_for_empty",
    "relay-no_init_fence",
)


def test_what_is_explained_is_an_entry_of_the_album():
    assert set(EXPLAINED) <= {entry.id for entry in entries()}


def test_the_stored_judgements_agree_or_are_explained():
    summary, *rows = read_result("order_apart")["rows"]
    names = {row["name"] for row in rows if not row["agrees"]}
    assert names <= set(EXPLAINED)  # an entry may be younger than the file
    assert all(group["judged"] for group in summary["groups"].values())
    wrong = [row for row in rows if row["group"] == "album, wrong"]
    assert sum(bool(row["second"]) for row in wrong) > 70


@pytest.mark.slow  # a compiler's run for each entry
def test_the_two_checkers_agree_on_entries_of_the_album(tmp_path):
    with open_session("emulator:h200", prefix="apart") as session:
        build = EmulatorBuild(session.folder, include_dirs=session.catalogue.include_dirs)
        assert runtime_library(build).is_file()
        rows = [
            judged_row(name, "album", subject, build)
            for name, entry, subject in subjects_of_album(session, tmp_path)
            if name in JUDGED
        ]
    assert {row["name"] for row in rows} == set(JUDGED)
    assert [row for row in rows if not row["agrees"]] == []
