"""What a kernel does not hold is told by name, and nobody else is served without consent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from greenfast.app.cli import doctor_checks
from greenfast.app.service import server
from greenfast.app.settings import Settings
from greenfast.search.errors import UsageError
from greenfast.search.targets.emulator import isolation
from greenfast.search.targets.emulator.isolation import Isolation

OTHERS = replace(Settings(), host="0.0.0.0", token="0123456789abcdef")


@pytest.mark.parametrize(
    ("machine", "complete", "words"),
    [
        (Isolation(9, True), True, ""),
        (Isolation(7, True), True, "this Landlock is too old: sockets with a path"),
        (Isolation(2, True), True, "truncating files, TCP, device ioctls, signals"),
        (Isolation(0, True), False, "opening and making files"),
        (Isolation(7, False), False, "processes, shared memory, priorities"),
        (Isolation(0, False), False, "read and write files, use the network and signal"),
    ],
)
def test_what_is_not_held_is_told_exactly(machine, complete, words):
    assert machine.is_complete == complete
    assert words in machine.not_held and bool(words) == bool(machine.not_held)


@pytest.mark.parametrize("machine", [Isolation(0, True), Isolation(7, False)])
def test_others_are_served_on_a_weak_kernel_by_consent_only(machine, monkeypatch):
    monkeypatch.setattr(server, "isolation", lambda: machine)
    with pytest.raises(UsageError) as refused:
        server.run_server(OTHERS)
    assert refused.value.code == "weak_sandbox" and machine.not_held in refused.value.message
    assert "--accept-weak-sandbox" in refused.value.mend
    server.require_sandbox(replace(OTHERS, accept_weak_sandbox=True))
    server.require_sandbox(Settings())


def test_a_complete_kernel_serves_others(monkeypatch):
    monkeypatch.setattr(server, "isolation", lambda: Isolation(7, True))
    server.require_sandbox(OTHERS)


def test_consent_is_a_setting():
    assert not Settings().accept_weak_sandbox
    given = Settings.from_environment({"GREENFAST_ACCEPT_WEAK_SANDBOX": "1"})
    assert given.accept_weak_sandbox


@pytest.mark.parametrize("machine", [Isolation(7, True), Isolation(3, True), Isolation(0, False)])
def test_doctor_tells_what_is_held_and_what_is_not(machine, monkeypatch):
    monkeypatch.setattr(isolation, "isolation", lambda: machine)
    check = doctor_checks._isolation()
    assert check.ok == machine.is_complete and bool(check.mend) != check.ok
    assert machine.held in check.detail and machine.not_held in check.detail
