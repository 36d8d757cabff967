"""The files of one gf-emulate process. They have no names, and gf-emulate opens none.

It gets descriptors: of its job, of the buffers' images, which it can only read, and of room for
outputs. It closes all of them before it loads the kernel library.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from greenfast.search.errors import Fault
from greenfast.search.targets.emulator.runs import Run

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class JobFiles:
    """Memory shared with one process. Close it after use."""

    def __init__(self) -> None:
        self._open: list[int] = []
        try:
            self.job_fd = self._make("job")
            self._images_fd = self._make("images")
            # Another descriptor of the same file: the process cannot make its mapping writable.
            self.images_fd = self._kept(os.open(f"/proc/self/fd/{self._images_fd}", os.O_RDONLY))
            self.outputs_fd = self._make("outputs")
        except OSError as error:
            self.close()
            raise Fault(
                f"no memory for the emulator's files: {error.strerror}", code="emulator_start"
            ) from error
        self._images: dict[int, int] = {}  # the offset of each array, by its id
        self._masks: dict[int, int] = {}
        self._images_bytes = 0
        self._outputs: dict[int, tuple[int, Run]] = {}
        self._outputs_bytes = 0

    @property
    def descriptors(self) -> tuple[int, int, int]:
        """For gf-emulate, in the order of its arguments."""
        return self.job_fd, self.images_fd, self.outputs_fd

    def add_image(self, image: np.ndarray) -> int:
        """The offset of the array's bytes. Runs that share an array share its image."""
        if id(image) not in self._images:
            self._images[id(image)] = self._add(np.ascontiguousarray(image))
        return self._images[id(image)]

    def add_mask(self, owned: np.ndarray) -> int:
        """The offset of a mask [bytes of a buffer], with one bit for each byte."""
        if id(owned) not in self._masks:
            self._masks[id(owned)] = self._add(np.packbits(owned, bitorder="little"))
        return self._masks[id(owned)]

    def add_outputs(self, index: int, run: Run) -> int:
        """The offset at which run number `index` leaves its outputs, one after another."""
        offset = self._outputs_bytes
        self._outputs[index] = offset, run
        size = sum(buffer.image.nbytes for buffer in run.buffers if buffer.role == "output")
        self._outputs_bytes = _page_end(offset + size)
        return offset

    def seal(self, lines: Iterable[str]) -> None:
        """Write the job; all images and outputs have been added."""
        text = "".join(f"{line}\n" for line in lines).encode()
        _write(self.job_fd, np.frombuffer(text, np.uint8), 0)
        os.ftruncate(self.outputs_fd, self._outputs_bytes)

    def outputs(self, index: int) -> dict[str, np.ndarray]:
        """Copies of the outputs of run number `index`, by buffer."""
        offset, run = self._outputs[index]
        outputs = {}
        for buffer in run.buffers:
            if buffer.role == "output":
                outputs[buffer.name] = _read(self.outputs_fd, buffer.image.nbytes, offset)
                offset += buffer.image.nbytes
        return outputs

    def close_job(self) -> None:
        """Once the process has started."""
        for descriptor in (self.job_fd, self._images_fd, self.images_fd):
            self._open.remove(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())

    def _add(self, array: np.ndarray) -> int:
        offset = self._images_bytes
        _write(self._images_fd, array, offset)
        self._images_bytes = _page_end(offset + array.nbytes)
        return offset

    def _make(self, name: str) -> int:
        return self._kept(os.memfd_create(f"gf-emulate-{name}", os.MFD_CLOEXEC))

    def _kept(self, descriptor: int) -> int:
        self._open.append(descriptor)
        return descriptor


def _page_end(offset: int) -> int:
    return -(-offset // PAGE_BYTES) * PAGE_BYTES


def _write(descriptor: int, array: np.ndarray, offset: int) -> None:
    left = array.reshape(-1).view(np.uint8).data
    while left:
        count = os.pwrite(descriptor, left, offset)
        left, offset = left[count:], offset + count


def _read(descriptor: int, size: int, offset: int) -> np.ndarray:
    array = np.empty(size, np.uint8)
    left = array.data
    while left:
        count = os.preadv(descriptor, [left], offset)
        if count == 0:
            raise Fault("the emulator's outputs are incomplete", code="emulator_lost")
        left, offset = left[count:], offset + count
    return array
