"""A database of the release before (schema 0004) is opened, read and gone on with.

That release wrote `release_0004.sqlite3.gz`. It holds a finished search of axpy on the emulator, a
measured search with its confirmed and promoted winner, and a paused search. The kernel of that time
lies beside it.
"""

from __future__ import annotations

import gzip
import io
import shutil
import zipfile
from pathlib import Path

import pytest
from slow_cases import quick_first

from greenfast.app.bundle.download import bundle
from greenfast.app.settings import Settings
from greenfast.app.views.confirmations import champion_out
from greenfast.app.views.progress import search_detail
from greenfast.app.wiring import Services
from greenfast.db.models import REVISION
from greenfast.search.errors import UsageError
from greenfast.search.loop.plan import SearchRequest
from greenfast.search.loop.scope import scope_of

DATA = Path(__file__).resolve().parents[1] / "data"
ENVIRONMENT = {"device": "h200", "toolchain": "nvrtc 13.0"}
WORKLOAD = '\n[workloads.added]\ntitle = "one more"\ndims = { N = 77 }\n'
CHECK = '\n[[checks]]\nname = "added"\ndims = { N = "tile_q + 7" }\ninputs = "normal"\nseeds = 1\n'


@pytest.fixture
def templates(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "templates"
    shutil.copytree(DATA / "release_0004", folder)
    monkeypatch.setenv("GREENFAST_TEMPLATE_PATH", str(folder))
    return folder / "axpy"


@pytest.fixture
def opened(tmp_path, templates):
    """Services on a fresh copy of the database, opened when a test first needs them."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "greenfast.sqlite3").write_bytes(
        gzip.decompress((DATA / "release_0004.sqlite3.gz").read_bytes())
    )
    services = Services(Settings.from_environment({"GREENFAST_DATA": str(data)}))
    yield services
    services.close()


def append(templates: Path, text: str) -> None:
    with (templates / "kernel.toml").open("a") as file:
        file.write(text)


def ids(services: Services) -> dict[str, str]:
    return {item.name: item.id for item in services.store.searches().items}


def test_it_is_migrated_and_everything_in_it_can_be_read(opened):
    statuses = {item.name: item.status for item in opened.store.searches().items}
    assert opened.store.stats()["revision"] == REVISION
    assert statuses == {
        "release before": "completed",
        "measured elsewhere": "completed",
        "not begun": "paused",
    }
    for search_id in ids(opened).values():
        detail = search_detail(opened.store, search_id)
        for trial in opened.store.trials(search_id).items:
            assert opened.store.trial(search_id, trial.number).gates
            assert opened.store.source(trial.source_digest).text
        assert detail.id == search_id
    copies = list(opened.settings.data.glob("*.schema-0004.*.backup"))
    assert len(copies) == 1, "the file as it was is kept"


@pytest.mark.parametrize(
    "added",
    quick_first(["", WORKLOAD, WORKLOAD + CHECK], 1),
    ids=["as it was", "a workload", "a workload and a check"],
)
def test_it_is_bundled_resumed_and_confirmed_with_the_files_on_disk(opened, templates, added):
    append(templates, added)
    with zipfile.ZipFile(
        io.BytesIO(bundle(opened, ids(opened)["release before"]).content)
    ) as packed:
        assert {"kernel.cu", "reference.py", "template.cu.j2"} <= set(packed.namelist())
    for name in ("measured elsewhere", "not begun"):
        assert "axpy" in opened.catalogue_of(ids(opened)[name]).names()
    plan = opened.store.plan(ids(opened)["not begun"])
    assert (
        opened.store.request_control(ids(opened)["not begun"], "resume").status == "queued"
        and plan.trials == 2
    )


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        (
            "right.cu.j2",
            "using Element =",
            "// edited\nusing Element =",
            "axpy/right.toml, its .cu.j2 or a header",
        ),
        ("reference.py", "A, B = 2.5", "A, B = 2.25", "axpy/kernel.toml, reference.py"),
    ],
)
def test_what_is_another_kernel_today_is_refused_with_the_file_that_differs(
    opened, templates, file, old, new, named
):
    path = templates / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UsageError) as refused:
        bundle(opened, ids(opened)["release before"])
    assert refused.value.code == "kernel_changed" and named in str(refused.value)


def test_a_kernel_that_is_gone_is_named(opened, templates):
    shutil.rmtree(templates)
    with pytest.raises(UsageError, match="kernel axpy is gone") as refused:
        bundle(opened, ids(opened)["release before"])
    assert refused.value.code == "kernel_changed"


class TestItsChampion:
    def test_it_is_found_by_the_scope_of_a_search_of_today(self, opened, templates):
        append(templates, WORKLOAD)
        plan = opened.plan(SearchRequest("axpy", workloads=("line",), seed=1))
        champion = opened.store.champion(scope_of(plan, ENVIRONMENT))
        assert (
            champion is not None and champion.trial.search_id == ids(opened)["measured elsewhere"]
        )
        assert champion.scope.shapes
        assert (
            champion_out(champion, opened.catalogue).recheck
            == "recheck asked: another version of greenfast's own checks judged it"
        )

    def test_its_own_search_still_names_it(self, opened):
        search = ids(opened)["measured elsewhere"]
        earlier = scope_of(opened.store.plan(search), ENVIRONMENT)
        assert earlier.shapes == () and opened.store.champion(earlier).trial.search_id == search
        assert opened.store.promote(search, 1).trial.search_id == search
        assert len(opened.store.champions(replaced=True).items) == 1

    def test_a_check_that_is_newer_asks_for_a_recheck(self, opened, templates):
        append(templates, CHECK)
        (champion,) = opened.store.champions().items
        assert (
            champion_out(champion, opened.catalogue).recheck
            == "recheck asked: 1 check is newer than this confirmation"
        )

    def test_of_another_kernel_it_stays_listed_as_it_was(self, opened, templates):
        path = templates / "reference.py"
        path.write_text(path.read_text().replace("A, B = 2.5", "A, B = 2.25"))
        (champion,) = opened.store.champions().items
        assert champion.scope.shapes == () and champion.replaced_at is None
