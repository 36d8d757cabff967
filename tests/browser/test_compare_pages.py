"""Comparing, importances, filters, copying and the first search, in a real browser."""

from __future__ import annotations

import pytest
from example_searches import COMPILE_TRIAL, HOSTILE_NAME, WRONG_TRIAL
from served_folder import served

pytestmark = pytest.mark.browser


@pytest.fixture
def paths(site) -> list[str]:
    finished, running = site.finished.row.id, site.running.row.id
    return [
        "/compare",
        f"/compare?a={finished}&b={finished}/baseline",
        f"/compare?a={finished}/{WRONG_TRIAL}&b={running}/1",
        f"/compare?a={finished}/{COMPILE_TRIAL}&b={finished}/0",
        f"/searches/{finished}/parameters",
        f"/searches/{running}/parameters",
        f"/searches/{site.measured.row.id}/parameters",
        f"{site.search}?where=tile_m%3D64&text=spill",
    ]


@pytest.mark.parametrize(
    ("width", "step"),
    [(390, 1), (1400, 1)],
)
@pytest.mark.slow
def test_the_pages_load_and_fit(page, paths, width, step):
    page.set_viewport_size({"width": width, "height": 800})
    for path in paths[::step]:
        page.goto(path)
        assert page.locator("h1").count() == 1 and page.title() != "owned", path
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(overflow) == 0, path


@pytest.mark.slow
def test_a_comparison_shows_both_and_claims_only_what_the_times_show(page, site):
    search = site.measured.row.id
    page.goto(f"/compare?a={search}/1&b={search}/2")
    ratio = page.locator("#ratio").inner_text()
    assert "1.004" in ratio and "ambiguous" in ratio and "fresh processes" in ratio
    assert page.locator("#parameters tbody tr").count() == 2
    assert page.locator(".diff .added").count() > 0 and page.locator(".diff .removed").count() > 0
    page.get_by_role("link", name="swap").click()
    page.wait_for_url(f"**a={search}/2&b={search}/1**")
    page.goto(f"/compare?a={search}/1&b={site.finished.row.id}/1")
    assert "different conditions" in page.locator("#ratio").inner_text()


@pytest.mark.slow
def test_the_axes_of_a_pareto_front_have_ticks_units_and_the_kind_of_time(page, site):
    page.goto(f"/searches/{site.measured.row.id}/pareto")
    page.locator("#pareto .xtitle").wait_for()
    assert page.locator("#pareto .xtitle").text_content() == "measured time, µs"
    assert page.locator("#pareto .xtick").count() >= 3, "12 to 20 µs: no power of two but 16"


def test_hostile_names_stay_text(page, site):
    page.goto(f"/compare?a={site.finished.row.id}/{COMPILE_TRIAL}&b={site.running.row.id}/1")
    assert HOSTILE_NAME in page.locator("main").inner_text()
    assert page.locator("main script, main img, main b >> text=bold").count() == 0


@pytest.mark.slow
def test_names_that_are_wrong_are_answered_beside_the_form(page, site, problems):
    for a in ("<img src=x onerror=document.title='owned'>", "s_", f"{site.finished.row.id}/x"):
        page.goto("/compare")
        page.get_by_label("a", exact=True).fill(a)
        page.get_by_label("b", exact=True).fill(site.finished.row.id)
        page.get_by_role("button", name="Compare").click()
        assert page.locator("#error").is_visible() and page.title() != "owned"
        assert page.get_by_label("a", exact=True).input_value() == a
    problems.clear()  # the 404s


@pytest.mark.slow
def test_importances_have_a_picture_a_table_and_a_way_to_the_trials(plain_page, site):
    plain_page.goto(f"{site.search}/parameters")
    section = plain_page.locator("#template-wmma")
    lines = section.locator("polyline").count()
    assert lines > 10 and section.locator("polyline.fastest").count() == pytest.approx(lines / 4, 1)
    shares = section.locator("td.number").all_inner_texts()
    assert sum(float(share.split()[0]) for share in shares) == pytest.approx(100, abs=2)
    section.locator(".each-value a", has_text="64").first.click()
    plain_page.wait_for_url("**where=**")
    assert plain_page.locator("table.trials tbody tr").count() > 1


@pytest.mark.slow
def test_filters_are_in_the_url_and_survive_sorting(plain_page, site):
    plain_page.goto(site.search)
    plain_page.get_by_role("textbox", name="values").fill("tile_m=64")
    plain_page.get_by_role("searchbox", name="text").fill("spill")
    plain_page.get_by_role("button", name="Show").click()
    plain_page.wait_for_url("**where=tile_m%3D64**")
    assert "text=spill" in plain_page.url
    plain_page.goto(f"{site.search}?where=tile_m%3D64")
    count = plain_page.locator("table.trials tbody tr").count()
    assert 0 < count < 50
    plain_page.locator("table.trials thead a", has_text="Time").click()
    plain_page.wait_for_url("**sort=time_median_us**")
    assert plain_page.locator("table.trials tbody tr").count() == count
    answer = plain_page.goto(f"{site.search}?where=nonsense")
    assert answer.status == 422 and "NAME=VALUE" in plain_page.locator("main").inner_text()


@pytest.mark.slow
def test_ids_commands_and_sources_are_copied(page, site, context):
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(site.trial(WRONG_TRIAL))
    read = "navigator.clipboard.readText()"
    for name, held in (
        ("copy its name", f"^{site.finished.row.id}/{WRONG_TRIAL}$"),
        ("copy its digest", "^[0-9a-f]{64}$"),
    ):
        page.get_by_role("button", name=name).click()
        page.wait_for_function(f"{read}.then((text) => new RegExp('{held}').test(text))")
    assert page.get_by_role("button", name="copied").count() > 0
    page.get_by_role("button", name="copy the source").click()
    page.wait_for_function(f"{read}.then((text) => text.includes('__global__'))")
    assert page.locator(".commands code", has_text="greenfast check attention").is_visible()


@pytest.mark.slow
def test_without_javascript_there_is_no_button_that_does_nothing(plain_page, site):
    plain_page.goto(site.trial(WRONG_TRIAL))
    assert not any(button.is_visible() for button in plain_page.locator("button.copy").all())


@pytest.mark.slow
def test_an_empty_database_says_how_to_begin_and_one_click_starts_a_search(chromium, tmp_path):
    with served(tmp_path) as url:
        page = chromium.new_page(base_url=url, java_script_enabled=False)
        page.goto("/negatives")
        assert "Nothing was rejected yet" in page.locator("main").inner_text()
        page.goto("/")
        text = page.locator("main").inner_text()
        assert "No search yet" in text and "greenfast search attention" in text
        page.get_by_role("link", name="Start one here").click()
        page.wait_for_url("**/new")
        page.goto("/")
        page.get_by_role("button", name="Start a first search").click()
        page.wait_for_url("**/searches/s_*")
        assert "queued" in page.locator("#title").inner_text()
        assert page.get_by_role("button", name="Extend").count() == 0
        page.get_by_role("button", name="Pause").click()
        page.get_by_label("try").fill("5")
        page.get_by_role("button", name="Extend").click()
        assert "17" in page.locator("#figures").inner_text()
        page.close()
