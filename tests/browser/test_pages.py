"""Every page in a real browser: it loads without errors, fits, and shows its facts."""

from __future__ import annotations

import re
from html import unescape

import httpx
import pytest
from example_searches import (
    COMPILE_TRIAL,
    FAULTED_TRIAL,
    HOSTILE_NAME,
    IMPLAUSIBLE_TRIAL,
    MIXED_TOOLCHAIN,
    RACE_TRIAL,
    WRONG_TRIAL,
    failed_search,
    queued_search,
)
from example_verdicts import WRONG_SENTENCE

from greenfast.app.dashboard.words import NOTHING

pytestmark = pytest.mark.browser


def paths_of_each_kind(site) -> list[str]:
    trials = [site.trial(number) for number in (0, WRONG_TRIAL, RACE_TRIAL)]
    pages = ["/", "/new", "/kernels/attention", "/champions", "/negatives"]
    return [*pages, site.search, *trials]


def further_paths(site) -> list[str]:
    return [
        "/?status=completed",
        *(f"/searches/{search.row.id}" for search in (site.running, site.measured)),
        *(site.trial(number) for number in (1, COMPILE_TRIAL, FAULTED_TRIAL)),
        "/kernels",
        f"/negatives?search={site.finished.row.id}&reason=spills",
    ]


def rows(page) -> list[int]:
    return [int(text) for text in page.locator("table.trials tbody th").all_inner_texts()]


def column(page, number: int) -> list[str]:
    return page.locator(f"table.trials tbody td:nth-child({number})").all_inner_texts()


def unlabelled(page) -> list[str]:
    return page.evaluate(
        """Array.from(document.querySelectorAll("main input:not([type=hidden]), main select"))
            .filter((field) => field.labels.length === 0).map((field) => field.name)"""
    )


def unreachable(page) -> list[str]:
    """The tables that scroll sideways and that the Tab key does not reach."""
    return page.evaluate(
        """Array.from(document.querySelectorAll(".scroll"))
            .filter((place) => place.scrollWidth > place.clientWidth + 1)
            .filter((place) => place.tabIndex !== 0 || !place.ariaLabel)
            .map((place) => place.innerText)"""
    )


@pytest.mark.parametrize(
    ("width", "paths"),
    [
        (375, paths_of_each_kind),
        pytest.param(375, further_paths, marks=pytest.mark.slow),
        pytest.param(1600, paths_of_each_kind, marks=pytest.mark.slow),
        pytest.param(1600, further_paths, marks=pytest.mark.slow),
    ],
)
def test_pages_load_without_an_error_fit_their_window_and_label_their_fields(
    page, site, width, paths
):
    page.set_viewport_size({"width": width, "height": 800})
    for path in paths(site):
        page.goto(path)
        assert page.locator("h1").count() == 1, path
        assert "greenfast" in page.title() and page.title() != "owned"
        if page.locator("#chart").count():
            page.wait_for_selector("#chart .main-svg")
        wider_px = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wider_px == 0, path
        assert unlabelled(page) == [], path
        assert unreachable(page) == [], path


def test_every_time_says_its_kind(plain_page, site):
    page = plain_page
    for path in ("/", site.search, f"/searches/{site.measured.row.id}", site.trial(1)):
        page.goto(path)
        times = page.locator(".time").all_text_contents()
        assert times and all(
            re.search(r" (modelled|measured(, (hot|cold))?)$", time_.strip()) for time_ in times
        ), path
    page.goto(site.search)
    assert all("modelled" in cell for cell in column(page, 3) if "µs" in cell)
    assert "modelled" in page.locator("#figures").inner_text()


@pytest.mark.slow
def test_the_search_page_compares_and_says_how_far_that_goes(page, site):
    page.goto(site.search)
    assert "band of a factor of 2" in page.locator("#figures").inner_text()
    page.goto(f"/searches/{site.measured.row.id}")
    assert "measured" in page.locator("#figures").inner_text()


@pytest.mark.slow
def test_running_searches_come_first(page, site):
    page.goto("/")
    names = page.locator("table.searches .name a").all_inner_texts()
    assert names.index(HOSTILE_NAME) < names.index(site.finished.plan.name)


@pytest.mark.slow
def test_searches_are_filtered_by_url(plain_page, site):
    page = plain_page
    page.goto("/")
    page.get_by_label("kernel").select_option("attention")
    page.get_by_label("text").fill("FIRST sweep")
    page.get_by_role("button", name="Show").click()
    assert page.locator("table.searches .name a").all_inner_texts() == [site.finished.plan.name]
    page.get_by_role("link", name="completed").click()
    assert "kernel=attention" in page.url and "FIRST+sweep" in page.url
    assert page.locator("table.searches .name a").count() == 1
    page.goto("/?kernel=nowhere")
    assert "No search matches these filters." in page.locator("main").inner_text()


