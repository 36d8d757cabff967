"""Comparisons, copies and reads of many parts, in a few threads while the GPU waits.

For functions that spend their time without Python's lock. Each thread gets every n-th item, because
handing items over one by one would cost more than comparing them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from greenfast.search.cores import usable_cores

THREADS = 4
Item = TypeVar("Item")
Result = TypeVar("Result")


class Threads:
    """A few threads that live as long as their process."""

    def __init__(self, most: int = THREADS) -> None:
        self._count = max(1, min(most, usable_cores()))
        self._pool = ThreadPoolExecutor(self._count)

    def start(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Callable[[], list[Result]]:
        """Begin; the result waits for the end, and returns one value for each item, in order."""
        shares = [items[number :: self._count] for number in range(self._count)]
        running: list[Future[list[Result]]] = [
            self._pool.submit(_each, function, share) for share in shares
        ]

        def results() -> list[Result]:
            done = [share.result() for share in running]
            return [done[at % self._count][at // self._count] for at in range(len(items))]

        return results


def _each(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [function(item) for item in items]
