"""Pages that keep themselves current while a search runs."""

from __future__ import annotations

import pytest
from example_searches import running_search
from playwright.sync_api import expect

from greenfast.search.loop.sink import Ended

pytestmark = pytest.mark.browser


@pytest.fixture
def running(site, catalogue):
    """A search of this test's own; cancelled afterwards."""
    example = running_search(site.store, catalogue, name="live")
    yield example
    if site.store.search(example.row.id).status == "running":
        site.store.finish(example.claim, Ended.CANCELLED, "cancelled")


def test_a_recorded_trial_appears_without_loading_the_page_again(page, running):
    page.goto(f"/searches/{running.row.id}")
    expect(page.locator("#live-state")).to_have_text("live")
    page.wait_for_selector("#chart .scatterlayer .point")
    points = page.locator("#chart .scatterlayer .point").count()
    page.evaluate("window.marker = 'still here'")
    first = running.record_next()
    expect(page.locator("#figures")).to_contain_text(f"{first + 1} of 40 trials")
    running.record_next()
    running.record_next()
    expect(page.locator("#figures")).to_contain_text(f"{first + 3} of 40 trials")
    expect(page.locator("table.trials")).to_contain_text(str(first + 2))
    assert page.evaluate("window.marker") == "still here"
    page.wait_for_function(
        "before => document.querySelectorAll('#chart .scatterlayer .point').length > before",
        arg=points,
    )


@pytest.mark.slow
def test_the_end_is_shown_and_the_stream_is_closed(page, site, running):
    page.goto(f"/searches/{running.row.id}")
    expect(page.locator("#live-state")).to_have_text("live")
    site.store.finish(running.claim, Ended.COMPLETED, "the budget is spent")
    expect(page.locator("#title")).to_contain_text("completed")
    expect(page.locator("#live-state")).to_have_text("")
    assert page.get_by_role("button", name="Cancel").count() == 0


@pytest.mark.slow
def test_a_failure_is_told_without_loading_the_page_again(page, site, running):
    page.goto(f"/searches/{running.row.id}")
    expect(page.locator("#live-state")).to_have_text("live")
    site.store.finish(running.claim, Ended.FAILED, "5 faults in a row")
    expect(page.locator(".lead.faulted")).to_have_text("The search failed: 5 faults in a row")


@pytest.mark.slow
def test_a_requested_pause_is_shown_while_the_worker_has_not_seen_it(page, running):
    page.goto(f"/searches/{running.row.id}")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#title")).to_contain_text("pause requested")
    expect(page.get_by_role("button", name="Pause")).to_be_disabled()


@pytest.mark.slow
def test_what_somebody_opened_stays_open(page, running):
    page.goto(f"/searches/{running.row.id}")
    expect(page.locator("#live-state")).to_have_text("live")
    page.locator("#steps summary").click()
    first = running.record_next()
    expect(page.locator("#figures")).to_contain_text(f"{first + 1} of 40 trials")
    assert page.locator("#steps table").is_visible()


@pytest.mark.slow
def test_the_list_follows_running_searches(page, site, running):
    page.goto("/")
    row = page.locator(
        "table.searches tr", has=page.get_by_role("link", name="live", exact=True)
    ).first
    expect(row).to_contain_text("12 of 40 trials")
    running.record_next()
    expect(row).to_contain_text("13 of 40 trials")


@pytest.mark.slow
def test_a_trial_in_flight_becomes_its_verdict(page, running):
    number, candidate = running.begin_next()
    page.goto(f"/searches/{running.row.id}/trials/{number}")
    expect(page.locator(".lead")).to_contain_text("being evaluated")
    running.record(number, candidate)
    expect(page.locator("#whole h1 + .badge")).not_to_contain_text("running")
    expect(page.locator("#gate-ptxas")).to_be_visible()


@pytest.mark.slow
def test_a_stream_that_was_refused_is_asked_for_again(page, problems, running):
    page.route("**/events", lambda route: route.fulfill(status=503))
    page.goto(f"/searches/{running.row.id}")
    expect(page.locator("#live-state")).to_have_text("reconnecting")
    page.unroute_all()
    expect(page.locator("#live-state")).to_have_text("live")
    problems.clear()
