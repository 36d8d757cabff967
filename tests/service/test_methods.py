"""HEAD, Allow, and the way through the login page."""

from __future__ import annotations

import httpx
import pytest
import store_values as values
from slow_cases import quick_first

from greenfast.db.store import Store
from greenfast.search.errors import UsageError

TOKEN = "a-token-of-24-characters"


@pytest.fixture(scope="module")
def search_id(service):
    store = Store.open(f"sqlite:///{service.home.data / 'greenfast.sqlite3'}")
    row = store.submit(values.plan())
    store.request_control(row.id, "cancel")
    store.close()
    return row.id


def request(service, method, path, **arguments):
    return httpx.request(method, service.url + path, trust_env=False, **arguments)


@pytest.mark.parametrize(
    "path",
    quick_first(
        [
            "/healthz",
            "/readyz",
            "/login",
            "/",
            "/new",
            "/kernels",
            "/static/live.js",
            "/api/v1/openapi.json",
            "/api/v1/searches",
            "/api/v1/searches/ID",
            "/api/v1/searches/ID/trials",
            "/searches/ID",
        ],
        6,
    ),
)
def test_head_has_the_status_and_type_of_get_without_a_body(service, search_id, path):
    path = path.replace("ID", search_id)
    head, get = request(service, "HEAD", path), request(service, "GET", path)
    assert head.status_code == get.status_code == 200 and head.content == b""
    assert head.headers["content-type"] == get.headers["content-type"]


def test_head_of_an_event_stream_ends(service, search_id):
    answer = request(service, "HEAD", f"/api/v1/searches/{search_id}/events")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith(
        "text/event-stream"
    )


def test_an_event_id_that_is_not_ours_begins_at_the_first_trial(service, search_id):
    path = f"/api/v1/searches/{search_id}/events"
    for other in ("9" * 5000, "-1", "\xb2"):
        answer = request(service, "GET", path, headers={"last-event-id": other.encode("latin-1")})
        assert answer.status_code == 200 and "event: end" in answer.text, other[:9]


def test_a_body_without_the_type_of_json_is_told_the_header(service):
    problem = request(service, "POST", "/api/v1/searches", content=b'{"kernel": "axpy"}').json()
    assert problem["code"] == "bad_value" and "application/json" in problem["mend"]


@pytest.mark.parametrize("part", ["bytes=0-9", "bytes=9-1", "bytes=99999999-", "bytes=a-b"])
def test_a_part_of_a_static_file_is_answered_with_the_whole(service, part):
    whole = request(service, "GET", "/static/live.js")
    answer = request(service, "GET", "/static/live.js", headers={"range": part})
    assert answer.status_code == 200 and answer.content == whole.content
    assert answer.headers["accept-ranges"] == "none"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"json": {"token": TOKEN}}, 422),
        ({"files": {"token": b"x"}}, 422),
        ({"content": b"--x", "headers": {"content-type": "multipart/form-data"}}, 400),
    ],
)
def test_a_login_that_is_no_form_is_told_so(service, body, status):
    answer = request(service, "POST", "/login", **body)
    problem = answer.json()
    assert answer.status_code == status
    assert "a form with the field token" in problem["detail"] + problem["mend"]


@pytest.mark.parametrize(
    "path, allowed",
    [
        ("/api/v1/searches", "GET, HEAD, POST"),
        ("/api/v1/searches/ID", "GET, HEAD, DELETE"),
        ("/api/v1/searches/ID/trials/0", "GET, HEAD, DELETE"),
        ("/api/v1/searches/ID/trials", "GET, HEAD"),
        ("/api/v1/searches/ID/cancel", "POST"),
        ("/api/v1/searches/ID/confirm", "POST"),
        ("/login", "GET, HEAD, POST"),
        ("/healthz", "GET, HEAD"),
    ],
)
def test_allow_names_every_method_of_the_path(service, search_id, path, allowed):
    answer = request(service, "PUT", path.replace("ID", search_id))
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


def test_a_cancelled_search_is_not_told_that_it_can_cancel(service, search_id):
    problem = request(service, "POST", f"/api/v1/searches/{search_id}/pause").json()
    assert problem["code"] == "bad_transition" and problem["mend"] == "start a new search"
    page = request(service, "GET", f"/searches/{search_id}", headers={"accept": "text/html"}).text
    assert 'name="wanted"' not in page


def test_the_page_that_was_wanted_is_reached_after_login_with_its_query(home):
    _, url = home.serve("--workers", "0", GREENFAST_TOKEN=TOKEN)
    with httpx.Client(base_url=url, trust_env=False, headers={"accept": "text/html"}) as client:
        refused = client.get("/?status=queued&cursor=a%2Fb%26c")
        page = client.get(refused.headers["location"])
        assert page.status_code == 200
        target = httpx.URL(refused.headers["location"]).params["next"]
        answer = client.post("/login", data={"token": TOKEN, "next": target})
        assert answer.headers["location"] == "/?status=queued&cursor=a%2Fb%26c"
        for elsewhere in (
            "//evil",
            "/\\evil",
            "https:evil",
            "https://evil",
            "\\\\evil",
            "/\t/evil",
            "",
        ):
            answer = client.post("/login", data={"token": TOKEN, "next": elsewhere})
            assert (answer.status_code, answer.headers["location"]) == (303, "/"), elsewhere


def test_the_form_offers_the_recordings_of_its_own_kernel_only(service):
    replayed = "replay:mission-mma-h200"
    pages = [request(service, "GET", f"/new?kernel={name}").text for name in ("attention", "axpy")]
    assert [replayed in page for page in pages] == [True, False]


def test_the_form_refuses_a_misspelt_field_and_names_the_known_ones(service):
    form = {"kernel": "axpy", "shape": "own", "own.n": "8", "templates": "right", "trials": "3"}
    answer = request(service, "POST", "/new", data=form)
    assert answer.status_code == 422 and "own.n" in answer.text and "own.N" in answer.text
    answer = request(service, "POST", "/new", data={"kernel": "axpy", "trails": "3"})
    assert answer.status_code == 422 and "gpu_seconds" in answer.text


def test_the_client_says_when_another_program_answers(service):
    with pytest.raises(UsageError) as refused:
        service._json("GET", "/login")  # a page, as a proxy would send
    assert refused.value.code == "not_a_service"
