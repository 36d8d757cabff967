"""The machine code of a bundle, which calls run, compared with its source, which checks run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from greenfast.runtime.machine_code import code_sections
from greenfast.search.errors import Fault
from greenfast.search.render import RenderedSource
from greenfast.search.toolchain import CompileFailed, Toolchain

_FILE = re.compile(r"kernel\.(sm_\d{2,3}[af]?)\.cubin\Z")
_RELEASE = re.compile(rb"Cuda compilation tools, release [\d.]+, V([\d.]+)")


def compared_code(
    files: Mapping[str, bytes], source: RenderedSource, toolchain: Toolchain
) -> tuple[bool | None, str] | None:
    """Whether each cubin is what this machine's NVRTC makes of the source, and the sentence.

    None as the answer: this machine cannot tell. None alone: the bundle holds no machine code.
    """
    images = {match[1]: files[name] for name in sorted(files) if (match := _FILE.match(name))}
    for arch, image in images.items():
        try:
            compiled = toolchain.compile(source, arch)
        except Fault as fault:
            return None, f"the code for {arch} is compared where NVRTC is: {fault}"
        if isinstance(compiled, CompileFailed):
            return None, f"NVRTC does not compile kernel.cu for {arch} here: {compiled.sentence}"
        made, ours = code_sections(image), code_sections(compiled.code)
        if made == ours and made:
            continue
        release = _RELEASE.search(image)
        stated, here = release[1].decode() if release else "another compiler", nvrtc(toolchain)
        if stated != here:
            return None, f"the code for {arch} was made by NVRTC {stated}; this machine has {here}"
        other = sorted(
            name for name in made.keys() | ours.keys() if made.get(name) != ours.get(name)
        )
        return False, (
            f"the code for {arch} is not what NVRTC {here} makes of kernel.cu: "
            f"{', '.join(other[:3]) or 'it cannot be read'}"
        )
    return (
        (True, f"the code for {', '.join(images)} is what NVRTC makes of kernel.cu")
        if images
        else None
    )


def nvrtc(toolchain: Toolchain) -> str:
    return dict(toolchain.identity)["nvidia-cuda-nvrtc"]
