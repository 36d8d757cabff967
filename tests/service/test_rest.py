"""REST: one search from request to download, and every kind of refusal."""

from __future__ import annotations

import hashlib
import json
import sqlite3

import httpx
import pytest
from service_home import axpy

from greenfast.client import ServiceError


@pytest.fixture(scope="module")
def done(service):
    """A finished search over right and broken candidates."""
    row = service.submit(
        **axpy(
            name="first",
            templates=["right", "broken"],
            budget={"trials": 8},
            strategy="random",
            workloads=["line"],
        )
    )
    return service.wait(row["id"], deadline_s=600)


def raw(service, method, path, **arguments):
    return httpx.request(method, service.url + path, trust_env=False, **arguments)


def test_a_search_goes_from_request_to_best_and_source(service, done):
    assert (
        done["status"] == "completed"
        and done["name"] == "first"
        and done["progress"]["share"] == 1.0
    )
    assert (
        done["counts"]["total"] == 8
        and next(stage["stage"] for stage in done["funnel"]) == "render"
    )
    best = service.best(done["id"])
    assert (
        best["source_digest"] == done["best"]["source_digest"] and best["beats_baseline"] is False
    )
    text = service.source(best["source_digest"])
    assert hashlib.sha256(text.encode()).hexdigest() == best["source_digest"]
    answer = raw(service, "GET", f"/api/v1/sources/{best['source_digest'][:8]}")
    assert answer.headers["content-type"].startswith("text/plain") and answer.text == text


def test_submitting_answers_201_with_the_id_and_where_it_is(service):
    answer = raw(service, "POST", "/api/v1/searches", json=axpy())
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/api/v1/searches/{answer.json()['id']}"


def test_trials_are_paged_filtered_and_sorted_by_the_server(service, done):
    path = f"/api/v1/searches/{done['id']}/trials"
    first = raw(service, "GET", path, params={"limit": 3}).json()
    assert [item["number"] for item in first["items"]] == [0, 1, 2] and first["next_cursor"]
    second = raw(service, "GET", path, params={"limit": 3, "cursor": first["next_cursor"]}).json()
    assert [item["number"] for item in second["items"]] == [3, 4, 5]
    green = service.trials(done["id"], verdict="green", sort="registers", descending=True)
    assert [trial["registers"] for trial in green] == sorted(
        (trial["registers"] for trial in green), reverse=True
    )
    assert {trial["verdict"] for trial in green} == {"green"}
    assert len(service.trials(done["id"])) == 8


@pytest.mark.slow
def test_the_stages_of_a_trial_add_up_to_its_duration_and_end_where_it_was_rejected(service, done):
    for trial in service.trials(done["id"]):
        stages = trial["stage_seconds"]
        assert sum(stages.values()) == pytest.approx(trial["duration_s"], abs=1e-4)
        assert stages["render"] > 0 and stages["compile"] > 0
        assert ("safety" in stages) == (trial["verdict"] == "green")
        assert trial["verdict"] == "green" or trial["stage"] in stages
    page = raw(service, "GET", f"/searches/{done['id']}/trials/0").text
    assert page.count("how long this stage took") == 6


def test_a_trial_shows_its_gates_and_what_it_depends_on(service, done):
    trial = service.trial(done["id"], 0)
    assert trial["is_baseline"] and trial["gates"]["ptxas"]["registers"] > 0
    assert trial["gates"]["correctness"]["checks"] and "nvidia-cuda-nvrtc" in trial["environment"]


def test_negatives_carry_scope_reason_and_sentence(service, done):
    negatives = service.negatives(search_id=done["id"])
    assert len(negatives) == done["counts"]["by_verdict"].get("rejected", 0) > 0
    assert all(
        negative["kernel"] == "axpy"
        and negative["device"] == "h200"
        and negative["reason"]
        and negative["sentence"]
        and negative["workloads"] == ["line"]
        for negative in negatives
    )
    assert service.negatives(search_id=done["id"], reason=negatives[0]["reason"])


