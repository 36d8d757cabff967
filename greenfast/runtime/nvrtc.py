"""Compiling a kernel's source once, where no machine code of the bundle fits the device."""

from __future__ import annotations

import ctypes
import hashlib
import os
from functools import cache
from pathlib import Path

from greenfast.search.errors import Fault
from greenfast.search.toolchain import known_answer
from greenfast.search.toolchain.cache import write_atomically
from greenfast.search.toolchain.cache_room import CacheRoom, mark_used
from greenfast.search.toolchain.toolkit import Toolkit, find_toolkit

CACHE_VARIABLE = "GREENFAST_RUNTIME_CACHE"
LONGEST_LOG = 2000  # characters of a compiler's log in a message


def compiled(source: str, arch: str) -> bytes:
    """The cubin of `source`, from the user's cache if it was compiled before.

    Fault `no_compiler` without NVRTC, `toolchain_wrong` for a release that is known to compile
    wrongly, `not_compiled` for a source that it refuses.
    """
    toolkit = _toolkit()
    parts = (source, arch, toolkit.nvrtc_version, *map(repr, toolkit.versions))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    place = cache_folder() / f"{key}.cubin"
    kept = _kept(place)
    if kept is not None:
        return kept
    _require_correct_code(toolkit)
    image = _compile(toolkit, source, arch)
    _keep(place, image)
    return image


def cache_folder() -> Path:
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "greenfast" / "runtime"


def _kept(place: Path) -> bytes | None:
    """The cached image; None if it is missing or damaged."""
    try:
        data = place.read_bytes()
    except OSError:
        return None
    mark_used(place)
    digest, image = data[:32], data[32:]
    return image if hashlib.sha256(image).digest() == digest else None


def _keep(place: Path, image: bytes) -> None:
    """Write by renaming, so that readers see all of it; a full disk only costs the next start."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(place, hashlib.sha256(image).digest() + image)
    except OSError:
        return
    CacheRoom(place.parent).add(len(image))


def _toolkit() -> Toolkit:
    try:
        return find_toolkit()
    except Fault as error:
        raise Fault(error.message, code="no_compiler", mend=error.mend) from None


@cache
def _library(paths: tuple[str, ...]) -> ctypes.CDLL:
    """NVRTC, the last of its libraries; it finds the others by name once they are loaded."""
    try:
        return [ctypes.CDLL(path) for path in paths][-1]
    except OSError as error:
        raise Fault(f"NVRTC cannot be loaded: {error}", code="no_compiler") from None


@cache
def _require_correct_code(toolkit: Toolkit) -> None:
    code = _compile(toolkit, known_answer.SOURCE.read_text("utf-8"), known_answer.ARCH)
    if wrong := known_answer.wrong_answer(code):
        raise Fault(
            f"NVRTC {toolkit.nvrtc_version} compiles a known kernel to wrong code ({wrong}), so "
            "it is not used",
            code="toolchain_wrong",
            mend="set GREENFAST_CUDA to a folder with another release",
        )


def _compile(toolkit: Toolkit, source: str, arch: str) -> bytes:
    library = _library(toolkit.libraries)
    program = ctypes.c_void_p()
    if library.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
    ):
        raise Fault("NVRTC could not be started", code="no_compiler")
    try:
        options = [f"--gpu-architecture={arch}", "--std=c++17"]
        options += [f"-I{folder}" for folder in toolkit.include_dirs]
        words = (ctypes.c_char_p * len(options))(*(word.encode() for word in options))
        if library.nvrtcCompileProgram(program, len(options), words):
            raise Fault(
                f"NVRTC {toolkit.nvrtc_version} refused the kernel for {arch}: "
                f"{_text(library, program)[:LONGEST_LOG]}",
                code="not_compiled",
            )
        size = ctypes.c_size_t()
        library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        if library.nvrtcGetCUBIN(program, image):
            raise Fault(f"NVRTC gave no machine code for {arch}", code="not_compiled")
        return image.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _text(library: ctypes.CDLL, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(max(size.value, 1))
    library.nvrtcGetProgramLog(program, log)
    return log.value.decode(errors="replace").strip()
