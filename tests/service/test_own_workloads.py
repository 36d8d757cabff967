"""Workloads by values through the whole service: REST, command line, bundle, verify."""

from __future__ import annotations

import json

import httpx
import pytest
from service_home import axpy, one_sentence

VALUES = {"name": "odd", "dims": {"N": 4099}}
NAME = "odd(N=4099)"


@pytest.fixture(scope="module")
def done(service):
    """A finished search over a workload that no file names."""
    row = service.submit(**axpy(workloads=[VALUES, "N=96"]))
    return service.wait(row["id"], deadline_s=600)


def test_a_search_runs_on_values_as_on_a_name(service, done):
    assert done["status"] == "completed" and done["workloads"] == [NAME, "N=96"]
    best = service.trial(done["id"], service.best(done["id"])["number"])
    assert {timing["workload"] for timing in best["gates"]["performance"]["timings"]} == {
        NAME,
        "N=96",
    }


@pytest.mark.slow
def test_its_pages_show_the_values(service, done):
    for path in ("/", f"/searches/{done['id']}", f"/searches/{done['id']}/trials/0", "/negatives"):
        page = httpx.get(service.url + path, trust_env=False)
        assert page.status_code == 200
    assert NAME in httpx.get(f"{service.url}/searches/{done['id']}", trust_env=False).text


@pytest.mark.slow
def test_its_bundle_is_verified_from_its_own_files(service, done, here, tmp_path):
    path = tmp_path / "bundle.zip"
    service.download_bundle(done["id"], path)
    ended = here.run("verify", str(path), "--json")
    assert ended.code == 0, ended.err
    assert ended.json["finding"] == "agrees"


@pytest.mark.parametrize(
    ("workloads", "code", "part"),
    [
        ([{"dims": {"N": 0}}], "bad_workload", "N=0 is not between 1"),
        ([{"dims": {"N": 2**31}}], "bad_workload", "N=2147483648 is not between"),
        ([{"dims": {"M": 3}}], "bad_workload", "M is unknown; N is missing"),
        ([{"name": "<b>", "dims": {"N": 3}}], "bad_workload", "names are small letters"),
        (["N=3", {"dims": {"N": 3}}], "repeated_workload", "named twice"),
        (["N=lots"], "bad_workload", "N=lots is not a whole number"),
        ([{"dims": {"N": 2**31 - 1}}], "workload_too_large", "GiB of memory here"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_422(service, workloads, code, part):
    answer = httpx.post(
        f"{service.url}/api/v1/searches", json=axpy(workloads=workloads), trust_env=False
    )
    assert answer.status_code == 422
    assert answer.json()["code"] == code and part in answer.text


def test_a_kernel_tells_which_values_it_takes(service):
    kernel = httpx.get(f"{service.url}/api/v1/kernels/axpy", trust_env=False).json()
    assert [dim["name"] for dim in kernel["dims"]] == ["N"]
    assert kernel["options"][0]["default"] in kernel["options"][0]["values"]


@pytest.mark.slow
def test_the_command_checks_a_file_and_searches_it(here, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("name,N\na,100\nb,0\n")
    assert "line 3: N=0 is not between" in one_sentence(here.run("workloads", "axpy", str(path)))
    path.write_text("name,N,weight\na,100,3\nb,200,1\n")
    rows = here.run("workloads", "axpy", str(path), "--json").json
    assert [(row["name"], row["weight"]) for row in rows] == [("a(N=100)", 3.0), ("b(N=200)", 1.0)]
    ended = here.run(
        *("search", "axpy", "--template", "right", "--trials", "1", "--json"),
        *("--workloads", str(path)),
    )
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["workloads"] == ["a(N=100)", "b(N=200)"]