def test_events_tell_trials_progress_and_the_end_and_go_on_after_the_last_id(service, done):
    events = stream(service, done["id"])
    assert [event["id"] for event in events if event["event"] == "trial"] == [
        str(number) for number in range(8)
    ]
    assert [event["event"] for event in events][-2:] == ["progress", "end"]
    assert json.loads(events[-1]["data"])["status"] == "completed"
    later = stream(service, done["id"], {"last-event-id": "5"})
    assert [event["id"] for event in later if event["event"] == "trial"] == ["6", "7"]
    assert (
        raw(
            service,
            "GET",
            f"/api/v1/searches/{done['id']}/events",
            headers={"last-event-id": "end"},
        ).status_code
        == 204
    )


def stream(service, search_id, headers=None):
    events = []
    with httpx.stream(
        "GET",
        f"{service.url}/api/v1/searches/{search_id}/events",
        headers=headers or {},
        trust_env=False,
        timeout=30,
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for block in "".join(answer.iter_text()).split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "event" in lines:
                events.append({"id": "", **lines})
    return events


def test_events_of_a_running_search_arrive_while_it_runs(service):
    row = service.submit(**axpy(budget={"trials": 4}))
    events = stream(service, row["id"])
    assert (
        sum(event["event"] == "trial" for event in events) == 4
        and len([event for event in events if event["event"] == "progress"]) >= 2
    )


def test_what_there_is_to_choose_from(service):
    for path, names in (
        ("kernels", {"axpy", "attention"}),
        ("templates", {"right", "scalar"}),
        ("targets", {"emulator:h200", "cuda:0"}),
        ("strategies", {"tpe", "nsga2", "random"}),
    ):
        page = raw(service, "GET", f"/api/v1/{path}").json()
        assert names <= {item["name"] for item in page["items"]} and page["next_cursor"] is None
    assert (
        raw(service, "GET", "/api/v1/kernels/axpy/templates/right").json()["presets"][0]["name"]
        == "plain"
    )


REFUSED = {
    "an unknown kernel in a body": ("POST", "/searches", {"kernel": "axpi"}, 422, "unknown_kernel"),
    "an unknown kernel in the path": ("GET", "/kernels/axpi", None, 404, "unknown_kernel"),
    "an unknown field": (
        "POST",
        "/searches",
        {"kernel": "axpy", "workload": "line"},
        422,
        "unknown_field",
    ),
    "an unknown field of the budget": (
        "POST",
        "/searches",
        {"kernel": "axpy", "budget": {"hours": 1}},
        422,
        "unknown_field",
    ),
    "no kernel": ("POST", "/searches", {}, 422, "missing_field"),
    "a wrong type": ("POST", "/searches", {"kernel": "axpy", "seed": "7"}, 422, "bad_value"),
    "a budget of no trials": (
        "POST",
        "/searches",
        {"kernel": "axpy", "budget": {"trials": 0}},
        422,
        "bad_budget",
    ),
    "a seed beyond 31 bits": (
        "POST",
        "/searches",
        {"kernel": "axpy", "seed": 2**63},
        422,
        "bad_seed",
    ),
    "an unknown workload": (
        "POST",
        "/searches",
        {"kernel": "axpy", "workloads": ["huge"]},
        422,
        "unknown_workload",
    ),
    "no workload": ("POST", "/searches", {"kernel": "axpy", "workloads": []}, 422, "bad_value"),
    "an unknown strategy": (
        "POST",
        "/searches",
        {"kernel": "axpy", "strategy": "luck"},
        422,
        "unknown_strategy",
    ),
    "an unknown target": (
        "POST",
        "/searches",
        {"kernel": "axpy", "target": "tpu:0"},
        422,
        "unknown_target",
    ),
    "a GPU that is not there": (
        "POST",
        "/searches",
        {"kernel": "axpy", "target": "cuda:63"},
        422,
        "no_gpu",
    ),
    "an unknown gate": (
        "POST",
        "/searches",
        {"kernel": "axpy", "gates": {"beauty": {}}},
        422,
        "unknown_gate",
    ),
    "a name with control characters": (
        "POST",
        "/searches",
        {"kernel": "axpy", "name": "a\r\nb"},
        422,
        "bad_name",
    ),
    "an unknown search": ("GET", "/searches/s_aaaaaaaaaaaa", None, 404, "unknown_search"),
    "an odd search id": ("GET", "/searches/s_%00%0aaaaaaaaaa", None, 404, "unknown_search"),
    "a control that there is not": (
        "POST",
        "/searches/s_aaaaaaaaaaaa/explode",
        None,
        422,
        "bad_value",
    ),
    "a best of an unknown search": (
        "GET",
        "/searches/s_aaaaaaaaaaaa/best",
        None,
        404,
        "unknown_search",
    ),
    "events of an unknown search": (
        "GET",
        "/searches/s_aaaaaaaaaaaa/events",
        None,
        404,
        "unknown_search",
    ),
    "a bundle of an unknown search": (
        "GET",
        "/searches/s_aaaaaaaaaaaa/bundle",
        None,
        404,
        "unknown_search",
    ),
    "an unknown source": ("GET", "/sources/0123456789abcdef", None, 404, "unknown_source"),
    "a misspelt filter": ("GET", "/negatives?kernl=axpy", None, 422, "unknown_field"),
    "a filter value that there is not": ("GET", "/negatives?reason=ugly", None, 422, "bad_value"),
    "a page that is too large": ("GET", "/searches?limit=100000", None, 422, "bad_value"),
    "a cursor that is none": ("GET", "/searches?cursor=%00", None, 422, None),
    "an unknown path": ("GET", "/nothing", None, 404, "unknown_path"),
    "a method that there is not": ("DELETE", "/searches", None, 405, "bad_method"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_is_a_problem_with_a_stable_code(what, service):
    method, path, body, status, code = REFUSED[what]
    answer = raw(service, method, "/api/v1" + path, json=body)
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, problem["status"]) == (status, status) and problem["code"] == (
        code or problem["code"]
    )
    assert (
        set(problem) == {"type", "title", "status", "detail", "code", "mend", "errors"}
        and problem["detail"]
    )
    assert (
        "Traceback" not in answer.text and "/work" not in answer.text and ".py" not in answer.text
    )


def test_unknown_fields_and_sorts_are_refused_with_the_known_ones(service, done):
    problem = raw(
        service, "POST", "/api/v1/searches", json={"kernel": "axpy", "workload": "line"}
    ).json()
    assert "workloads" in problem["mend"] and "budget" in problem["mend"]
    problem = raw(service, "GET", f"/api/v1/searches/{done['id']}/trials?sort=beauty").json()
    assert problem["code"] == "unknown_sort" and "time_median_us" in problem["mend"]


def test_what_is_not_json_is_400_and_what_is_too_large_is_413(service):
    headers = {"content-type": "application/json"}
    answer = raw(service, "POST", "/api/v1/searches", content=b'{"kernel": ', headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_json")
    for content in (b"x" * 1_100_000, iter([b"x" * 600_000] * 2)):  # announced, and in chunks
        answer = raw(service, "POST", "/api/v1/searches", content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    answer = raw(service, "POST", "/login", data={"token": "x" * 10_000})  # anyone may send it
    assert answer.json()["detail"] == "a body may have at most 10,000 bytes"
    assert (
        raw(
            service,
            "POST",
            "/api/v1/searches",
            content=b'{"kernel": "axpy", "seed": NaN}',
            headers=headers,
        ).status_code
        == 422
    )


def test_a_search_that_ended_is_neither_paused_nor_resumed(service, done):
    for control in ("pause", "resume"):
        with pytest.raises(ServiceError) as refused:
            service.control(done["id"], control)
        assert (refused.value.status, refused.value.code) == (409, "bad_transition")


def test_a_best_that_there_is_not_yet_is_404_no_best(service):
    row = service.submit(
        **axpy(
            templates=["broken"],
            baseline="none",
            budget={"trials": 1},
            seed=4,
            gates={"ptxas": {"max_registers": 1}},
        )
    )
    service.wait(row["id"], deadline_s=60)
    with pytest.raises(ServiceError) as refused:
        service.best(row["id"])
    assert (refused.value.status, refused.value.code) == (404, "no_best")


def test_pages_of_other_sites_can_do_nothing(service):
    port = service.url.rpartition(":")[2]
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": f"http://localhost:{port}1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        answer = raw(service, "POST", "/api/v1/searches", json=axpy(), headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "cross_origin")
    assert (
        raw(
            service, "DELETE", "/api/v1/searches", headers={"origin": "http://evil.example"}
        ).status_code
        == 403
    )
    assert (
        raw(
            service, "GET", "/api/v1/searches", headers={"sec-fetch-site": "cross-site"}
        ).status_code
        == 403
    )
    assert (
        raw(service, "GET", "/healthz", headers={"sec-fetch-site": "cross-site"}).status_code == 200
    )
    own = raw(service, "POST", "/api/v1/searches", json=axpy(), headers={"origin": service.url})
    assert own.status_code == 201


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "", "[::1", "a b"]
)
def test_a_host_that_is_not_ours_is_refused(service, host):
    answer = raw(service, "GET", "/api/v1/searches", headers={"host": host})
    assert answer.status_code == 400
    assert (
        raw(service, "GET", "/api/v1/searches", headers={"host": "LOCALHOST:1"}).status_code == 200
    )


def test_answers_carry_safe_headers_and_the_api_is_not_stored(service):
    for path in ("/api/v1/searches", "/api/v1/nothing", "/healthz"):
        headers = raw(service, "GET", path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and "server" not in headers
    assert raw(service, "GET", "/api/v1/searches").headers["cache-control"] == "no-store"


def test_health_readiness_and_the_contract_are_there(service):
    assert raw(service, "GET", "/healthz").json() == {"status": "ok"}
    ready = raw(service, "GET", "/readyz")
    assert ready.json()["status"] == "ready" and str(service.home.data) not in ready.text
    paths = raw(service, "GET", "/api/v1/openapi.json").json()["paths"]
    assert {
        "/api/v1/searches",
        "/api/v1/searches/{search}/trials/{trial}",
        "/api/v1/sources/{source}",
        "/api/v1/negatives",
        "/healthz",
        "/readyz",
    } <= set(paths)


def test_with_a_token_nothing_but_health_is_open(home):
    token = "correct-horse-battery"
    _, url = home.serve("--workers", "0", GREENFAST_TOKEN=token)
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/healthz").status_code == 200
        refused = client.get("/api/v1/searches")
        assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
        assert (
            client.get(
                "/api/v1/searches", headers={"authorization": "Bearer wrong-horse-battery"}
            ).status_code
            == 401
        )
        assert (
            client.get("/api/v1/searches", headers={"authorization": f"Bearer {token}"}).status_code
            == 200
        )
        page = client.get("/", headers={"accept": "text/html"})
        assert page.status_code == 303 and page.headers["location"].startswith("/login")
        assert client.post("/login", data={"token": "wrong-horse-battery"}).status_code == 403
        answer = client.post("/login", data={"token": token, "next": "//evil.example"})
        cookie = answer.headers["set-cookie"]
        assert answer.headers["location"] == "/" and token not in cookie
        assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
        assert client.get("/api/v1/searches").status_code == 200  # by the cookie now


def test_a_locked_database_is_our_fault_and_says_when_to_come_again(home):
    _, url = home.serve("--workers", "0")
    holder = sqlite3.connect(home.data / "greenfast.sqlite3", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        answer = httpx.post(url + "/api/v1/searches", json=axpy(), trust_env=False, timeout=60)
    finally:
        holder.close()
    assert (answer.status_code, answer.json()["code"]) == (
        503,
        "database_locked",
    ) and answer.headers["retry-after"]
    assert httpx.post(url + "/api/v1/searches", json=axpy(), trust_env=False).status_code == 201
