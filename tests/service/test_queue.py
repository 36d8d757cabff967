"""What waits: its place, who could take it, and the pages of the list."""

from __future__ import annotations

import re

import httpx
import pytest
import store_values as values
from service_home import until

from greenfast.app.cli.search_report import show_search
from greenfast.app.cli.search_run import lost
from greenfast.app.views.progress import ordinal, search_detail
from greenfast.db.store import Store
from greenfast.search.loop.sink import Ended


@pytest.fixture
def store(home):
    opened = Store.open(f"sqlite:///{home.data / 'greenfast.sqlite3'}")
    yield opened
    opened.close()


def get(url: str, **parameters: str) -> httpx.Response:
    return httpx.get(url, params=parameters, headers={"accept": "text/html"}, trust_env=False)


def names(page: str) -> list[str]:
    return re.findall(r'<th scope="row" class="name"><a href="[^"]*">([^<]*)</a>', page)


def test_ordinals():
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "13th",
        "21st",
        "102nd",
        "111th",
    ]


@pytest.mark.slow
def test_a_queued_search_has_its_place_and_no_worker_is_said_to_be_there(home, store):
    rows = [store.submit(values.plan(name=f"search {number}")) for number in range(3)]
    assert [store.search(row.id).queue_position for row in rows] == [1, 2, 3]
    _, url = home.serve("--workers", "0")
    listed = httpx.get(f"{url}/api/v1/searches", trust_env=False).json()
    assert [item["queue_position"] for item in listed["items"]] == [3, 2, 1]
    assert (listed["queued"], listed["workers_alive"]) == (3, 0)
    assert names(get(url).text) == ["search 0", "search 1", "search 2"], "the next one first"
    assert names(get(url, status="queued").text) == ["search 0", "search 1", "search 2"]
    for page in (get(url), get(f"{url}/searches/{rows[1].id}")):
        assert "2nd of 3, no worker is running" in page.text and "submitted" in page.text
    assert "2nd of 3, no worker is running" in " ".join(
        home.run("searches", COLUMNS="200").out.split()
    )
    store.request_control(rows[0].id, "cancel")
    assert [store.search(row.id).queue_position for row in rows] == [None, 1, 2]


def test_a_worker_is_alive_while_it_runs(home, store):
    worker = home.start("worker")
    until(lambda: store.queue_state().workers_alive == 1, "the worker is seen")
    worker.terminate()
    until(lambda: store.queue_state().workers_alive == 0, "the worker is gone")


def test_a_killed_worker_counts_until_its_sign_of_life_is_too_old(home, store):
    worker = home.start("worker")
    until(lambda: store.queue_state().workers_alive == 1, "the worker is seen")
    worker.kill()
    worker.wait()
    assert store.queue_state(alive_s=3600).workers_alive == 1, "it could not sign off"
    until(lambda: store.queue_state(alive_s=1.0).workers_alive == 0, "the worker counts as gone")
    store.worker_seen("another")
    assert store.queue_state(alive_s=60).workers_alive >= 1


def test_a_command_that_shows_a_queued_search_tells_that_no_worker_runs(store, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    row = store.submit(values.plan())
    show_search(search_detail(store, row.id))
    assert "1st of 1, no worker is running" in " ".join(capsys.readouterr().out.split())


def test_a_command_that_lost_its_search_tells_what_became_of_it(store):
    search_id = store.submit(values.plan()).id
    claim = store.claim("another", 30.0, search_id)
    assert lost(store, search_id).message.endswith(f"{search_id}: another worker runs it")
    store.finish(claim, Ended.CANCELLED, "")
    assert lost(store, search_id).message.endswith(f"{search_id}: it is cancelled")
    store.remove([(search_id, None)])
    assert lost(store, search_id).message.endswith(f"{search_id}: it was removed")


@pytest.mark.slow
def test_older_pages_show_each_search_once_beside_many_active_ones(home, store):
    ended = [store.submit(values.plan(name=f"ended {number}")) for number in range(30)]
    for row in ended:
        store.request_control(row.id, "cancel")
    for number in range(60):
        store.submit(values.plan(name=f"waits {number}"))
    _, url = home.serve("--workers", "0")
    first = get(url).text
    older = re.search(r'rel="next" href="/\?cursor=([^"]*)"', first)
    second = get(url, cursor=older[1]).text
    shown = names(first) + names(second)
    assert len(set(shown)) == len(shown)
    assert {row.name for row in ended} <= set(shown) and 'rel="next"' not in second
    assert 'href="/?status=queued">all queued searches' in first