def test_the_funnel_adds_up(plain_page, site):
    page = plain_page
    page.goto(site.search)
    counts = site.store.counts(site.finished.row.id)
    shown = {
        line.split()[0]: line.split()[1:]
        for line in page.locator("table.funnel tbody tr").all_inner_texts()
    }
    for stage, reached, passed in counts.funnel:
        assert shown[stage][0] == str(reached)
        assert shown[stage][1] == (str(passed) if passed else "not")
    assert shown["correctness"][-2:] == [str(counts.by_stage["correctness"]), "0"]
    assert shown["compile"][-2:] == ["1", "1"]  # one rejected, one lost to a fault of ours


def test_the_chart_is_drawn_and_a_point_leads_to_its_trial(page, site):
    page.goto(site.search)
    page.wait_for_selector("#chart .scatterlayer .point")
    drawn = page.locator("#chart .scatterlayer .trace").count()
    assert drawn == 4  # two templates, the best, trials without a time
    assert page.locator("#chart .gl-canvas").count() == 0
    page.locator("#chart").scroll_into_view_if_needed()
    box = page.locator("#chart .scatterlayer .point").first.bounding_box()
    place = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*place)
    page.wait_for_selector("#chart .hoverlayer .hovertext")
    assert "modelled" in page.locator("#chart .hoverlayer").text_content()
    page.mouse.click(*place)
    page.wait_for_url("**/trials/*")


@pytest.mark.slow
def test_trials_are_filtered(plain_page, site):
    page = plain_page  # without JavaScript no chart is drawn
    page.goto(site.search)
    page.get_by_label("verdict").select_option("rejected")
    page.get_by_label("gate").select_option("correctness")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**verdict=rejected**")
    assert WRONG_TRIAL in rows(page) and 0 not in rows(page)
    assert all("correctness: wrong_values" in cell for cell in column(page, 2))
    assert page.get_by_label("verdict").input_value() == "rejected"
    page.goto(site.search)
    page.locator("select[name=template]").select_option("scalar")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**template=scalar**")
    assert all(cell.startswith("scalar") for cell in column(page, 5))


@pytest.mark.slow
def test_trials_are_sorted_by_a_click_and_the_other_way_round_by_another(plain_page, site):
    page = plain_page
    page.goto(site.search)
    page.get_by_role("link", name="Regs").click()
    page.wait_for_url("**sort=registers**")
    up = [int(cell.split()[0]) for cell in column(page, 7) if cell != NOTHING]
    assert up == sorted(up)
    page.get_by_role("link", name="Regs").click()
    page.wait_for_url("**descending=1**")
    down = [int(cell.split()[0]) for cell in column(page, 7) if cell != NOTHING]
    assert down == sorted(down, reverse=True) and down[0] > up[0]
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Regs")


@pytest.mark.slow
def test_paging_shows_every_trial_once(plain_page, site):
    page = plain_page
    page.goto(f"{site.search}?sort=time_median_us")
    seen = rows(page)
    while page.get_by_role("link", name="next page").count():
        page.get_by_role("link", name="next page").click()
        page.wait_for_url("**cursor=**")
        assert page.get_by_label("sort by").input_value() == "time_median_us"
        seen += rows(page)
    assert sorted(seen) == list(range(64))


@pytest.mark.slow
def test_a_rejected_trial_shows_the_failing_check_first_with_its_sentence(plain_page, site):
    page = plain_page
    page.goto(site.trial(WRONG_TRIAL))
    assert "rejected" in page.locator(".title").first.inner_text()
    assert WRONG_SENTENCE in page.locator(".lead").inner_text()
    checks = page.locator("table.checks tbody tr").all_inner_texts()
    assert "failed" in checks[0] and WRONG_SENTENCE in checks[1]
    assert "failed" not in checks[-1]
    assert "wrong_values" in page.locator("#gate-correctness").inner_text()
    assert "skipped" in page.locator("#gate-performance").inner_text()


