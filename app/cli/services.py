"""The services that a command works with, opened and closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from greenfast.app.settings import EXECUTORS, Settings
from greenfast.search.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from greenfast.app.wiring import Services


@contextmanager
def opened_services(executor: str | None = None, address: str | None = None) -> Iterator[Services]:
    """Services with the settings of the environment; the database is opened on first use.

    `executor` and `address` are options of the command line; None: the environment's.
    """
    from greenfast.app.wiring import Services

    services = Services(_on(Settings.from_environment(), executor, address))
    try:
        yield services
    finally:
        services.close()


def _on(settings: Settings, executor: str | None, address: str | None) -> Settings:
    """The settings with the machines of the command line."""
    if executor is not None:
        if executor not in EXECUTORS:
            raise unknown_name("executor", executor, EXECUTORS)
        settings = replace(settings, executor=executor)
    if address is None:
        return settings
    if settings.executor == EXECUTORS[0]:
        raise UsageError(
            "--address names a Ray cluster", code="bad_command_line", mend="add --executor ray"
        )
    return replace(settings, ray_address=address)
