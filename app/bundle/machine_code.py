"""The machine code of a bundle: made of its source, and compared with it when it is verified.

Programs run the machine code, and checks read the source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from greenfast.runtime.machine_code import code_sections
from greenfast.search.digest import text_digest
from greenfast.search.errors import Fault
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource
from greenfast.search.toolchain import CompileFailed, Cubin, Toolchain

_FILE = re.compile(r"kernel\.(sm_\d{2,3}[af]?)\.cubin\Z")
_RELEASE = re.compile(rb"Cuda compilation tools, release [\d.]+, V([\d.]+)")


def is_machine_code(name: str) -> bool:
    return _FILE.match(name) is not None


def compiled_code(
    toolchain: Toolchain, text: str, arch: str, *, required: bool = False
) -> dict[str, bytes]:
    """The machine code of a stored source, by the name of its file.

    Empty without a compiler for GPUs; with `required` that is a Fault.
    """
    try:
        toolchain.require_correct_code()
        cubin = toolchain.compile(as_text(text, ()), arch)
    except Fault:
        if required:
            raise
        return {}
    return {f"kernel.{arch}.cubin": cubin.code} if isinstance(cubin, Cubin) else {}


def as_text(text: str, entries: tuple[str, ...]) -> RenderedSource:
    """A stored text as a source that compilers take."""
    count = text.removesuffix("\n").count("\n") + 1  # splitlines() ends lines elsewhere, too
    lines = tuple(Line("kernel.cu", number) for number in range(1, count + 1))
    return RenderedSource(text, text_digest(text), lines, text, entries, False)


def compared_code(
    files: Mapping[str, bytes], source: RenderedSource, toolchain: Toolchain
) -> tuple[bool | None, str] | None:
    """Whether each cubin is what this machine's NVRTC makes of the source, and the sentence.

    None as the answer: this machine cannot tell. None alone: the bundle holds no machine code.
    """
    images = {match[1]: files[name] for name in sorted(files) if (match := _FILE.match(name))}
    if not images:
        return None
    compared = [_compared(image, source, arch, toolchain) for arch, image in images.items()]
    for answer in (False, None):  # code that differs counts beside code that nobody can judge
        for same, sentence in compared:
            if same is answer:
                return same, sentence
    return True, f"the code for {', '.join(images)} is what NVRTC makes of kernel.cu"


def _compared(
    image: bytes, source: RenderedSource, arch: str, toolchain: Toolchain
) -> tuple[bool | None, str]:
    try:
        compiled = toolchain.compile(source, arch)
    except Fault as fault:
        return None, f"the code for {arch} is compared where NVRTC is: {fault}"
    if isinstance(compiled, CompileFailed):
        return None, f"NVRTC does not compile kernel.cu for {arch} here: {compiled.sentence}"
    if image == compiled.code:
        return True, ""
    release = _RELEASE.search(image)
    stated, here = release[1].decode() if release else "another compiler", nvrtc(toolchain)
    if stated != here:
        return None, f"the code for {arch} was made by NVRTC {stated}; this machine has {here}"
    made, ours = code_sections(image), code_sections(compiled.code)
    other = sorted(name for name in made.keys() | ours.keys() if made.get(name) != ours.get(name))
    parts = ", ".join(other[:3]) if made else "it cannot be read"
    return False, (
        f"the code for {arch} is not what NVRTC {here} makes of kernel.cu: {parts or 'its headers'}"
    )


def nvrtc(toolchain: Toolchain) -> str:
    return dict(toolchain.identity)["nvidia-cuda-nvrtc"]