def test_a_race_stands_at_both_its_lines_and_its_sentence_is_text(page, site):
    page.goto(site.trial(RACE_TRIAL))
    (finding,) = site.store.trial(site.finished.row.id, RACE_TRIAL).gates["safety"]["findings"]
    listed = page.locator("#finding-1")
    assert "race" in listed.inner_text() and "12 times" in listed.inner_text()
    assert (
        "no barrier <b>between</b> them" in listed.inner_text()
        and page.locator("#finding-1 b").count() == 1
    )
    for line in (finding["source_line"], finding["other_source_line"]):
        assert "race" in page.locator(f"#L{line} .finding").inner_text()
    listed.get_by_role("link").first.click()
    assert page.url.endswith(f"#L{finding['source_line']}")


@pytest.mark.slow
def test_costs_stand_at_their_lines_in_words_and_are_not_copied_with_the_code(page, site):
    page.goto(site.trial(0))
    costs = page.locator("pre.source .cost").all_inner_texts()
    assert any("1.50 x bank conflicts, 96 wavefronts" in cost and "▲" in cost for cost in costs)
    assert any("1.25 x the sectors needed, 160 sectors" in cost for cost in costs)
    assert (
        page.locator("pre.source .cost").first.evaluate("cost => getComputedStyle(cost).userSelect")
        == "none"
    )


@pytest.mark.slow
def test_a_faulted_trial_explains_that_there_is_no_verdict(plain_page, site):
    page = plain_page
    page.goto(site.trial(FAULTED_TRIAL))
    assert "a fault of greenfast or of this machine" in page.locator(".lead").inner_text()


@pytest.mark.slow
def test_a_trial_links_to_its_parents_and_names_the_repaired_values(plain_page, site):
    page = plain_page
    trials = site.store.trials(site.finished.row.id, limit=64).items
    crossed = next(trial for trial in trials if trial.origin == "crossed")
    page.goto(site.trial(crossed.number))
    parents = page.locator("#origin a").all_inner_texts()
    assert parents == [f"trial {crossed.number - 2}", f"trial {crossed.number - 1}"]
    assert "crossed from" in page.locator("#origin dd").inner_text()
    repaired = next(trial for trial in trials if trial.origin == "repaired")
    page.goto(site.trial(repaired.number))
    origin = page.locator("#origin dd").inner_text()
    assert "repaired instead of" in origin and "(invalid or already tried)" in origin
    assert all(f"{name}={value}" in origin for name, value in repaired.wanted.items())


@pytest.mark.slow
def test_an_implausible_modelled_time_is_shown_as_not_ranked(plain_page, site):
    page = plain_page
    page.goto(site.trial(IMPLAUSIBLE_TRIAL))
    assert "implausible, not ranked" in page.locator("dl.facts").first.inner_text()
    gate = page.locator("#gate-performance").inner_text()
    assert "0.41 us" in gate and "1.75 us" in gate and "not ranked" in gate
    costs = page.locator("#gate-performance table.costs")
    assert [costs.nth(number).locator("tr").count() for number in range(2)] == [5, 4]
    assert "counted in a sample of blocks" in page.locator("#source").inner_text()
    page.goto(site.search)
    assert "not ranked" in column(page, 3)[IMPLAUSIBLE_TRIAL]


@pytest.mark.slow
def test_a_failed_search_tells_why_below_its_title(page, site, catalogue):
    failed = failed_search(site.store, catalogue)
    page.goto(f"/searches/{failed.row.id}")
    lead = page.locator(".lead.faulted").inner_text()
    assert lead.startswith("The search failed: 5 faults in a row")
    assert lead.endswith(MIXED_TOOLCHAIN)


@pytest.mark.slow
def test_a_queued_search_tells_that_no_worker_is_running(page, site, catalogue):
    row = queued_search(site.store, catalogue)
    page.goto(f"/searches/{row.id}")
    assert "no worker is running" in page.locator("#title").inner_text()
    assert "greenfast worker starts one" in page.locator("#figures").inner_text()
    assert not page.locator(".card").is_visible()
    site.store.request_control(row.id, "cancel")


@pytest.mark.slow
def test_a_trial_shows_what_it_changed_and_what_its_time_goes_into(page, site):
    page.goto(site.trial(3))
    changed = page.locator("table.settings tr.changed th").all_inner_texts()
    assert {name.split()[0] for name in changed} == {
        change.name for change in site.store.trial(site.finished.row.id, 3).changed
    }
    assert "occupancy" in page.locator("#gate-ptxas").inner_text()
    assert "shared memory" in page.locator("#gate-performance table.limits").inner_text()
    page.get_by_role("link", name="trial 4 →").click()
    page.wait_for_url("**/trials/4")


