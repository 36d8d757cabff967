"""The process that looks at memory after runs, started as the GPU's process starts it."""

from __future__ import annotations

import json
import os
import struct

import numpy as np
import pytest

from greenfast.search.children import encoded
from greenfast.search.targets.cuda.arena import lay_out, starting_bytes
from greenfast.search.targets.cuda.reporter import RUN, SLOTS
from greenfast.search.targets.cuda.slots import Slots

BYTES = 3000


class Beside:
    """The pipes of a reporter, from both sides."""

    def __init__(self, folder):
        self.folder = folder
        self.read_fd, write_fd = os.pipe()
        self.slots = Slots(write_fd)
        self.problem = {
            "images": str(folder / "images-1"),
            "tensors": [
                {"name": "x", "role": "input", "bytes": BYTES},
                {"name": "y", "role": "output", "bytes": BYTES},
            ],
            "workspaces": [],
        }
        np.random.default_rng(1).integers(0, 200, 2 * BYTES, np.uint8).tofile(folder / "images-1")
        self.arena = lay_out(self.problem)

    def hand_over(self, number, change=lambda memory: None):
        """Three problems; `change` is done to the memory of the second one."""
        slot, size = self.slots.take(), self.arena.total_bytes
        for at in range(3):
            memory = starting_bytes(self.problem, self.arena)
            if at == 1:
                change(memory)
            self.slots.memory[slot, at * size : (at + 1) * size] = memory
        outputs = str(self.folder / f"outputs-{number}")
        run = {"slot": slot, "outputs": outputs, "problems": [self.problem] * 3}
        self.send({"number": number, "spans": {}, RUN: run})

    def send(self, reply):
        os.write(self.slots.reply_fd, encoded(reply))

    def reply(self):
        (length,) = struct.unpack("<I", os.read(self.read_fd, 4))
        return json.loads(os.read(self.read_fd, length))


@pytest.fixture
def beside(tmp_path):
    beside = Beside(tmp_path)
    yield beside
    os.close(beside.slots.reply_fd)
    assert beside.slots._process.wait(10) == 0
    assert os.read(beside.read_fd, 1) == b"", "the parent does not learn of the end"
    os.close(beside.read_fd)


def test_replies_keep_their_order_and_slots_return(beside):
    for number in range(0, 4 * SLOTS, 2):
        beside.hand_over(number)
        beside.send({"number": number + 1})
    replies = [beside.reply() for _ in range(4 * SLOTS)]
    assert [reply["number"] for reply in replies] == list(range(4 * SLOTS))
    assert [reply.get("damage") for reply in replies[:2]] == [[None] * 3, None]
    assert RUN not in replies[0]


def test_damage_is_of_its_problem_and_outputs_are_in_the_file(beside):
    start, _ = beside.arena.offsets["x"]
    out, size = beside.arena.offsets["y"]

    def change(memory):
        memory[start + 5] ^= 1
        memory[out : out + size] = 7

    beside.hand_over(0, change)
    assert beside.reply()["damage"] == [None, ["input_changed", "the input x was written"], None]
    images = (beside.folder / "outputs-0").read_bytes()
    assert len(images) == 3 * size
    assert images[size : 2 * size] == bytes([7]) * size

    def past_the_end(memory):
        memory[out + size] = 0

    beside.hand_over(1, past_the_end)
    (first, second, third) = beside.reply()["damage"]
    assert (first, third, second[0]) == (None, None, "out_of_bounds")


def test_the_end_of_the_reporter_is_an_error_for_who_waits_for_a_slot(tmp_path):
    beside = Beside(tmp_path)
    for _ in range(SLOTS):
        beside.slots.take()
    beside.slots._process.kill()
    with pytest.raises(EOFError):
        beside.slots.take()
    beside.slots._process.wait()
    os.close(beside.slots.reply_fd)
    os.close(beside.read_fd)
