"""Kernel files kept with searches, checks kept with champions, and earlier scopes."""

from __future__ import annotations

import dataclasses

import pytest
import store_values as values
from sqlalchemy import func, select
from sqlalchemy import text as sql
from test_store_champions import scope, searched

from greenfast.app.history import recheck_of
from greenfast.db.models import KernelFileRecord, ManifestRecord
from greenfast.search.errors import Fault, UsageError
from greenfast.search.kernels.frozen import KernelFiles

FILES = KernelFiles(
    (
        ("axpy/kernel.toml", 'name = "axpy"\n'),
        ("axpy/reference.py", "# \u00fcber\n"),
        ("include/gf/a.cuh", ""),
    )
)
CHECKS = (("one", "1" * 64), ("two", "2" * 64))
SHAPES = ((("N", 4096), ("dtype", "fp16")),)


class TestFiles:
    def test_they_come_back_as_they_were(self, store):
        search = store.submit(values.plan(), FILES)
        assert (
            store.frozen_files(search.id) == FILES
            and store.frozen_files(store.submit(values.plan()).id) is None
        )

    def test_each_text_is_kept_once(self, store):
        changed = KernelFiles((("axpy/kernel.toml", "another"), *FILES.files[1:]))
        searches = [store.submit(values.plan(), files).id for files in (FILES, changed, FILES)]
        with store._database.reading() as session:
            assert session.scalar(select(func.count()).select_from(KernelFileRecord)) == 4
            assert session.scalar(select(func.count()).select_from(ManifestRecord)) == 2
        assert [store.frozen_files(search) for search in searches] == [FILES, changed, FILES]

    def test_what_is_damaged_is_not_given_out(self, store):
        search = store.submit(values.plan(), FILES)
        with store._database.writing() as session:
            session.execute(
                sql("UPDATE kernel_files SET text = 'other' WHERE digest = :digest"),
                {"digest": FILES.manifest[1][1]},
            )
        with pytest.raises(Fault, match=r"axpy/reference\.py") as refused:
            store.frozen_files(search.id)
        assert refused.value.code == "source_damaged"

    def test_an_unknown_search_is_refused(self, store):
        with pytest.raises(UsageError, match="no search"):
            store.frozen_files("s_aaaaaaaaaaaa")


class TestChampions:
    def test_one_of_an_earlier_version_is_found_by_both_scopes(self, store):
        search = searched(store)
        store.promote(search, 1)
        today = dataclasses.replace(scope(), shapes=SHAPES, kernel_digest="9" * 64)
        assert store.champion(today) is None
        store.adopt(scope(), today, CHECKS)
        row = store.champion(today)
        assert row == store.champion(scope()) and row.scope == today and row.checks == CHECKS
        store.adopt(scope(), today, ())
        assert store.champion(today).checks == CHECKS, "once"

    def test_its_successor_has_the_scope_of_today_whichever_search_it_comes_from(self, store):
        today = dataclasses.replace(scope(), shapes=SHAPES, kernel_digest="9" * 64)
        store.promote(searched(store), 1)
        store.adopt(scope(), today, CHECKS)
        successor = searched(store)
        store.promote(successor, 1, replace=True)
        assert (
            store.champion(today).trial.search_id
            == store.champion(scope()).trial.search_id
            == successor
        )
        assert len(store.champions().items) == 1 and len(store.champions(replaced=True).items) == 2

    def test_a_champion_that_is_confirmed_again_has_passed_the_checks_of_that_day(self, store):
        search = searched(store)
        before = store.promote(search, 1)
        assert before.checks is None
        store.request_confirmation(search)
        claim = store.claim("second", values.LEASE_S, search)
        store.record_confirmation(
            claim, dataclasses.replace(values.confirmation(1, False), checks=CHECKS)
        )
        refuted = store.champion(scope())
        assert refuted.failed_recheck.confirmation.trial == 1
        assert recheck_of(refuted, None).startswith("its last recheck failed: ")
        assert dataclasses.replace(refuted, failed_recheck=None) == before, "and it stays champion"
        store.record_confirmation(claim, dataclasses.replace(values.confirmation(1), checks=CHECKS))
        after = store.champion(scope())
        assert after.checks == CHECKS and after.confirmation.confirmation.checks == CHECKS
        assert after.promoted_at == before.promoted_at and after.failed_recheck is None


class TestSilence:
    def test_it_says_who_holds_a_search_and_until_when(self, store):
        search = store.submit(values.plan())
        assert store.silence(search.id) is None
        claim = store.claim("worker", 30.0, search.id)
        silence = store.silence(search.id)
        assert (
            silence.worker == "worker"
            and silence.seconds + silence.lease_left_s == pytest.approx(30.0)
        )
        values.expire(store, claim)
        assert store.silence(search.id).lease_left_s == 0.0
