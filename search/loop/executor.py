"""Evaluations on this machine: threads that wait for child processes on all cores."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class LocalExecutor:
    """Runs `width` evaluations at a time."""

    def __init__(self, width: int) -> None:
        self._pool = ThreadPoolExecutor(width, thread_name_prefix="evaluate")

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        return self._pool.submit(function, *args)
