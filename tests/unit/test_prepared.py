"""What a search needs beside its target is built while the target starts."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from greenfast.app.service.worker import _prepared
from greenfast.search.errors import Fault


class Waits:
    """Is ready when the other one has begun; `fails` then."""

    def __init__(self, mine: threading.Event, others: threading.Event, fails: bool = False) -> None:
        self.mine, self.others, self.fails, self.ready = mine, others, fails, threading.Event()

    def prepare(self) -> None:
        self.mine.set()
        assert self.others.wait(20.0)
        self.ready.set()
        if self.fails:
            raise Fault("no C++ compiler", code="host_compiler_missing")


@pytest.mark.parametrize("fails", [False, True])
def test_the_checker_is_prepared_beside_the_target_and_its_fault_is_left_to_who_needs_it(fails):
    target, checker = threading.Event(), threading.Event()
    context = SimpleNamespace(target=Waits(target, checker), checker=Waits(checker, target, fails))
    run = SimpleNamespace(context=context, evaluator_count=2)
    services = SimpleNamespace(search_run=lambda *_: run)
    assert _prepared(services, *[None] * 7) is run
    assert context.target.ready.is_set() and context.checker.ready.wait(20.0)


def test_a_target_that_cannot_start_is_said_and_no_checker_is_needed():
    event = threading.Event()
    event.set()
    context = SimpleNamespace(target=Waits(event, event, True), checker=None)
    run = SimpleNamespace(context=context, evaluator_count=2)
    with pytest.raises(Fault, match="no C"):
        _prepared(SimpleNamespace(search_run=lambda *_: run), *[None] * 7)
