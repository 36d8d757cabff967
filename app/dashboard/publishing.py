"""A read-only copy of the ledger as plain HTML, which any web server serves.

The folder is written beside its place and then takes it, so that no reader sees half of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from greenfast.app.dashboard.highlight import cuda_lines
from greenfast.app.dashboard.pages import STATIC, environment
from greenfast.app.dashboard.report_html import report_file
from greenfast.app.views.negatives import negatives_out
from greenfast.app.views.report import report_of
from greenfast.app.views.report_schemas import SearchReportOut
from greenfast.app.wiring import Services
from greenfast.db.rows import ChampionRow, NegativeRow
from greenfast.search.errors import UsageError
from greenfast.search.scratch import scratch
from greenfast.search.shipped import own_version
from greenfast.search.text import shortened

MARK = ".greenfast-publication"  # in a folder that a later publication may replace
MOST_NEGATIVES = 500
MOST_CHAMPIONS = 500


@dataclass(frozen=True)
class Publication:
    """What was written."""

    searches: int
    champions: int
    negatives: int
    kernels: int


def publish(services: Services, folder: Path, search_ids: list[str]) -> Publication:
    """Write the pages; UsageError `folder_in_use` for a folder with other contents."""
    try:
        _require_replaceable(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch("publish", folder.parent) as work:
            draft = work / "new"
            draft.mkdir()
            done = _write(services, draft, search_ids)
            if folder.exists():
                folder.rename(work / "old")
            draft.rename(folder)
    except OSError as error:
        raise UsageError(
            f"{shortened(str(folder))} cannot be written: {error.strerror}",
            code="unwritable_output",
            mend="name another folder",
        ) from error
    return done


def _require_replaceable(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir() or folder.is_symlink():
        raise UsageError(f"{folder} is not a folder", code="folder_in_use", mend="name another")
    if any(folder.iterdir()) and not (folder / MARK).is_file():
        raise UsageError(
            f"{folder} holds other files, which a publication would replace",
            code="folder_in_use",
            mend="name a new or an empty folder",
        )


def _write(services: Services, draft: Path, search_ids: list[str]) -> Publication:
    for name in ("searches", "kernels"):
        (draft / name).mkdir()
    (draft / MARK).write_text("greenfast publish replaces this folder\n")
    (draft / "sheet.css").write_text((STATIC / "dashboard.css").read_text("utf-8"), "utf-8")
    store = services.store
    champions = store.champions(limit=MOST_CHAMPIONS).items
    reports: list[SearchReportOut] = []
    winners: dict[str, str] = {}
    for search_id in search_ids:
        report = report_of(services, search_id)
        (search,) = report.searches
        if not search.trials:
            continue
        reports.append(search)
        text = report_file(report, home="../index.html", home_title="all searches")
        (draft / "searches" / f"{search_id}.html").write_text(text, "utf-8")
        best = store.best(search_id)
        if best is not None and best.source_digest:
            winners[search_id] = best.source_digest
    digests = {*winners.values(), *(_source_of(champion) for champion in champions)} - {""}
    for digest in sorted(digests):
        _write_kernel(services, draft / "kernels", digest)
    rows = _negatives(services, search_ids)
    themes = [theme for report in reports for theme in report.themes]
    context: dict[str, Any] = {"champions": champions, "searches": reports, "winners": winners}
    _page(draft / "index.html", "index", "greenfast", kernels=digests, **context)
    _page(
        draft / "negatives.html",
        "negatives",
        "Valid negatives",
        rows=negatives_out(services, rows),
        themes=themes,
        cut=len(rows) == MOST_NEGATIVES,
    )
    return Publication(len(reports), len(champions), len(rows), len(digests))


def _source_of(champion: ChampionRow) -> str:
    return champion.trial.source_digest or ""


def _negatives(services: Services, search_ids: list[str]) -> list[NegativeRow]:
    """The negatives of the published searches, newest first."""
    published = set(search_ids)
    rows: list[NegativeRow] = []
    cursor: str | None = None
    while len(rows) < MOST_NEGATIVES:
        page = services.store.negatives(limit=MOST_NEGATIVES, cursor=cursor)
        rows += [row for row in page.items if row.search_id in published]
        cursor = page.next_cursor
        if cursor is None:
            break
    return rows[:MOST_NEGATIVES]


def _write_kernel(services: Services, folder: Path, digest: str) -> None:
    source = services.store.source(digest)
    (folder / f"{digest[:16]}.cu").write_text(source.text, "utf-8")
    title = f"{source.kernel}, {source.template}"
    lines = cuda_lines(source.text)
    _page(folder / f"{digest[:16]}.html", "kernel", title, up="../", source=source, lines=lines)


def _page(path: Path, page: str, title: str, *, up: str = "", **context: Any) -> None:
    text = (
        environment()
        .get_template("published.html")
        .render(
            page=page,
            title=title,
            up=up,
            version=own_version(),
            created_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            **context,
        )
    )
    path.write_text(text, "utf-8")
