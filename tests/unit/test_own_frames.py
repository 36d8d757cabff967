"""Accesses to a thread's own frames pass their hook: which lines that adds, and to which texts."""

from __future__ import annotations

import re

from greenfast.search.targets.emulator.native_build import NATIVE
from greenfast.search.targets.emulator.own_frames import STACK_BYTES_LOG2, with_own_frames_passed

CALL = "\tcall\t*__tsan_{}@GOTPCREL(%rip)\n"


def test_the_size_of_a_stack_is_the_emulators():
    text = (NATIVE / "context.h").read_text()
    (kilobytes,) = re.findall(r"stack_bytes = (\d+) \* 1024", text)
    assert int(kilobytes) * 1024 == 2**STACK_BYTES_LOG2


def test_only_hooks_of_one_aligned_access_are_passed():
    for name in ("read4", "write16", "volatile_read8"):
        passed = "".join(with_own_frames_passed([CALL.format(name)]))
        assert CALL.format(name) in passed and "%rsp" in passed
    for name in ("unaligned_read4", "read_range", "write_range", "init"):
        assert list(with_own_frames_passed([CALL.format(name)])) == [CALL.format(name)]


def test_products_under_way_keep_each_call():
    lines = [CALL.format("read4"), "\tcall\t*gf_emulator_wgmma_wait@GOTPCREL(%rip)\n"]
    assert list(with_own_frames_passed(lines)) == lines
