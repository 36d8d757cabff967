"""The services that a command works with, opened and closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from greenfast.app.settings import Settings
from greenfast.app.wiring import Services


@contextmanager
def opened_services() -> Iterator[Services]:
    """Services with the settings of the environment; the database is opened on first use."""
    services = Services(Settings.from_environment())
    try:
        yield services
    finally:
        services.close()
