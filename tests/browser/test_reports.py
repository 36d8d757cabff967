"""Reports of searches in every state, and the published folder in a real browser."""

from __future__ import annotations

import re
from contextlib import closing
from types import SimpleNamespace

import pytest
from example_searches import accepted_search, failed_search, finished_search, queued_search, start

from greenfast.app.dashboard.publishing import publish
from greenfast.app.dashboard.report_html import report_file
from greenfast.app.views.report import require_report
from greenfast.app.views.report_markdown import markdown
from greenfast.db.store import Store
from greenfast.search.errors import UsageError
from greenfast.search.loop.sink import Ended
from greenfast.search.verdict import Reason, Rejected, Stage, Trial

NOT_COMPILED = Rejected(Stage.COMPILE, Reason.COMPILE_ERROR, 'identifier "x" is undefined')
# Text must be readable: WCAG 2.2, success criterion 1.4.3.
LEAST_CONTRAST = 4.5
# A peer's reason in a column of a few letters would be taller than the window.
TALL_PX = 250
TALLEST = """() => Math.max(0, ...[...document.querySelectorAll("table.again tr")]
    .map((row) => row.offsetHeight))"""
CONTRASTS = """() => {
    const light = (text) => {
        const parts = text.match(/[\\d.]+/g).map(Number);
        const [r, g, b] = parts.slice(0, 3).map((part) => {
            const share = part / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (node) => {
        for (; node; node = node.parentElement) {
            const color = getComputedStyle(node).backgroundColor;
            if (!/, 0\\)$/.test(color)) return color;
        }
        return "rgb(255, 255, 255)";
    };
    const texts = [...document.querySelectorAll("main *")].filter((node) =>
        !node.closest("svg") && [...node.childNodes].some((child) =>
            child.nodeType === 3 && child.textContent.trim()));
    return texts.map((node) => {
        const both = [light(getComputedStyle(node).color), light(behind(node))];
        return [(Math.max(...both) + 0.05) / (Math.min(...both) + 0.05), node.className,
                node.textContent.trim().slice(0, 40)];
    });
}"""


@pytest.fixture(scope="module")
def ledger(tmp_path_factory, catalogue, toolchain):
    """Searches in every state, by it; the services that reports are made with."""
    folder = tmp_path_factory.mktemp("reports")
    with closing(Store.open(f"sqlite:///{folder / 'greenfast.sqlite3'}")) as store:
        paused = start(store, catalogue, name="paused", workloads=("mission",), trials=20)
        for _ in range(2):
            number, candidate = paused.begin_next()
            source = paused.verdicts.source(candidate)
            trial = Trial(number, candidate, NOT_COMPILED, source.digest, 1.0)
            store.record(paused.claim, trial, source)
        store.finish(paused.claim, Ended.PAUSED, "paused")
        ids = {
            "paused": paused.row.id,
            "failed": failed_search(store, catalogue).row.id,
            "measured": accepted_search(store, catalogue).row.id,
            "completed": finished_search(store, catalogue).row.id,
            "queued": queued_search(store, catalogue).id,
        }
        yield SimpleNamespace(store=store, catalogue=catalogue, toolchain=toolchain, ids=ids)


def report_of(ledger, state: str):
    document = require_report(ledger, ledger.ids[state])
    text = markdown(document)
    for target in re.findall(r"\]\(#([\w-]+)\)", text):
        assert f'<a id="{target}"></a>' in text  # each number's link leads to its trial
    assert "<script" not in report_file(document)
    return document.searches[0], text


@pytest.mark.slow
def test_a_paused_search_without_a_correct_trial_says_both_and_how_to_go_on(ledger):
    report, text = report_of(ledger, "paused")
    assert report.state.startswith("The search is paused after 2 of 20 trials")
    assert "No candidate was correct" in text and report.winner is None
    shown, resumed = report.next_steps
    # `explain` looks into wrong results only, so it is no advice for what did not compile.
    assert f"greenfast show {report.id}/0" in shown and "explain" not in shown
    assert f"greenfast search --resume {report.id}" in resumed


def test_a_failed_search_says_so_with_its_faults_apart_from_what_was_rejected(ledger):
    report, text = report_of(ledger, "failed")
    assert report.state.startswith("The search failed after 6 of 40 trials: 5 faults in a row")
    assert report.faulted == {"toolchain_mixed": 5} and report.by_reason == {}
    assert "5 trials ended in a fault, which is no evidence about the candidate" in text
    assert any("--resume" in step for step in report.next_steps)


def test_a_measured_winner_stands_beside_its_peers_and_names_its_tie(ledger):
    report, text = report_of(ledger, "measured")
    assert report.state == "" and report.faulted == {}
    names = [peer.name for peer in report.peers]
    assert names == ["torch-cudnn", "torch-flash", "flash-attention-4"]  # the fastest first
    runner_up = next(each for each in report.confirmation.comparisons if each.other_trial == 1)
    assert f"runner-up, [trial 1](#{report.id}-1)" in text and runner_up.decision == "ambiguous"
    assert "It ties with trial 1: " in report.winner_sentence


def test_a_search_without_a_trial_has_no_report(ledger):
    with pytest.raises(UsageError) as refused:
        require_report(ledger, ledger.ids["queued"])
    assert refused.value.code == "no_trials"


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_published_folder_is_readable_from_disk(ledger, chromium, tmp_path, scheme):
    site = tmp_path / "site"
    publish(ledger, site, [name for state, name in ledger.ids.items() if state != "queued"])
    context = chromium.new_context(viewport={"width": 375, "height": 800}, color_scheme=scheme)
    page, problems = context.new_page(), []
    page.on("console", lambda message: problems.append(message.text))
    page.on("requestfailed", lambda request: problems.append(request.url))
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= 6
    for path in pages:
        page.goto(path.as_uri())
        wider_px = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wider_px == 0, path.name
        tallest_px = page.evaluate(TALLEST)
        assert tallest_px < TALL_PX, path.name
        if path.parent.name != "kernels":
            faint = [text for text in page.evaluate(CONTRASTS) if text[0] < LEAST_CONTRAST]
            assert faint == [], path.name
    context.close()
    assert problems == []
