"""POST /api/v1/submissions: bodies that are none, clients that are gone, a disk that is full."""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from service_home import Home, until
from test_submissions import LAUNCH, RIGHT

PATH = "/api/v1/submissions"
BODY = {"kernel": "axpy", "launch": LAUNCH, "entry": "mine", "baseline": "none"}


@dataclass(frozen=True)
class Site:
    """A service without a worker: what it takes stays queued."""

    url: str
    pid: int
    data: Path

    def post(self, body: bytes, kind: str = "application/json") -> httpx.Response:
        headers = {"content-type": kind}
        return httpx.post(self.url + PATH, content=body, headers=headers, trust_env=False)

    def submit(self, source: str, **fields: Any) -> httpx.Response:
        return self.post(json.dumps({**BODY, "source": source, **fields}).encode())

    def listed(self) -> list[str]:
        answer = httpx.get(f"{self.url}{PATH}?limit=100", trust_env=False)
        return [item["id"] for item in answer.json()["items"]]

    def sent(self, body: bytes, length: int) -> None:
        """A client that sends a request and goes away without reading."""
        place = urlsplit(self.url)
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n\r\n"
        )
        with socket.create_connection((place.hostname, place.port)) as client:
            client.sendall(head.encode() + body)


@pytest.fixture(scope="module")
def site(tmp_path_factory, artifacts) -> Iterator[Site]:
    home = Home(tmp_path_factory.mktemp("submissions") / "data", artifacts)
    process, url = home.serve("--workers", "0")
    yield Site(url, process.pid, home.data)
    home.end_all()


BODIES = {
    "nothing": (b"", "application/json"),
    "no JSON": (b"{source}", "application/json"),
    "a list": (b"[]", "application/json"),
    "no text": (b"\xff\xfe\x00", "application/json"),
    "deep": (b'{"kernel":' * 100_000, "application/json"),
    "a number of 10,000 digits": (b'{"seed": ' + b"9" * 10_000 + b"}", "application/json"),
    "a form": (b"kernel=axpy", "application/x-www-form-urlencoded"),
    "wrong types": (b'{"kernel": 5, "source": [], "launch": null}', "application/json"),
    "too many workloads": (
        json.dumps({**BODY, "source": RIGHT, "workloads": ["line"] * 50_000}).encode(),
        "application/json",
    ),
    "a seed beyond 64 bits": (
        json.dumps({**BODY, "source": RIGHT, "seed": 2**70}).encode(),
        "application/json",
    ),
    "a workload with a surrogate": (
        json.dumps({**BODY, "source": RIGHT, "workloads": ["\ud800"]}).encode(),
        "application/json",
    ),
    "a baseline with NUL": (
        json.dumps({**BODY, "source": RIGHT, "baseline": "right:\0"}).encode(),
        "application/json",
    ),
    "an author with NUL": (
        json.dumps({**BODY, "source": RIGHT, "author": "\0"}).encode(),
        "application/json",
    ),
    "two megabytes": (b" " * 2_000_000, "application/json"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_none_is_refused_with_a_code_and_stores_nothing(site, name):
    before = site.listed()
    answer = site.post(*BODIES[name])
    assert 400 <= answer.status_code < 500, answer.text[:300]
    problem = answer.json()
    assert problem["code"] and "Traceback" not in answer.text
    assert str(site.data) not in answer.text and len(answer.text) < 5000
    assert site.listed() == before


def test_a_client_that_does_not_wait_has_submitted_once(site):
    before = set(site.listed())
    source = RIGHT + "// of a client that is gone\n"
    body = json.dumps({**BODY, "source": source}).encode()
    site.sent(body[: len(body) // 2], len(body))  # half of it is no submission
    for _ in range(3):
        site.sent(body, len(body))
    until(lambda: set(site.listed()) - before, "the submission is queued", 60)
    answer = site.submit(source)
    assert answer.status_code == 200 and answer.json()["repeated"], answer.text
    assert set(site.listed()) - before == {answer.json()["id"]}


def test_a_full_disk_is_a_fault_and_takes_sources_again_when_there_is_room(site):
    before = site.listed()
    used = max(path.stat().st_size for path in site.data.iterdir() if path.is_file())
    source = RIGHT + f"// {'x' * 900}\n" * 300  # more than what is left in the file's pages
    unlimited = resource.prlimit(site.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(site.pid, resource.RLIMIT_FSIZE, (min(used, 4096), unlimited[1]))
    try:
        answer = site.submit(source)
    finally:
        resource.prlimit(site.pid, resource.RLIMIT_FSIZE, unlimited)
    assert (answer.status_code, answer.json()["code"]) == (503, "disk_full"), answer.text
    assert site.listed() == before
    answer = site.submit(source)
    assert answer.status_code == 201 and not answer.json()["repeated"], answer.text
    assert set(site.listed()) - set(before) == {answer.json()["id"]}
