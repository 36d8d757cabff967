"""Forms in a real browser: typed values stay, errors are at their field, only our pages post."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser


def start(page) -> None:
    page.get_by_role("button", name="Start the search").click()


@pytest.mark.parametrize(
    "field, typed, sentence",
    [
        ("Trials at most", "0", "budget.trials must be between 1 and 1,000,000; got 0"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("Seed", "1.5", "seed is '1.5'"),
                ("Trials at most", "many", "trials is 'many'"),
                (
                    "Seconds at most",
                    "-3",
                    "budget.seconds must be above 0 and at most 2,592,000; got -3",
                ),
                ("Least gain", "2", "min_gain is 2"),
                ("Least gain", "nan", "min_gain is 'nan'"),
                ("Max registers", "-1", "max_registers is -1"),
                ("Name", "x" * 201, "1 to 200 printable characters"),
            )
        ),
    ],
)
def test_bad_input_is_said_beside_the_field_and_what_was_typed_is_kept(
    page, problems, field, typed, sentence
):
    page.goto("/new")
    page.get_by_label("Name").fill("<i>kept</i>")
    page.locator("[name=workloads][value=mission_causal]").check()
    page.get_by_label("small", exact=False).first.uncheck()
    page.get_by_label("Strategy").select_option("random")
    page.get_by_label("Caches").select_option("cold")
    page.get_by_label("Seconds at most", exact=True).fill("77")
    page.get_by_label(field, exact=True).fill(typed)
    with page.expect_response("**/new") as answer:
        start(page)
    assert answer.value.status == 422
    assert sentence in page.locator("#error").inner_text()
    wrong = page.locator("[aria-invalid]")
    assert wrong.input_value() == typed
    assert sentence in page.locator(f"#{wrong.get_attribute('aria-describedby')}").inner_text()
    assert page.get_by_label("Strategy").input_value() == "random"
    assert page.get_by_label("Caches").input_value() == "cold"
    checked = page.locator("[name=workloads]:checked").evaluate_all(
        "all => all.map(box => box.value)"
    )
    assert checked == ["mission_causal"]
    if field != "Name":
        assert page.get_by_label("Name").input_value() == "<i>kept</i>"
    problems.clear()


@pytest.mark.slow
def test_a_shape_of_ones_own_is_searched_and_a_wrong_one_is_said_beside_it(page, site, problems):
    page.goto("/new?kernel=attention")
    for name, size in (("B", "3"), ("H", "6"), ("H_kv", "4"), ("S_q", "77")):
        page.locator(f"[name='own.{name}']").fill(size)
    assert page.locator("[name='own.D']").input_value() == "64"  # the default workload's
    page.locator("[name='own.D']").select_option("32")
    page.locator("[name='own.dtype']").select_option("bf16")
    assert page.locator("[name=shape]:checked").get_attribute("value") == "own"  # by typing
    start(page)
    assert "H=6 is not a multiple of H_kv=4" in page.locator("#error-own").inner_text()
    assert page.locator("[name='own.S_q']").input_value() == "77"
    problems.clear()
    page.locator("[name='own.H_kv']").fill("")
    start(page)
    page.wait_for_url("**/searches/s_*")
    plan = site.store.plan(page.url.rsplit("/", 1)[-1])
    assert plan.workloads == ("B=3,H=6,S_q=77,D=32,dtype=bf16",)
    assert "mma" in plan.templates
    page.get_by_role("button", name="Cancel").click()


@pytest.mark.slow
def test_the_form_takes_objectives_and_what_is_expected(page, site, problems):
    page.goto("/new?kernel=attention")
    page.get_by_label("registers", exact=True).check()
    for label, text in (
        ("Stop without gain", "7"),
        ("Stop near the bound", "20"),
        ("Hypothesis", "fewer registers cost no time"),
        ("Expected gain", "2"),
        ("Cost", "an hour"),
    ):
        page.get_by_label(label).fill(text)
    start(page)
    assert "the expected gain is 2" in page.locator("#error-expected_gain").inner_text()
    assert page.get_by_label("registers", exact=True).is_checked()
    problems.clear()
    page.get_by_label("Expected gain").fill("0.1")
    page.get_by_label("Strategy").select_option("tpe")
    start(page)
    assert "tpe cannot search with several" in page.locator("#error-objectives").inner_text()
    problems.clear()
    page.get_by_label("Strategy").select_option("nsga2")
    start(page)
    page.wait_for_url("**/searches/s_*")
    plan = site.store.plan(page.url.rsplit("/", 1)[-1])
    assert plan.objectives == ("time", "registers") and plan.cost == "an hour"
    assert (plan.no_gain, plan.bound_percent, plan.expected_gain) == (7, 20.0, 0.1)
    page.get_by_role("button", name="Cancel").click()


@pytest.mark.slow
def test_the_filter_hides_workloads_but_never_a_selected_one(page):
    page.goto("/new?kernel=attention")
    page.get_by_label("Filter the workloads").fill("causal bf16")
    selected = page.locator("[name=workloads]:checked").get_attribute("value")
    shown = page.locator("#named-workloads label:visible")
    values = shown.locator("input").evaluate_all("all => all.map(box => box.value)")
    assert {selected, "mission_causal_bf16"} <= set(values)
    assert len(values) < page.locator("#named-workloads label").count() / 2


@pytest.mark.slow
def test_workloads_that_do_not_go_together_are_said_at_the_workloads(page, problems):
    page.goto("/new")
    page.locator("[name=workloads][value=mission_bf16]").check()
    start(page)
    assert "a search for each" in page.locator("#error-workloads").inner_text()
    problems.clear()


@pytest.mark.slow
def test_nothing_chosen_is_said(page, problems):
    page.goto("/new")
    page.locator("[name=templates]:checked").evaluate_all(
        "all => all.forEach(box => box.checked = false)"
    )
    start(page)
    assert "none of the templates is selected" in page.locator("#error-templates").inner_text()
    problems.clear()


@pytest.mark.slow
def test_a_target_that_is_not_there_is_said_with_the_mend(page, problems):
    page.goto("/new")
    page.get_by_label("Target").select_option("cuda:0")
    start(page)
    assert page.locator("#error-target").count() == 1
    assert page.get_by_label("Target").input_value() == "cuda:0"
    problems.clear()


@pytest.mark.slow
def test_a_submitted_search_can_be_paused_resumed_and_cancelled(page, site):
    page.goto("/new?kernel=attention")
    page.get_by_label("Name").fill("from the form")
    page.get_by_label("Trials at most").fill("5")
    page.get_by_label("Seed").fill("11")
    page.get_by_label("Max registers").fill("128")
    page.get_by_label("Caches").select_option("hot")
    start(page)
    page.wait_for_url("**/searches/s_*")
    search_id = page.url.rsplit("/", 1)[-1]
    plan = site.store.plan(search_id)
    assert (
        plan.name,
        plan.trials,
        plan.seed,
        plan.limits.max_registers,
        plan.limits.max_spill_bytes,
    ) == ("from the form", 5, 11, 128, 0)
    assert plan.mode == "hot"
    assert "Waiting for a worker" in page.locator("main").inner_text()
    for button, status in (("Pause", "paused"), ("Resume", "queued"), ("Cancel", "cancelled")):
        page.get_by_role("button", name=button).click()
        page.wait_for_selector(f"#title .badge.{status}")
        assert site.store.search(search_id).status == status
    assert page.get_by_role("button", name="Cancel").count() == 0


@pytest.mark.slow
def test_a_control_that_is_not_possible_now_is_a_page_that_says_so(page, site, problems):
    page.goto(f"/searches/{site.running.row.id}")
    page.evaluate(f"document.querySelector('.controls').action = '{site.search}/control'")
    with page.expect_response("**/control") as answer:
        page.get_by_role("button", name="Pause").click()
    assert answer.value.status == 409
    assert "cannot be paused" in page.locator("main").inner_text()
    assert site.store.search(site.finished.row.id).status == "completed"
    problems.clear()


def test_a_form_of_another_site_starts_nothing(context, site):
    before = [item.id for item in site.store.searches().items]
    page = context.new_page()
    page.goto(
        "data:text/html,<form method=post action='"
        + site.url
        + "/new'><input name=kernel value=attention>"
        "<input name=trials value=1><input name=workloads value=mission>"
        "<input name=templates value=wmma>"
        "<button>Win</button></form>"
    )
    with page.expect_response("**/new") as answer:
        page.get_by_role("button", name="Win").click()
    assert answer.value.status == 403
    assert [item.id for item in site.store.searches().items] == before


def test_the_form_works_without_javascript(plain_page, site):
    plain_page.goto("/new")
    plain_page.get_by_label("Name").fill("no script")
    plain_page.get_by_role("button", name="Start the search").click()
    plain_page.wait_for_url("**/searches/s_*")
    plain_page.get_by_role("button", name="Cancel").click()
    assert "cancelled" in plain_page.locator("#title").inner_text()
