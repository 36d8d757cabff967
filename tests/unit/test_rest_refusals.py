"""REST's refusals name the field, the path or the parameter, and what would be correct."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import store_values as values
from fastapi.testclient import TestClient

from greenfast.app.routes import bundling
from greenfast.app.routes.events import MOST_STREAMS
from greenfast.app.service.application import create_app
from greenfast.app.settings import Settings
from greenfast.app.views.log_pauses import LogPauses
from greenfast.app.wiring import Services

JSON = {"content-type": "application/json"}
OWN = {"dims": {"B": 1}, "options": {}}


@pytest.fixture(scope="module")
def services(tmp_path_factory) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("data")
    services = Services(Settings.from_environment({"GREENFAST_DATA": str(folder)}))
    yield services
    services.close()


@pytest.fixture(scope="module")
def client(services) -> Iterator[TestClient]:
    with TestClient(
        create_app(services), base_url="http://127.0.0.1/api/v1", raise_server_exceptions=False
    ) as client:
        yield client


@pytest.fixture(scope="module")
def search(services, client) -> str:
    """A queued search; the client has opened the store."""
    return services.store.submit(values.plan()).id


@pytest.mark.parametrize(
    ("path", "body", "known"),
    [
        ("/searches/{}/extend", {"trials": 1, "more": 2}, "known: trials"),
        ("/tunings", {"kernel": "a", "workloads": ["b"], "shapes": []}, "within_percent"),
        ("/searches", {"kernel": "attention", "budget": {"hours": 1}}, "known: trials, seconds"),
        ("/searches", {"kernel": "attention", "workload": []}, "did you mean 'workloads'? known"),
        ("/searches", {"kernel": "attention", "workloads": [{**OWN, "size": 1}]}, "name, dims"),
    ],
)
def test_an_unknown_field_is_refused_with_the_fields_of_its_own_place(
    client, search, path, body, known
):
    answer = client.post(path.format(search), json=body).json()
    assert answer["code"] == "unknown_field" and known in answer["mend"], answer


@pytest.mark.parametrize(
    ("workload", "sentence"),
    [
        (7, "workloads.1 is neither of what a workload can be"),
        (None, "workloads.1 is neither of what a workload can be"),
        ([], "workloads.1 is neither of what a workload can be"),
        ({}, "workloads.1.dims is missing in the body"),
        ({"dims": {"B": "x"}}, "workloads.1.dims.B must be a"),
        ({"dims": {"B": 1.5}}, "workloads.1.dims.B must be a"),
        ({"dims": [1]}, "workloads.1.dims must be an object"),
        ({"dims": {}, "options": {"mask": 3}}, "workloads.1.options.mask "),
        ({"dims": {}, "weight": "much"}, "workloads.1.weight must be a"),
    ],
)
def test_a_bad_workload_is_named_by_its_row_and_field(client, workload, sentence):
    body = {"kernel": "attention", "workloads": ["small", workload]}
    answer = client.post("/searches", json=body)
    assert answer.status_code == 422 and answer.json()["detail"].startswith(sentence)
    assert "dims is missing" not in sentence or '{"dims": {' in answer.json()["mend"]
    assert "str:" not in answer.json()["detail"] and "WorkloadIn" not in answer.text


@pytest.mark.parametrize(
    ("path", "mend"),
    [
        ("/searches/{}/pareto?objective=time", "known: objectives"),
        ("/searches/{}?verbose=1", "this path takes no parameters"),
        ("/searches/{}/trials?srot=number", "sort"),
        ("/submissions?kernell=attention", "known: limit, cursor, kernel"),
    ],
)
def test_an_unknown_parameter_is_refused_where_it_would_be_ignored(client, search, path, mend):
    answer = client.get(path.format(search))
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_field")
    assert mend in answer.json()["mend"]


def test_a_parameter_may_be_repeated_only_where_every_value_counts(client, search):
    twice = client.get("/searches?status=queued&status=running")
    assert (twice.status_code, twice.json()["code"]) == (422, "repeated_field")
    path = f"/searches/{search}/trials?where=tile_m=64&where=tile_n=64"
    assert client.get(path).status_code == 200


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('{"kernel": "attention", "kernel": "rmsnorm"}', "kernel"),
        ('{"kernel": "attention", "budget": {"trials": 1, "trials": 2}}', "trials"),
    ],
)
def test_a_field_of_a_body_is_given_once(client, body, name):
    answer = client.post("/searches", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (422, "repeated_field")
    assert answer.json()["mend"] == f"give {name!r} once"


@pytest.mark.parametrize("path", ["/negatives", "/champions", "/submissions"])
def test_a_list_of_a_misspelt_kernel_is_refused_with_the_known_names(client, path):
    answer = client.get(f"{path}?kernel=attentoin")
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_kernel")
    assert "did you mean 'attention'?" in answer.json()["mend"]
    assert client.get(f"{path}?kernel=attention").json()["items"] == []


def test_every_schema_that_openapi_refers_to_is_part_of_it(client):
    document = client.get("/openapi.json")
    named = set(re.findall(r'"\$ref": ?"#/components/schemas/([^"]+)"', document.text))
    assert "Problem" in named
    assert named <= set(document.json()["components"]["schemas"])


def test_every_documented_parameter_is_accepted(client, search):
    """OpenAPI once named a parameter that its route refused."""
    paths = client.get("/openapi.json").json()["paths"]
    documented = [
        (path.removeprefix("/api/v1").replace("{search}", search), parameter["name"])
        for path, methods in paths.items()
        for parameter in methods.get("get", {}).get("parameters", ())
        if parameter["in"] == "query"
    ]
    assert ("/submissions", "kernel") in documented
    for path, name in documented:
        answer = client.get(path, params={name: "1"})
        assert "unknown_field" not in answer.text, (path, name)


def test_a_path_and_a_method_are_named_in_a_sentence(client, search):
    nowhere = client.get("/nothing/here").json()
    assert nowhere["detail"] == "there is no path /api/v1/nothing/here"
    method = client.put(f"/searches/{search}")
    assert method.json()["detail"] == f"PUT is not possible at /api/v1/searches/{search}"
    assert (
        method.json()["mend"] == f"allowed: {method.headers['allow']}" and method.headers["allow"]
    )


@pytest.mark.parametrize("content", [b"[" * 50_000, b'{"kernel": "\xff"}', b"[]", b"null", b"7"])
def test_a_body_that_is_no_object_is_refused_in_a_sentence(client, content):
    answer = client.post("/searches", content=content, headers=JSON)
    assert answer.status_code in (400, 422)
    detail, mend = answer.json()["detail"], answer.json()["mend"]
    assert "JSON object" in detail + mend


def test_a_refusal_repeats_no_long_name(client):
    answer = client.get("/kernels/" + "a" * 4000).json()
    assert answer["code"] == "unknown_kernel" and len(answer["detail"]) < 200
    body = {"kernel": "attention", "baseline": "a" * 500_000}
    answer = client.post("/searches", json=body).json()
    assert answer["code"] == "bad_preset" and len(answer["detail"]) <= 1000


@pytest.mark.slow
def test_bundles_do_not_take_every_thread(client, search):
    path = f"/searches/{search}/bundle"
    other = client.get(path).json()["code"]
    with ExitStack() as held:
        for _ in range(bundling.MOST_AT_ONCE):
            held.enter_context(bundling._SLOTS)
        answer = client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (503, "bundles_busy")
    assert client.get(path).json()["code"] == other != "bundles_busy"


@pytest.mark.parametrize("path", ["/searches", "/tunings"])
def test_more_workloads_than_a_file_may_have_are_refused(client, path):
    shapes = [{"dims": {"M": 1, "N": 8 * number}} for number in range(1, 1002)]
    answer = client.post(path, json={"kernel": "rmsnorm", "workloads": shapes}).json()
    assert answer["code"] == "bad_workloads" and "workloads holds 1,001" in answer["detail"]
    assert answer["detail"].endswith("has at most 1,000")


def test_faults_that_a_client_repeats_do_not_fill_the_log(client, services, search, caplog):
    services.open_streams = MOST_STREAMS
    try:
        statuses = {client.get(f"/searches/{search}/events").status_code for _ in range(50)}
    finally:
        services.open_streams = 0
    assert statuses == {503}
    lines = [line for line in caplog.messages if line.startswith("too_many_streams")]
    assert len(lines) <= 1  # none if an earlier test of the same minute wrote it


def test_the_log_counts_the_lines_that_it_leaves_out():
    times = iter([0.0, 1.0, 2.0, 3.0, 61.0, 62.0])
    pauses = LogPauses(lambda: next(times))
    kinds = ("busy", "busy", "database_locked", "busy", "busy", "busy")
    assert [pauses.due(kind) for kind in kinds] == [
        *("", None, "", None),
        *(" (2 more since the last line)", None),
    ]