@pytest.mark.slow
def test_the_source_is_highlighted_with_lines_to_point_at(page, site):
    page.goto(site.trial(0) + "#L12")
    assert page.locator("#L12").count() == 1
    assert page.locator("pre.source .cp, pre.source .cpf").first.inner_text().startswith("#include")
    text = site.store.source(site.store.trial(site.finished.row.id, 0).source_digest).text
    copied = page.locator("pre.source").evaluate(
        "source => { getSelection().selectAllChildren(source); return getSelection().toString(); }"
    )
    assert copied.rstrip("\n") == text.rstrip("\n")
    stops = "document.querySelectorAll('pre.source a[data-number]:not([tabindex=\"-1\"])').length"
    assert page.evaluate(stops) == 0
    with page.expect_download() as download:
        page.get_by_role("link", name="Download .cu").click()
    assert download.value.suggested_filename.endswith(".cu")
    assert download.value.path().read_text() == text


def test_hostile_names_and_logs_stay_text(page, site):
    for path in ("/", f"/searches/{site.running.row.id}", site.trial(COMPILE_TRIAL)):
        page.goto(path)
        page.wait_for_timeout(300)
        assert page.title() != "owned"
        assert (
            page.locator(
                "main script:not([type='application/json']), main img, main b:text('bold')"
            ).count()
            == 0
        )
    assert "onerror=" in page.locator("pre.log").inner_text()
    log = page.locator("pre.log").inner_text()
    assert "\\x1b[31m" in log and "\\u202e" in log and "\x1b" not in log and "\u202e" not in log
    page.goto(f"/searches/{site.running.row.id}")
    assert page.locator("h1").inner_text() == HOSTILE_NAME


@pytest.mark.slow
def test_what_does_not_exist_is_said_in_the_same_look(page, site, problems):
    wrong = (
        ("/nothing", 404, "there is no page"),
        ("/searches/s_aaaaaaaaaaaa", 404, "s_aaaaaaaaaaaa"),
        (f"{site.search}/trials/9999", 404, "no trial 9999"),
        ("/kernels/nope", 404, "unknown kernel 'nope'"),
        (f"{site.search}?verdict=nope", 422, "known: accepted"),
        (f"{site.search}?sort=nope", 422, "known: duration_s"),
        (f"{site.search}?cursor=nope", 422, "cursor"),
        (f"{site.search}/trials/x", 422, "number"),
    )
    for path, status, sentence in wrong:
        answer = httpx.get(site.url + path, headers={"accept": "text/html"})
        assert (answer.status_code, sentence in unescape(answer.text)) == (status, True), path
    path, status, sentence = wrong[3]
    assert page.goto(path).status == status and sentence in page.locator("main").inner_text()
    assert page.locator("header.top").is_visible() and page.locator("main code").count() == 1
    assert len([problem for problem in problems if problem.startswith("console")]) == 1
    problems.clear()


def test_programs_are_told_in_json_and_pages_read_without_a_browser(site):
    answer = httpx.get(site.url + "/nothing")
    assert (
        answer.status_code == 404 and answer.headers["content-type"] == "application/problem+json"
    )
    answer = httpx.get(site.url + site.search)
    assert answer.status_code == 200 and "wrong_values" in answer.text
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "onclick" not in answer.text and "<script>" not in answer.text


@pytest.mark.slow
def test_files_are_kept_by_browsers_until_they_change(page, site):
    page.goto(site.search)
    url = page.locator("script[src*=plotly]").get_attribute("src")
    answer = httpx.get(site.url + url)
    assert "immutable" in answer.headers["cache-control"] and len(answer.content) > 1_000_000
    again = httpx.get(site.url + url, headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304
    assert httpx.get(f"{site.url}/static/..%2fpages.py").status_code == 404


@pytest.mark.slow  # of the default tests, most look at pages without JavaScript
def test_pages_work_without_javascript(plain_page, site):
    plain_page.goto(site.search)
    assert plain_page.locator("table.trials tbody tr").count() == 50
    plain_page.locator("details summary").first.click()
    assert plain_page.locator("#steps table").is_visible()
    plain_page.get_by_label("verdict").select_option("faulted")
    plain_page.get_by_role("button", name="Show").click()
    plain_page.wait_for_url("**verdict=faulted**")
    assert rows(plain_page) == [FAULTED_TRIAL]
    plain_page.goto(f"/searches/{site.running.row.id}")
    assert plain_page.locator("h1").inner_text() == HOSTILE_NAME


def test_values_are_readable_on_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto("/kernels/rmsnorm")
    widths = page.locator("td.changes").evaluate_all("all => all.map(cell => cell.offsetWidth)")
    assert min(widths) >= 150
