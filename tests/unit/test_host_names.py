"""The remedies for host headers and names that NVRTC lacks."""

from __future__ import annotations

import re

import pytest

from greenfast.search.targets.emulator.native_build import INCLUDE
from greenfast.search.toolchain import host_names
from greenfast.search.toolchain.host_names import mend_of


@pytest.mark.parametrize(
    ("message", "mend"),
    [
        ('k.cu(7): error: identifier "INFINITY" is undefined', "CUDART_INF_F"),
        ('k.cu(2): catastrophic error: cannot open source file "stdint.h"', "<cuda/std/cstdint>"),
        ('k.cu(2): error: identifier "mine" is undefined', ""),
        ('k.cu(2): catastrophic error: cannot open source file "mine.h"', ""),
        ('k.cu(2): catastrophic error: cannot open source file "curand_kernel.h"', "write out"),
        ("k.cu(2): error: expected a ;", ""),
        ('k.cu(2): error: namespace "std" has no member "min"', "write min"),
        ('k.cu(2): error: namespace "std" has no member "swap"', "cuda::std::swap"),
    ],
)
def test_a_name_of_the_host_is_told_with_what_to_write(message, mend):
    assert mend in mend_of(message) and bool(mend) == bool(mend_of(message))


def test_the_emulator_has_every_header_that_is_recommended():
    sentences = [*host_names._HEADERS.values(), *host_names._NAMES.values()]
    headers = {name for each in sentences for name in re.findall("<(.+?)>", each)}
    assert headers and [name for name in headers if not (INCLUDE / name).is_file()] == []
