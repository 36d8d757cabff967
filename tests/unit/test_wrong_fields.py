"""One refusal names all wrong fields of a request: over REST, on the form, on the command line."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import fields

import pytest
from fastapi.testclient import TestClient

from greenfast.app.cli.output import print_error
from greenfast.app.service.application import create_app
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.search.errors import Refusals, UsageError
from greenfast.search.loop.plan import SearchRequest
from greenfast.search.loop.wrong_fields import collect_wrong_fields

JSON = {"content-type": "application/json"}
FORM = {
    "kernel": "attention",
    "shape": "named",
    "workloads": "mission",
    "templates": "wmma",
    "trials": "1",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("data")
    services = Services(Settings.from_environment({"GREENFAST_DATA": str(folder)}))
    with TestClient(create_app(services), base_url="http://127.0.0.1") as client:
        yield client
        assert services.store.searches().items == ()  # nothing wrong was queued
    services.close()


def wrong_fields(answer) -> dict[str, str]:
    return {each["field"]: each["code"] for each in answer.json()["errors"]}


def test_rest_names_all_wrong_values(client):
    body = {
        "kernel": "attention",
        "name": "a\nb",
        "target": "tpu:0",
        "strategy": "luck",
        "workloads": ["huge"],
        "templates": ["fast"],
        "baseline": "wmma:none",
        "budget": {"trials": 0, "seconds": -1.0, "no_gain": 0, "within_percent": -1.0},
        "seed": -1,
        "min_gain": 2.0,
        "mode": "warm",
        "gates": {"ptxas": {"max_registers": -1, "max_spill_bytes": True, "more": 1}, "luck": {}},
        "cost": "x" * 1001,
    }
    answer = client.post("/api/v1/searches", json=body)
    assert answer.status_code == 422
    problem = answer.json()
    assert wrong_fields(answer) == {
        "name": "bad_name",
        "target": "unknown_target",
        "strategy": "unknown_strategy",
        "workloads": "unknown_workload",
        "templates": "unknown_template",
        "budget.trials": "bad_budget",
        "budget.seconds": "bad_budget",
        "budget.no_gain": "bad_budget",
        "budget.within_percent": "bad_budget",
        "seed": "bad_seed",
        "min_gain": "bad_min_gain",
        "mode": "unknown_mode",
        "gates.ptxas.max_registers": "bad_limit",
        "gates.ptxas.max_spill_bytes": "bad_limit",
        "gates.ptxas.more": "unknown_setting",
        "gates.luck": "unknown_gate",
        "cost": "bad_note",
    }
    first = problem["errors"][0]
    assert (first["code"], first["detail"]) == (problem["code"], problem["detail"])


def test_rest_names_all_values_of_a_wrong_type(client):
    body = {"seed": "7", "budget": {"trials": 1.5, "hours": 1}, "workloads": ["a", {"size": 1}, 3]}
    answer = client.post("/api/v1/searches", json=body)
    assert wrong_fields(answer) == {
        "kernel": "missing_field",
        "seed": "bad_value",
        "budget.trials": "bad_value",
        "budget.hours": "unknown_field",
        "workloads.1.dims": "missing_field",
        "workloads.2": "bad_value",
    }
    assert answer.json()["code"] == "missing_field"


def test_a_list_of_wrong_values_is_not_repeated_as_a_whole(client):
    answer = client.post("/api/v1/searches", json={"kernel": "a", "templates": [0] * 1000})
    assert len(answer.json()["errors"]) == 20 and len(answer.content) < 5_000


WIDE = [
    ("gates", {"gates": {f"g{number}": {} for number in range(20_000)}}),
    ("gates.ptxas", {"gates": {"ptxas": {f"g{number}": 1 for number in range(20_000)}}}),
    ("the body", {f"g{number}": 1 for number in range(20_000)}),
    ("workloads", {"workloads": [{"size": 1}] * 60_000}),
    ("workloads", {"workloads": [1] * 200_000}),
    ("templates", {"templates": [{}] * 100_000}),
    ("workloads.0.dims", {"workloads": [{"dims": {f"g{number}": "" for number in range(2000)}}]}),
    ("the body", {"workloads": [{"dims": {f"g{n}": "" for n in range(900)}}] * 60}),
]


@pytest.mark.parametrize(("field", "body"), WIDE, ids=range(len(WIDE)))
def test_more_fields_than_any_request_has_are_refused_at_once(client, field, body):
    content = json.dumps({"kernel": "attention", **body})
    begun = time.process_time()
    answer = client.post("/api/v1/searches", content=content, headers=JSON)
    assert time.process_time() - begun < 1
    problem = answer.json()
    assert (answer.status_code, len(answer.content) < 1000) == (422, True)
    assert problem["code"] == ("bad_workloads" if field == "workloads" else "too_many_items")
    assert re.match(rf"{field} holds [\d,]+ items or more; a .* has at most", problem["detail"])


def test_a_deep_body_does_not_hide_a_wide_one(client):
    deep, wide = "[" * 700 + "]" * 700, "1," * 60_000 + "1"
    content = f'{{"hypothesis": {deep}, "workloads": [{wide}]}}'
    answer = client.post("/api/v1/searches", content=content, headers=JSON)
    assert answer.json()["code"] == "bad_workloads"


def test_a_refusal_of_many_fields_is_short(client):
    body = {"kernel": "attention", "gates": {f"g{number}": {} for number in range(900)}}
    answer = client.post("/api/v1/searches", json=body)
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 20 and len(answer.content) < 10_000


@pytest.mark.parametrize("name", ["\ud800", "\u202eevil", "\x1b]0;owned\x07"])
def test_a_field_is_named_in_visible_characters(client, name):
    for gates in ({name: {}}, {"ptxas": {name: 1}}):
        body = json.dumps({"kernel": "attention", "gates": gates})
        answer = client.post("/api/v1/searches", content=body, headers=JSON)
        assert answer.status_code == 422 and answer.text.isprintable()
    body = json.dumps({"kernel": "attention", name: 1})
    answer = client.post("/api/v1/searches", content=body, headers=JSON)
    assert answer.status_code == 422 and answer.text.isprintable()


def test_a_refusal_of_one_field_is_as_before(client):
    answer = client.post("/api/v1/searches", json={"kernel": "attention", "seed": -1})
    assert answer.json()["code"] == "bad_seed" and wrong_fields(answer) == {"seed": "bad_seed"}


def test_the_form_shows_each_error_beside_its_field(client):
    typed = {
        "name": "x" * 201,
        "trials": "many",
        "seconds": "-3",
        "seed": "1.5",
        "min_gain": "nan",
        "no_gain": "0",
        "max_registers": "-1",
        "hypothesis": "y" * 1001,
        "cost": "z" * 1001,
        "baseline": "wmma:gone",
    }
    answer = client.post("/new", data=FORM | typed)
    assert answer.status_code == 422
    beside = dict(
        re.findall(r'<div id="error-(\w+)"><p class="field-error">(.*?)</p>', answer.text)
    )
    assert beside.keys() == typed.keys()
    assert "write a whole number" in beside["trials"] and "above 0" in beside["seconds"]
    assert "cost" in beside["cost"] and "hypothesis" in beside["hypothesis"]
    for name in typed:
        assert f'aria-describedby="error-{name}"' in answer.text


def test_a_shape_that_cannot_be_read_brings_no_error_about_another_shape(client):
    own = {"shape": "own", "own.D": "64", "own.B": "many", "templates": "wgmma", "seed": "x"}
    answer = client.post("/new", data=FORM | own)
    assert set(re.findall(r'id="error-(\w+)"', answer.text)) == {"own", "seed"}


def test_templates_are_judged_beside_other_wrong_fields(client):
    body = {"kernel": "attention", "templates": ["wgmma"], "target": "emulator:a100", "seed": -1}
    fields_and_codes = wrong_fields(client.post("/api/v1/searches", json=body))
    assert fields_and_codes == {"seed": "bad_seed", "templates": "empty_space"}


def test_a_field_is_not_judged_by_another_wrong_one(catalogue):
    request = SearchRequest(
        "attention",
        target="tpu:0",
        gpu_seconds=-1.0,
        strategy="luck",
        population=1,
        workloads=("huge",),
    )
    wrong = Refusals()
    collect_wrong_fields(request, catalogue.kernel("attention"), wrong)
    assert wrong.fields == {"target", "strategy", "workloads"}


def test_every_error_names_a_field_of_the_request(catalogue):
    request = SearchRequest("attention", seed=-1, trials=0, weights=(0.0,), objectives=("luck",))
    wrong = Refusals()
    collect_wrong_fields(request, catalogue.kernel("attention"), wrong)
    assert wrong.fields == {"seed", "trials", "weights", "objectives"}
    assert wrong.fields <= {field.name for field in fields(SearchRequest)}


def test_a_terminal_shows_all_of_them(capsys):
    wrong = Refusals()
    for name in ("seed", "mode"):
        with wrong.at(name):
            raise UsageError(f"{name} is wrong", code=f"bad_{name}", mend="write another")
    with pytest.raises(UsageError) as refused:
        wrong.raise_all()
    print_error(refused.value, as_json=True)
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [
        "greenfast: seed is wrong (write another)",
        "greenfast: mode is wrong (write another)",
    ]
    error = json.loads(shown.out)["error"]
    assert (error["code"], error["also"][0]["code"]) == ("bad_seed", "bad_mode")
