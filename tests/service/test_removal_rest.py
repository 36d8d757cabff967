"""DELETE of searches, trials and tunings: what goes with them, and what is refused."""

from __future__ import annotations

import httpx
import pytest
from service_home import axpy

from greenfast.client import ServiceError


@pytest.fixture
def ended(service):
    """A finished search of two trials."""
    row = service.submit(**axpy(templates=["right"], budget={"trials": 2}, workloads=["line"]))
    return service.wait(row["id"], deadline_s=600)["id"]


def delete(service, path, **arguments):
    return httpx.request("DELETE", f"{service.url}/api/v1{path}", trust_env=False, **arguments)


def test_a_search_goes_with_its_trials_after_a_rehearsal_that_removes_nothing(service, ended):
    rehearsal = service.remove(ended, dry_run=True)
    assert (rehearsal["removed"], rehearsal["searches"], rehearsal["trials"]) == (False, 1, 2)
    assert len(service.trials(ended)) == 2

    with pytest.raises(ServiceError) as baseline:
        service.remove(ended, 0)
    assert (baseline.value.status, baseline.value.code) == (409, "trial_kept")
    assert delete(service, f"/searches/{ended}/trials/9").status_code == 404

    trial = service.remove(ended, 1)
    assert (trial["removed"], trial["searches"], trial["trials"]) == (True, 0, 1)
    search = service.remove(ended)
    assert (search["removed"], search["searches"], search["trials"]) == (True, 1, 1)
    again = delete(service, f"/searches/{ended}")
    assert (again.status_code, again.json()["code"]) == (404, "unknown_search")


def test_a_tuning_goes_with_its_searches_and_not_in_parts(service):
    tuning = service.tune(
        **{
            name: value
            for name, value in axpy(templates=["right"], budget={"trials": 2}).items()
            if name != "workloads"
        },
        workloads=["line"],
    )
    member = tuning["searches"][0]["id"]
    service.control_tuning(tuning["id"], "cancel")
    service.wait_for_tuning(tuning["id"], deadline_s=600)
    part = delete(service, f"/searches/{member}/trials/0")
    assert (part.status_code, part.json()["code"]) == (409, "search_of_tuning")
    answer = delete(service, f"/tunings/{tuning['id']}")
    assert answer.status_code == 200, answer.text
    assert (answer.json()["tunings"], answer.json()["searches"]) == (1, 1)
    assert delete(service, f"/tunings/{tuning['id']}").status_code == 404


def test_a_removal_needs_the_services_own_origin(service, ended):
    answer = delete(service, f"/searches/{ended}", headers={"origin": "http://elsewhere.example"})
    assert answer.status_code == 403
    assert service.search(ended)["id"] == ended
