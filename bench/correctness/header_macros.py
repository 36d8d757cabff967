"""Write the emulator's lists of macros that NVRTC and CUDA's headers define.

    python -m bench.correctness.header_macros

Run after a change of CUDA's release or of the stand-in headers. It asks the installed NVRTC, for
each header that a text may include, which of all names in CUDA's headers and in NVRTC's libraries
are macros there. Macros of integer and floating-point limits and of math_constants.h are written
with NVRTC's expansions; the emulator knows them. All others are written to unknown_macros.h, and a
text that names one is refused. Takes about two minutes.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.command_line import script_parser
from greenfast.search.targets.emulator.device_preprocessor import UNKNOWN_MACROS, macro_flags
from greenfast.search.targets.emulator.header_macros import (
    CONSTANTS,
    FLOATS,
    INTEGERS,
    MATHEMATICS,
)
from greenfast.search.targets.emulator.native_build import INCLUDE
from greenfast.search.targets.emulator.source_rules import CALLS
from greenfast.search.toolchain.toolkit import Toolkit, find_toolkit

OWN = INCLUDE / "gf_emulator"
GF = Path(__file__).resolve().parents[2] / "kernel_templates" / "include"
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_90a", "sm_100a")
DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
ASKED = re.compile(r"GF_IS (\w+)")
EVERYWHERE = "assert offsetof __cplusplus __STDC__ __STDC_HOSTED__ __FILE__ __LINE__ __DATE__"
STANDARD = {*EVERYWHERE.split(), *CALLS.values(), "__TIME__", "__VA_ARGS__", "defined"}
FAMILIES = {
    "math_constants.h": "CUDART_",
    "cuda/std/cstdint": "U?(?:INT|CHAR|SHRT|L?LONG)|SCHAR|SIZE|PTRDIFF",
    "cuda/std/limits": "FLT_|DBL_|DECIMAL_",
    "cuda/std/cmath": r"(?:INFINITY|NAN)\Z|FP_",
}
RELEASE = "of CUDA 13.5, with their expansions."
WIDTH = 120


class Nvrtc:
    def __init__(self, toolkit: Toolkit) -> None:
        for library in toolkit.libraries:
            ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        from cuda.bindings import nvrtc

        self._nvrtc = nvrtc
        self._folders = [*toolkit.include_dirs, str(GF)]

    def compiled(self, text: str, arch: str) -> tuple[bool, str, str]:
        """Whether the text compiles, the log, and the PTX."""
        nvrtc: Any = self._nvrtc
        _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"k.cu", 0, None, None)
        options = [f"-arch={arch}", "--std=c++17", *(f"-I{each}" for each in self._folders)]
        words = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(words), words)
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, log)
        ptx = bytearray(nvrtc.nvrtcGetPTXSize(program)[1] if int(status) == 0 else 0)
        if ptx:
            nvrtc.nvrtcGetPTX(program, ptx)
        nvrtc.nvrtcDestroyProgram(program)
        return int(status) == 0, log.decode(errors="replace"), ptx.decode(errors="replace")

    def macros(self, header: str, names: Iterable[str], arch: str) -> set[str] | None:
        """Which of the names are macros behind a header; None if NVRTC cannot include it."""
        lines = [f"#include <{header}>"] if header else []
        lines += [f"#ifdef {name}\n#warning GF_IS {name}\n#endif" for name in names]
        is_compiled, log, _ = self.compiled("\n".join(lines) + "\n", arch)
        return set(ASKED.findall(log)) if is_compiled else None

    def expansions(self, names: Iterable[str]) -> Mapping[str, str]:
        lines = ["#include <cooperative_groups.h>", "#include <math_constants.h>"]
        lines += ["#include <cuda/std/cmath>"]
        lines += ["#define QUOTED_(...) #__VA_ARGS__", "#define QUOTED(...) QUOTED_(__VA_ARGS__)"]
        for name in names:
            call = f"{name}(a)" if name.endswith("_C") else name
            lines.append(f'extern "C" __device__ const char m_{name}[] = QUOTED({call});')
        _, log, ptx = self.compiled("\n".join(lines) + "\n", "sm_90")
        found = re.findall(r"\.b8 m_(\w+)\[\d+\] = \{([^}]*)\}", ptx)
        assert found, log
        return {
            name: bytes(int(byte) for byte in data.split(",")).rstrip(b"\0").decode()
            for name, data in found
        }


def defined_in_headers(toolkit: Toolkit) -> set[str]:
    names: set[str] = set()
    for folder in (*map(Path, toolkit.include_dirs), GF):
        for path in folder.rglob("*"):
            if path.is_file():
                names.update(DEFINE.findall(path.read_text(errors="replace")))
    return names


def candidates(toolkit: Toolkit) -> list[str]:
    """Every name that could be a macro."""
    names = defined_in_headers(toolkit)
    for library in toolkit.libraries:
        words = re.findall(rb"[A-Za-z_]\w{2,60}", Path(library).read_bytes())
        names.update(word.decode() for word in words)
    return sorted(names - {"defined", "__VA_ARGS__"})


def headers() -> list[str]:
    paths = (path.relative_to(INCLUDE) for path in INCLUDE.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if path.parts[0] != OWN.name)


def write(file: str, title: str, names: Iterable[str], values: Mapping[str, str]) -> None:
    lines = [f"// {title}"]
    for name in sorted(names):
        lines.append(f"#define {name}{'(a)' if name.endswith('_C') else ''} {values[name]}")
    (OWN / file).write_text("\n".join(lines) + "\n")


def write_unknown(names: Iterable[str]) -> None:
    lines = [
        "// Macros that NVRTC 13.5 or CUDA's headers define, and that the emulator does not have.",
        "// A text that names one would be another text for a GPU, so it is refused.",
        "// Written by bench/correctness/header_macros.py.",
    ]
    line = "#pragma GCC poison"
    for name in sorted(names):
        if len(line) + 1 + len(name) > WIDTH:
            lines.append(line)
            line = "#pragma GCC poison"
        line += f" {name}"
    (INCLUDE / UNKNOWN_MACROS).write_text("\n".join([*lines, line]) + "\n")


def main() -> None:
    script_parser(__doc__).parse_args()
    toolkit = find_toolkit()
    nvrtc, names = Nvrtc(toolkit), candidates(toolkit)
    flags = (flag for arch in ARCHITECTURES for flag in macro_flags(arch))
    known = {flag[2:].partition("=")[0] for flag in flags}
    text = (OWN / "device_macros.h").read_text()
    known |= set(re.findall(r"^#(?:define|undef) (\w+)", text, re.MULTILINE))
    found: dict[str, set[str]] = {}
    for arch in ARCHITECTURES:
        found[arch] = nvrtc.macros("", names, arch) or set()
    likely = sorted(defined_in_headers(toolkit))
    for header in headers():
        macros = nvrtc.macros(header, likely, "sm_90")
        print(f"{header}: {'cannot be included' if macros is None else len(macros)}")
        found[header] = macros or set()
    constants, integers, floats, mathematics = (
        {name for name in found[header] - found["sm_90"] if re.match(family, name)}
        for header, family in FAMILIES.items()
    )
    values = nvrtc.expansions(sorted(constants | integers | floats | mathematics))
    write(INTEGERS, f"The macros of integer types {RELEASE}", integers, values)
    write(FLOATS, f"The macros of floating-point types {RELEASE}", floats, values)
    write(CONSTANTS, f"The macros of math_constants.h {RELEASE}", constants, values)
    write(MATHEMATICS, f"The macros of cuda/std/cmath {RELEASE}", mathematics, values)
    known |= constants | integers | floats | mathematics | STANDARD
    write_unknown(set().union(*found.values()) - known)


if __name__ == "__main__":
    main()
