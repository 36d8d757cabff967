"""The settings of the service: the environment variable, default and purpose of each."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from greenfast.db.timeouts import DEFAULT_TIMEOUTS, Timeouts
from greenfast.search.cores import usable_cores
from greenfast.search.errors import UsageError
from greenfast.search.targets import RUN_DEADLINE_S
from greenfast.search.toolchain.cache_room import DEFAULT_MIB, read_mib
from greenfast.search.toolchain.cache_room import VARIABLE as CACHE_VARIABLE

SHORTEST_TOKEN = 16
EXECUTORS = ("local", "ray")
DEFAULT_WINDOW = max(2, min(usable_cores(), 8))
Number = TypeVar("Number", int, float)


def _setting(variable: str, default: Any, read: Callable[[str], Any], doc: str) -> Any:
    return field(default=default, metadata={"variable": variable, "read": read, "doc": doc})


def _whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip(), re.ASCII):  # int() takes "8_7" and "٨٧", too
        raise ValueError("a whole number")
    return int(text)


def _port(text: str) -> int:
    return _within(_whole(text), 0, 65535)


def _count(text: str) -> int:
    return _within(_whole(text), 0, 1024)


def _at_least_one(text: str) -> int:
    return _within(_whole(text), 1, 1024)


def _connections(text: str) -> int:
    return _within(_whole(text), 16, 65536)


def _seconds(text: str, low: float = 0.1, high: float = 86400.0) -> float:
    try:
        if text.isascii() and "_" not in text:
            return _within(float(text), low, high)
    except ValueError:
        pass
    raise ValueError(f"{low} to {high}")


def _executor(text: str) -> str:
    if text not in EXECUTORS:
        raise ValueError(" or ".join(EXECUTORS))
    return text


def _names(text: str) -> tuple[str, ...]:
    return tuple(word.strip().lower() for word in text.split(",") if word.strip())


def _yes(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on")


def _within(value: Number, low: Number, high: Number) -> Number:
    if not low <= value <= high:
        raise ValueError(f"{low} to {high}")
    return value


@dataclass(frozen=True)
class Settings:
    """Read once from the environment; command-line options override single settings."""

    data: Path = _setting(  # noqa: RUF009 (the call makes a dataclass field)
        "GREENFAST_DATA", Path("greenfast-data"), Path, "folder for the database and the caches"
    )
    cache_mib: int = _setting(
        CACHE_VARIABLE,
        DEFAULT_MIB,
        read_mib,
        "MiB of compiled kernels that a cache keeps; beyond them, those that were not used for "
        "longest are removed",
    )
    database_url: str = _setting(
        "GREENFAST_DATABASE_URL",
        "",
        str,
        "SQLAlchemy URL of the database; empty: SQLite in the data folder",
    )
    database_busy_s: float = _setting(
        "GREENFAST_DATABASE_BUSY_S",
        DEFAULT_TIMEOUTS.busy_s,
        _seconds,
        "seconds to wait for another writer of an SQLite database",
    )
    database_connect_s: float = _setting(
        "GREENFAST_DATABASE_CONNECT_S",
        DEFAULT_TIMEOUTS.connect_s,
        _seconds,
        "seconds to wait for a connection to PostgreSQL; whole seconds, at least 2",
    )
    database_statement_s: float = _setting(
        "GREENFAST_DATABASE_STATEMENT_S",
        DEFAULT_TIMEOUTS.statement_s,
        _seconds,
        "seconds that PostgreSQL may take for one statement",
    )
    host: str = _setting("GREENFAST_HOST", "127.0.0.1", str, "address that `serve` listens on")
    port: int = _setting(
        "GREENFAST_PORT", 8741, _port, "port that `serve` listens on; 0: any free one"
    )
    token: str = _setting(
        "GREENFAST_TOKEN",
        "",
        str,
        f"secret that clients must send, {SHORTEST_TOKEN} characters or more; needed off loopback",
    )
    submit_token: str = _setting(
        "GREENFAST_SUBMIT_TOKEN",
        "",
        str,
        "secret of clients that may submit sources, not the same as GREENFAST_TOKEN; without it, "
        "only a service without tokens takes sources",
    )
    accept_weak_sandbox: bool = _setting(
        "GREENFAST_ACCEPT_WEAK_SANDBOX",
        False,
        _yes,
        "1: serve other people even if the Linux kernel lacks seccomp or Landlock",
    )
    allowed_hosts: tuple[str, ...] = _setting(
        "GREENFAST_ALLOWED_HOSTS",
        (),
        _names,
        "further host names that browsers may use, separated by commas",
    )
    workers: int = _setting(
        "GREENFAST_WORKERS", 1, _count, "worker processes that `serve` keeps running"
    )
    window: int = _setting(
        "GREENFAST_WINDOW",
        DEFAULT_WINDOW,
        _at_least_one,
        "candidates that a search evaluates at a time",
    )
    executor: str = _setting(
        "GREENFAST_EXECUTOR",
        EXECUTORS[0],
        _executor,
        "machines that compile, emulate and measure: local, or ray for those of a Ray cluster",
    )
    ray_address: str = _setting(
        "GREENFAST_RAY_ADDRESS",
        "auto",
        str,
        "HOST:PORT of the head of the Ray cluster; auto: the cluster that this machine is part of",
    )
    lease_s: float = _setting(
        "GREENFAST_LEASE_S",
        30.0,
        _seconds,
        "seconds of silence after which a worker's search goes to another worker",
    )
    poll_s: float = _setting(
        "GREENFAST_POLL_S", 0.5, _seconds, "seconds between two checks for a queued search"
    )
    ablation_s: float = _setting(
        "GREENFAST_ABLATION_S",
        30.0,
        lambda text: _seconds(text, low=0.0),
        "seconds for the ablation of a winner whose measured times were confirmed; 0: none",
    )
    drain_s: float = _setting(
        "GREENFAST_DRAIN_S",
        10.0,
        _seconds,
        "seconds that a stopping worker has for the trials in flight",
    )
    run_deadline_s: float = _setting(
        "GREENFAST_RUN_DEADLINE_S",
        RUN_DEADLINE_S,
        _seconds,
        "seconds of processor time for one emulated run, four times as many with checks; on a GPU "
        "seconds of wall time, at most 10 for one wait",
    )
    reference_deadline_s: float = _setting(
        "GREENFAST_REFERENCE_DEADLINE_S",
        120.0,
        _seconds,
        "seconds for one case of a reference.py that is not greenfast's own",
    )
    connections: int = _setting(
        "GREENFAST_CONNECTIONS",
        4096,
        _connections,
        "open connections, as far as file descriptors allow; a new connection replaces the one "
        "that has been idle longest",
    )
    request_timeout_s: float = _setting(
        "GREENFAST_REQUEST_TIMEOUT_S",
        10.0,
        _seconds,
        "seconds that a client has to send a request's headers; then the connection is closed",
    )
    debug: bool = _setting(
        "GREENFAST_DEBUG", False, _yes, "1: show tracebacks of greenfast's own bugs"
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """The settings of the environment; UsageError for a variable with an invalid value."""
        environment = os.environ if environment is None else environment
        given: dict[str, Any] = {}
        for setting in fields(cls):
            text = environment.get(setting.metadata["variable"], "")
            if not text:
                continue
            try:
                given[setting.name] = setting.metadata["read"](text)
            except ValueError as error:
                shown = "(hidden)" if setting.name.endswith("token") else repr(text)
                raise UsageError(
                    f"{setting.metadata['variable']} is {shown}",
                    code="bad_setting",
                    mend=f"{setting.metadata['doc']}: {error}",
                ) from error
        return replace(cls(), **given).checked()

    def checked(self) -> Settings:
        _check_token("GREENFAST_TOKEN", self.token)
        _check_token("GREENFAST_SUBMIT_TOKEN", self.submit_token)
        if self.token and self.token == self.submit_token:
            raise UsageError(
                "GREENFAST_SUBMIT_TOKEN and GREENFAST_TOKEN are the same",
                code="weak_token",
                mend="give GREENFAST_SUBMIT_TOKEN another secret",
            )
        return self

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.data.absolute() / 'greenfast.sqlite3'}"

    @property
    def database_timeouts(self) -> Timeouts:
        return Timeouts(self.database_busy_s, self.database_connect_s, self.database_statement_s)

    @property
    def cache(self) -> Path:
        """Compiled artefacts; may be deleted at any time."""
        return self.data.absolute() / "cache"

    def prepare_data(self) -> None:
        """Make the data folder, readable by its owner only; UsageError when that fails."""
        try:
            self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
            writable = os.access(self.data, os.W_OK | os.X_OK)
        except OSError as error:
            raise UsageError(
                f"the data folder {self.data} cannot be created: {error.strerror}",
                code="bad_data_folder",
                mend="set GREENFAST_DATA to a folder that can be written",
            ) from error
        if not writable:
            raise UsageError(
                f"the data folder {self.data} cannot be written",
                code="bad_data_folder",
                mend="set GREENFAST_DATA to a folder that can be written",
            )


def _check_token(variable: str, token: str) -> None:
    if token and len(token) < SHORTEST_TOKEN:
        raise UsageError(
            f"{variable} has {len(token)} characters",
            code="weak_token",
            mend=f"use {SHORTEST_TOKEN} or more, for example from `openssl rand -hex 16`",
        )
    if not token.isascii() or any(character.isspace() for character in token):
        raise UsageError(
            f"{variable} holds characters that an HTTP header cannot",
            code="weak_token",
            mend="use letters and digits",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def setting_table() -> tuple[tuple[str, str, str], ...]:
    """(variable, default, doc) of every setting, for documentation."""
    return tuple(
        (setting.metadata["variable"], str(setting.default), setting.metadata["doc"])
        for setting in fields(Settings)
    )
