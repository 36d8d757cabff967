"""Fixtures: real processes and signals, a database for each test, one cache for all."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from service_home import Home

from greenfast.client import Client


@pytest.fixture
def home(tmp_path, artifacts) -> Iterator[Home]:
    home = Home(tmp_path / "data", artifacts)
    yield home
    home.end_all()


@pytest.fixture
def here(home, monkeypatch) -> Home:
    """The home's environment in this process, so that a refusal does not cost a process each."""
    for name in [variable for variable in os.environ if variable.startswith("GREENFAST_")]:
        monkeypatch.delenv(name)
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home.data)
    return home


@pytest.fixture(scope="module")
def service(tmp_path_factory, artifacts) -> Iterator[Client]:
    """One service with one worker for a whole file."""
    home = Home(tmp_path_factory.mktemp("service") / "data", artifacts)
    url = home.serve_with_worker()
    with Client(url) as client:
        client.url, client.home = url, home
        yield client
    home.end_all()
