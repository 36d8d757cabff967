"""The emulator's preprocessor defines what NVRTC defines, and nothing of the host."""

from __future__ import annotations

import re

import pytest
from emulator_harness import prepared

from greenfast.search.digest import text_digest
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource
from greenfast.search.targets.emulator.device_preprocessor import (
    HOST_MACROS,
    MACROS,
    macro_flags,
)
from greenfast.search.targets.emulator.native_build import INCLUDE
from greenfast.search.toolchain import Cubin

# Answered by a refusal here, or left a call for the stand-in headers.
OTHERWISE = frozenset(
    (
        "__has_builtin",
        "__has_cpp_attribute",
        "__has_include",
        "__has_include_next",
        "__BASE_FILE__",
        "assert",
    )
)
# Standard C++ beside CUDA's: the same everywhere, but defined by the compiler itself.
WORDS = (
    "__cplusplus",
    "__STDC__",
    "__STDC_HOSTED__",
    "linux",
    "unix",
    "NDEBUG",
    "threadIdx",
    "min",
)


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def asking(names) -> str:
    """A text with a constant of each defined macro's expansion."""
    lines = ["#define QUOTED_(...) #__VA_ARGS__", "#define QUOTED(...) QUOTED_(__VA_ARGS__)"]
    for name in names:
        lines += [
            f"#ifdef {name}",
            f'extern "C" __device__ const char m_{name}[] = "=" QUOTED({name});',
            "#endif",
        ]
    return "\n".join(lines) + "\n"


def of_nvrtc(toolchain, text: str, arch: str) -> dict[str, str]:
    lines = tuple(Line("macros.cu", number) for number in range(1, text.count("\n") + 1))
    cubin = toolchain.compile(RenderedSource(text, text_digest(text), lines, text, (), False), arch)
    assert isinstance(cubin, Cubin), cubin.log
    return {
        name: bytes(int(byte) for byte in data.split(",")).rstrip(b"\0").decode()
        for name, data in re.findall(r"\.b8 m_(\w+)\[\d+\] = \{([^}]*)\}", cubin.ptx)
    }


def of_emulator(emulator, text: str, arch: str) -> dict[str, str]:
    examined = emulator.examined(text, arch=arch, deadline_s=30)
    assert isinstance(examined, str), examined
    found = re.findall(r'm_(\w+)\[\] = "=" "((?:[^"\\]|\\.)*)"', examined)
    return {name: "=" + value.replace('\\"', '"') for name, value in found}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_macros_are_nvrtcs(emulator, toolchain, arch):
    own = re.findall(r"^#define (\w+)(?!\w|\()", (INCLUDE / MACROS).read_text(), re.MULTILINE)
    own += [flag[2:].partition("=")[0] for flag in macro_flags(arch)]
    host = (emulator.folder / HOST_MACROS).read_text().split()
    names = sorted({*own, *host, *WORDS} - OTHERWISE)
    assert len(names) > 300
    text = asking(names)
    assert of_emulator(emulator, text, arch) == of_nvrtc(toolchain, text, arch)
