"""The emulator's preprocessor defines what NVRTC defines, and nothing of the host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from emulator_harness import prepared

from greenfast.search.digest import text_digest
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource
from greenfast.search.targets.emulator.device_preprocessor import (
    HOST_MACROS,
    INTERNAL,
    MACROS,
    UNKNOWN_MACROS,
    headers_of_cuda,
    macro_flags,
)
from greenfast.search.targets.emulator.header_macros import CONSTANTS, FLOATS, INTEGERS, MATHEMATICS
from greenfast.search.targets.emulator.native_build import INCLUDE
from greenfast.search.targets.emulator.source_rewriting import Refused
from greenfast.search.targets.emulator.source_rules import CALLS
from greenfast.search.toolchain import Cubin

# Answered by a refusal here, or left a call for the stand-in headers.
OTHERWISE = frozenset(
    (
        "__has_builtin",
        "__has_cpp_attribute",
        "__has_include",
        "__has_include_next",
        "__BASE_FILE__",
        *CALLS.values(),
        *re.findall(r"\w+", (INCLUDE / UNKNOWN_MACROS).read_text()),
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


def compiled(toolchain, text: str, arch: str) -> Cubin:
    lines = tuple(Line("macros.cu", number) for number in range(1, text.count("\n") + 1))
    cubin = toolchain.compile(RenderedSource(text, text_digest(text), lines, text, (), False), arch)
    assert isinstance(cubin, Cubin), cubin.log
    return cubin


def of_nvrtc(toolchain, text: str, arch: str) -> dict[str, str]:
    cubin = compiled(toolchain, text, arch)
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


HEADERS = ("cuda/std/cstdint", "math_constants.h", "cuda_fp16.h", "cuda/ptx", "cuda/std/cmath")


@pytest.mark.slow
@pytest.mark.parametrize("header", HEADERS)
def test_macros_behind_a_header_are_nvrtcs(emulator, toolchain, header):
    files = (INCLUDE / INTERNAL / name for name in (INTEGERS, FLOATS, CONSTANTS, MATHEMATICS))
    names = re.findall(
        r"^#define (\w+)(?!\w|\()", "".join(map(Path.read_text, files)), re.MULTILINE
    )
    text = f"#include <{header}>\n{asking([*names, 'offsetof'])}"
    assert of_emulator(emulator, text, "sm_90") == of_nvrtc(toolchain, text, "sm_90")


@pytest.mark.slow
def test_every_macro_of_nvrtc_is_known_or_refused(toolchain):
    """Macros of all headers together, where NVRTC can include them."""
    headers = [*sorted(headers_of_cuda(INCLUDE) - {"cuda.h"}), "cub/block/block_radix_sort.cuh"]
    defined: set[str] = set()
    for folder in map(Path, toolchain.include_dirs):
        for path in (each for each in folder.rglob("*") if each.is_file()):
            text = path.read_text(errors="replace")
            defined.update(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, re.MULTILINE))
    text = "".join(f"#include <{header}>\n" for header in headers)
    for name in sorted(defined):
        text += f"#ifdef {name}\n__device__ int m_{name};\n#endif\n"
    cubin = compiled(toolchain, text, "sm_90")
    found = set(re.findall(r"\bm_(\w+);", cubin.ptx))
    files = [INCLUDE / INTERNAL / name for name in (INTEGERS, FLOATS, CONSTANTS, MATHEMATICS)]
    files += [INCLUDE / MACROS, INCLUDE / UNKNOWN_MACROS]
    texts = (*map(Path.read_text, files), *(flag[2:] for flag in macro_flags("sm_90")))
    known = set(re.findall(r"\w+", " ".join(texts)))
    assert len(found) > 2000 and found - known <= {"offsetof"}


def test_a_macro_of_nvrtc_alone_is_refused(emulator):
    for name in ("NV_IF_TARGET", "__CUDA_FP16_H__", "CUB_VERSION"):
        text = f"#define Z {name}\n"
        refused = emulator.examined(text, arch="sm_90", deadline_s=30)
        assert isinstance(refused, Refused) and name in refused.reason
