"""Numbers, colours and states of pages that need no browser to be judged."""

from __future__ import annotations

import re
from itertools import product

import pytest
import store_values as values
from fastapi.testclient import TestClient

from greenfast.app.dashboard import words
from greenfast.app.dashboard.pages import STATIC
from greenfast.app.routes.login import PAGE
from greenfast.app.service.application import create_app
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services

AA_TEXT = 4.5  # WCAG 2.2, 1.4.3: contrast of text below 18 pt
SHEET = (STATIC / "dashboard.css").read_text("utf-8")
SCHEMES = dict(
    zip(
        ("light", "dark"),
        (
            dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
            for block in re.findall(r":root \{(.*?)\}", SHEET, re.DOTALL)
        ),
        strict=True,
    )
)
ON_PAGES = ("ink", "soft", "link", "good", "bad", "warn", *(f"series-{n}" for n in range(1, 5)))
PAIRS = [
    *product(ON_PAGES, ("paper", "card", "shade")),
    *((name, f"{name}-shade") for name in ("good", "bad", "warn", "busy")),
    *product(("ink", "soft"), ("good-shade", "bad-shade", "warn-shade")),
]


def test_a_finding_in_a_table_begins_with_what_is_wrong():
    case = "tile_plus_one (N=129, normal inputs, seed 5, forward order): "
    assert words.brief(f"{case}y[65] is 1 (6 of 9)") == "tile_plus_one: y[65] is 1 (6 of 9)"
    for other in ("axpy.cu.j2(94): error", "72 bytes spill (of 80): too many"):
        assert words.brief(other) == other


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb` as WCAG defines it."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_text_can_be_read_on_every_ground_that_it_may_have(scheme):
    colours = SCHEMES[scheme]
    low = {}
    for text, ground in PAIRS:
        high, less = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
        if (high + 0.05) / (less + 0.05) < AA_TEXT:
            low[text, ground] = round((high + 0.05) / (less + 0.05), 2)
    assert low == {}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, words.NOTHING),
        ("NaN", "NaN"),
        (0.0, "0"),
        (0.00012, "1.2e-4"),
        (0.0012, "0.0012"),
        (0.123, "0.12"),
        (1.26, "1.3"),
        (16.0, "16"),
        (2060.5, "2,060"),
        (1.2e7, "1.2e7"),
    ],
)
def test_an_error_has_an_exponent_only_where_a_decimal_would_be_long(value, text):
    assert words.error(value) == text


def test_the_login_page_follows_the_colour_scheme_and_loads_nothing():
    assert '<meta name="color-scheme" content="light dark">' in PAGE
    assert re.findall(r'(?:src|href)="([^"]*)"', PAGE) == ["data:,"]


def test_a_running_search_without_a_trial_says_that_its_target_is_being_prepared(tmp_path):
    services = Services(Settings.from_environment({"GREENFAST_DATA": str(tmp_path)}))
    row = services.store.submit(values.plan())
    claim = services.store.claim("worker", values.LEASE_S)
    with TestClient(create_app(services), base_url="http://localhost") as client:
        before = client.get(f"/searches/{row.id}").text
        services.store.begin(claim, 0, values.proposal(0))
        after = client.get(f"/searches/{row.id}").text
    services.close()
    assert "preparing emulator:h200; the first search in a data folder" in before
    assert '"empty">The first trial will be the baseline.' in before and "preparing" not in after
