"""A served database with searches to look at, and a Chromium that looks at them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from example_searches import ExampleSearch, accepted_search, finished_search, running_search
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from served_folder import served

from greenfast.db.store import Store

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LONGEST_WAIT_MS = 60_000
expect.set_options(timeout=LONGEST_WAIT_MS)
VIEWPORT = {"width": 1400, "height": 900}


@dataclass(frozen=True)
class Site:
    """A running service and the database behind it."""

    url: str
    store: Store
    finished: ExampleSearch
    running: ExampleSearch
    measured: ExampleSearch

    def trial(self, number: int) -> str:
        return f"/searches/{self.finished.row.id}/trials/{number}"

    @property
    def search(self) -> str:
        return f"/searches/{self.finished.row.id}"


@pytest.fixture(scope="session")
def site(tmp_path_factory, catalogue) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    store = Store.open(f"sqlite:///{folder / 'greenfast.sqlite3'}")
    measured, finished = accepted_search(store, catalogue), finished_search(store, catalogue)
    running = running_search(store, catalogue)
    with served(folder) as url:
        yield Site(url, store, finished, running, measured)
    store.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        if os.environ.get("GREENFAST_NO_BROWSER") == "1":
            pytest.skip("GREENFAST_NO_BROWSER=1: the pages are not driven in a browser")
        pytest.fail(
            f"none of {', '.join(BROWSERS)} is installed; install one (apt-get install chromium), "
            "or set GREENFAST_NO_BROWSER=1 to leave these tests out"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def problems() -> list[str]:
    """Errors in the browser; a test that provokes some clears them."""
    return []


@pytest.fixture(scope="session")
def context(chromium, site) -> Iterator[BrowserContext]:
    """One profile for all tests, so that scripts are fetched and compiled once.

    The pages keep nothing in a browser: no cookie without a token, and no storage.
    """
    shared = chromium.new_context(base_url=site.url, viewport=VIEWPORT)
    shared.set_default_timeout(LONGEST_WAIT_MS)
    yield shared
    shared.close()


@pytest.fixture(scope="session")
def tab(context) -> Iterator[Page]:
    """One tab for all tests: in a fresh one Chromium would compile Plotly again."""
    tab = context.new_page()
    yield tab
    tab.close()


@pytest.fixture
def page(tab, problems) -> Iterator[Page]:
    """A tab in which nothing may go wrong: no console error, no exception, no failed request."""
    tab.set_viewport_size(VIEWPORT)
    with watched(tab, problems):
        yield tab
        problems_of_the_test = list(problems)  # leaving the page cuts requests off
        tab.unroute_all()
        tab.goto("about:blank")
    assert problems_of_the_test == []


@pytest.fixture(scope="session")
def plain_tab(chromium, site) -> Iterator[Page]:
    context = chromium.new_context(base_url=site.url, java_script_enabled=False)
    context.set_default_timeout(LONGEST_WAIT_MS)
    yield context.new_page()
    context.close()


@pytest.fixture
def plain_page(plain_tab) -> Iterator[Page]:
    """A tab without JavaScript."""
    yield plain_tab
    plain_tab.goto("about:blank")


@contextmanager
def watched(page: Page, problems: list[str]) -> Iterator[None]:
    """A block in which the page's errors are added to `problems`."""
    listeners = {
        "console": lambda message: (
            problems.append(f"console: {message.text}")
            if message.type in ("error", "warning")
            else None
        ),
        "pageerror": lambda error: problems.append(f"exception: {error}"),
        "response": lambda answer: (
            problems.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None
        ),
        # A request that a navigation cuts off (the event stream) did not fail.
        "requestfailed": lambda request: (
            problems.append(f"failed: {request.url} {request.failure}")
            if "ERR_ABORTED" not in (request.failure or "")
            else None
        ),
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    try:
        yield
    finally:
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
