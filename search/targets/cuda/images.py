"""Files of tensor images for the measuring child: one per problem, shared by all candidates."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from greenfast.search import compute_turns
from greenfast.search.oracle.problem import Problem

KEPT_BYTES = 2**30


@dataclass
class _File:
    path: Path
    bytes: int
    users: int = 0


class ImageFiles:
    """Files named by their content and written once.

    Beyond `kept_bytes` the least recently used are removed, except those in use.
    """

    def __init__(self, folder: Path, kept_bytes: int = KEPT_BYTES) -> None:
        self._folder, self._kept_bytes = folder, kept_bytes
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._bytes = 0  # of all files
        self._lock = threading.Lock()

    @contextmanager
    def held(self, problems: Sequence[Problem]) -> Iterator[list[Path]]:
        """The file of each problem; they stay until the block ends."""
        with compute_turns.turn(
            max(
                (tensor.image.nbytes for problem in problems for tensor in problem.tensors),
                default=0,
            )
        ):
            keys = [images_key(problem) for problem in problems]
        with self._lock:
            files = [self._entry(key, problem) for key, problem in zip(keys, problems, strict=True)]
            for file in files:
                file.users += 1
            self._evict()
        try:
            yield [file.path for file in files]
        finally:
            with self._lock:
                for file in files:
                    file.users -= 1
                self._evict()

    def _entry(self, key: str, problem: Problem) -> _File:
        if key not in self._files:
            path = self._folder / f"images-{key}"
            with path.open("wb") as file:
                for tensor in problem.tensors:
                    file.write(tensor.image.data)
            self._files[key] = _File(path, path.stat().st_size)
            self._bytes += self._files[key].bytes
        self._files.move_to_end(key)
        return self._files[key]

    def _evict(self) -> None:
        if self._bytes <= self._kept_bytes:
            return
        for key, file in list(self._files.items()):
            if self._bytes <= self._kept_bytes:
                return
            if not file.users:
                self._bytes -= file.bytes
                del self._files[key]
                file.path.unlink(missing_ok=True)


def images_key(problem: Problem) -> str:
    """Equal for problems whose tensors are equal byte for byte."""
    text = "\n".join(
        f"{tensor.name} {tensor.role} {tensor.image.size} {tensor.digest}"
        for tensor in problem.tensors
    )
    return hashlib.sha256(text.encode()).hexdigest()[:32]
