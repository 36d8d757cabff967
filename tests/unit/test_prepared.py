"""What a search needs beside its target is built while the target starts."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from greenfast.app.service import worker
from greenfast.app.service.worker import _prepared
from greenfast.search.errors import Fault


class Waits:
    """Is ready when the other one has begun; `fails` then."""

    measures = False

    def __init__(self, mine: threading.Event, others: threading.Event, fails: bool = False) -> None:
        self.mine, self.others, self.fails, self.ready = mine, others, fails, threading.Event()

    def prepare(self) -> None:
        self.mine.set()
        assert self.others.wait(20.0)
        self.ready.set()
        if self.fails:
            raise Fault("no C++ compiler", code="host_compiler_missing")


@pytest.fixture
def prepared(monkeypatch):
    """Prepares a search of a context; the run is that context."""

    def prepare(context):
        services = SimpleNamespace(search_context=lambda _: (SimpleNamespace(trials=8), context))
        return _prepared(services, *[None] * 7)

    monkeypatch.setattr(worker, "SearchRun", lambda plan, context, *_: context)
    return prepare


@pytest.mark.parametrize("fails", [False, True])
def test_the_checker_is_prepared_beside_the_target_and_its_fault_is_left_to_who_needs_it(
    fails, prepared
):
    target, checker = threading.Event(), threading.Event()
    context = SimpleNamespace(target=Waits(target, checker), checker=Waits(checker, target, fails))
    assert prepared(context) is context
    assert context.target.ready.is_set() and context.checker.ready.wait(20.0)


def test_a_target_that_cannot_start_is_said_and_no_checker_is_needed(prepared):
    event = threading.Event()
    event.set()
    with pytest.raises(Fault, match="no C"):
        prepared(SimpleNamespace(target=Waits(event, event, True), checker=None))


def test_compilers_and_judges_start_while_the_spaces_are_listed(prepared, monkeypatch):
    warming, listed = threading.Event(), threading.Event()

    def warm(*_):
        warming.set()
        assert listed.wait(20.0)

    def listing(plan, context, *_):
        assert warming.wait(20.0)
        listed.set()
        return context

    monkeypatch.setattr(worker, "warm", warm)
    monkeypatch.setattr(worker, "SearchRun", listing)
    event = threading.Event()
    event.set()
    prepared(SimpleNamespace(target=Waits(event, event), checker=None))
    assert listed.is_set()
