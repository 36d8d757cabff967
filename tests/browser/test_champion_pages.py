"""What the pages show of confirmations, peers and champions."""

from __future__ import annotations

import pytest
from example_searches import accepted_search

from greenfast.db.store import Store

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def confirmed(site, catalogue):
    """A measured search of its own, whose winner may be promoted."""
    store = Store.open(str(site.store._database.engine.url))
    yield accepted_search(store, catalogue)
    store.close()


@pytest.mark.slow
def test_a_confirmation_shows_its_sentence_comparisons_and_processes(page, confirmed):
    page.goto(f"/searches/{confirmed.row.id}")
    section = page.locator("#confirmation")
    assert "confirmed in 2 fresh processes <i>of 3</i>" in section.inner_text(), (
        "text, whatever it holds"
    )
    baseline, runner_up = section.locator("tbody tr").all()
    assert "faster" in baseline.inner_text() and "0.601 [0.596, 0.607]" in baseline.inner_text()
    assert "a tie" in runner_up.inner_text() and runner_up.locator("a").get_attribute(
        "href"
    ).endswith("/trials/1")
    assert baseline.locator("code").count() == 3


def test_peers_stand_beside_the_winner_or_say_why_not(page, confirmed):
    page.goto(f"/searches/{confirmed.row.id}")
    rows = {
        row.locator("th").inner_text().split()[0]: row.inner_text()
        for row in page.locator("#peers tbody tr").all()
    }
    assert "slower" in rows["torch-cudnn"] and "measured" in rows["torch-cudnn"]
    assert "1.034 [1.025, 1.043]" in rows["torch-cudnn"] and "faster" in rows["torch-flash"]
    assert (
        "unavailable" in rows["flash-attention-4"]
        and "No module named" in rows["flash-attention-4"]
    )


@pytest.mark.slow
def test_a_search_that_was_not_confirmed_shows_no_such_section(page, site):
    page.goto(site.search)
    assert page.locator("#confirmation").count() == 0 and page.locator("#peers").count() == 0


@pytest.mark.slow
def test_a_winner_is_promoted_replaced_and_remembered(plain_page, site, confirmed, catalogue):
    page = plain_page  # all of it works without scripts
    page.goto("/champions")
    page.goto(f"/searches/{confirmed.row.id}")
    page.click("text=Promote to champion")
    assert page.url.endswith("/champions")
    row = page.locator("table.champions tbody tr", has_text=confirmed.row.id)
    assert (
        "12.0 µs measured, hot" in row.inner_text()
        and "1.034 [1.025, 1.043] torch-cudnn" in row.inner_text()
    )
    assert row.locator("td").nth(0).inner_text() == "64"
    without = page.locator(
        "tr.without", has=page.get_by_role("rowheader", name="mission_causal", exact=True)
    )
    assert (
        without.locator("a").get_attribute("href")
        == "/new?kernel=attention&workload=mission_causal"
    )
    page.goto(f"/searches/{confirmed.row.id}")
    assert page.locator("#confirmation .tag").inner_text() == "champion"
    assert page.locator("text=Promote to champion").count() == 0
    page.goto("/")
    assert confirmed.row.id in page.locator("table.champions").inner_text()

    second = accepted_search(confirmed.store, catalogue)
    page.goto(f"/searches/{second.row.id}")
    page.click("text=Promote to champion")  # the same candidate again: nothing stands against it
    page.goto("/champions")
    assert second.row.id in page.locator("table.champions").first.inner_text()
    assert confirmed.row.id in page.locator("table.champions").last.inner_text()


@pytest.mark.slow
def test_a_winner_that_was_not_timed_again_can_be(plain_page, site, catalogue):
    example = accepted_search(site.store, catalogue, confirmed=False)
    plain_page.goto(f"/searches/{example.row.id}")
    assert "was not timed again" in plain_page.locator("#confirmation").inner_text()
    plain_page.click("#confirmation button")
    assert site.store.search(example.row.id).status == "queued"
    assert "queued" in plain_page.locator("#title").inner_text()
    site.store.request_control(example.row.id, "cancel")


def test_what_is_not_confirmed_cannot_be_promoted_by_a_made_up_form(page, site, problems):
    page.goto(site.search)
    page.evaluate(
        """id => { const form = document.createElement('form'); form.method = 'post';
        form.action = `/searches/${id}/promote`; form.innerHTML = '<input name="trial" value="1">';
        document.body.append(form); form.submit() }""",
        site.finished.row.id,
    )
    page.wait_for_selector(".error-page")
    assert "not_confirmed" in page.content()
    problems.clear()  # the refusal was wanted


@pytest.mark.slow
def test_the_form_for_a_search_starts_with_the_named_workload_and_the_champion_as_default(
    page, site
):
    page.goto("/new?kernel=attention&workload=mission_causal")
    assert page.locator("input[name=workloads]:checked").evaluate_all(
        "all => all.map(box => box.value)"
    ) == ["mission_causal"]
    assert page.locator("#baseline").input_value() == ""
    assert "champion" in page.locator("#baseline option:checked").inner_text()
