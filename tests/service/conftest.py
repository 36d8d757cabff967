"""Fixtures: real processes and signals, a database for each test, one cache for all."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from service_home import Home

from greenfast.client import Client


@pytest.fixture
def home(tmp_path, artifacts) -> Iterator[Home]:
    made = Home(tmp_path / "data", artifacts)
    yield made
    made.end_all()


@pytest.fixture
def here(home, monkeypatch) -> Home:
    """The home's environment in this process, so that a refusal does not cost a process each."""
    for name in [one for one in os.environ if one.startswith("GREENFAST_")]:
        monkeypatch.delenv(name)
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home.data)
    return home


@pytest.fixture(scope="module")
def service(tmp_path_factory, artifacts) -> Iterator[Client]:
    """One service with one worker for a whole file."""
    made = Home(tmp_path_factory.mktemp("service") / "data", artifacts)
    _, url = made.serve()
    with Client(url) as client:
        client.url, client.home = url, made
        yield client
    made.end_all()
