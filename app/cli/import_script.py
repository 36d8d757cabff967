"""A Kernel Tuner script: its calls of `tune_kernel`, and the kernel that one of them names.

The script is parsed and followed by an interpreter of its own (`script/`), and never run. Its
source is a text in the script, or a file in its folder.
"""

from __future__ import annotations

import ast
import os.path
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from greenfast.app.cli.import_notebook import ScriptText, script_text
from greenfast.app.cli.import_source import SOURCE_SUFFIXES, CudaText, read_cuda_text
from greenfast.app.cli.script.functions import is_file_name
from greenfast.app.cli.script.interpreter import Interpreter, TuningCall
from greenfast.app.cli.script.values import (
    FilePath,
    FileText,
    Function,
    Partial,
    Unknown,
    is_plain,
    items,
)
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.author_files import read_author_file
from greenfast.search.text import file_line, shortened, visible

_OF_CUDA = ("cuda", "cupy", "nvcuda", "pycuda", "c")
_DEFINE = re.compile(r"-D\s*(?P<name>[A-Za-z_]\w*)(?:=(?P<value>[^\n]*))?\Z")


@dataclass(frozen=True)
class Script:
    """A script, as far as it can be followed without running it."""

    path: Path
    written: ScriptText
    read: Interpreter
    tree: ast.Module

    @property
    def file(self) -> str:
        return visible(self.path)

    def call(self, entry: str | None = None) -> TuningCall | None:
        """The call that tunes this kernel, else the first one."""
        calls = self.read.calls
        same = [each for each in calls if entry and short_name(_entry(each)) == short_name(entry)]
        return next(iter([*same, *calls]), None)

    def entries(self) -> list[str]:
        """The names of the kernels that the script tunes."""
        names = [_entry(each) for each in self.read.calls]
        return list(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True)
class ScriptKernel:
    """The kernel that a script tunes."""

    entry: str | None
    source: CudaText
    file: str  # the script's, or that of the kernel that it names


def read_script(path: Path) -> Script:
    """The script, followed; UsageError when it is no Python, or nested too deeply."""
    file = visible(path)
    written = script_text(path)
    tree = _parsed(file, written.text)
    folder = path.parent.resolve()

    def read(name: str) -> Any:
        if (own := written.files.get(os.path.normpath(name))) is not None:
            return own
        try:
            inside = file_in_folder(name, path)
            return read_author_file(inside, visible(name))
        except GreenfastError as error:
            return Unknown(error=error)

    interpreter = Interpreter(tree, str(folder / path.name), read)
    try:
        interpreter.run()
    except RecursionError as error:
        raise UsageError(f"{file} is nested too deeply to be read", code="bad_tune_file") from error
    if interpreter.is_exhausted and not interpreter.calls:
        raise UsageError(
            f"{file} computes too much before its call of tune_kernel to be followed",
            code="bad_tune_file",
            mend="leave the computation out of a copy of the script, and import the copy",
        )
    return Script(path, written, interpreter, tree)


def file_in_folder(name: str, script: Path) -> Path:
    """The source file that a script names; UsageError for one outside of the script's folder."""
    folder = script.parent.resolve()
    file = (folder / name).resolve()
    shown = shortened(visible(name), 120)
    if file.suffix in (".cl", ".opencl", ".ocl"):
        raise UsageError(
            f"{visible(script)} names {shown}, an OpenCL kernel, but greenfast takes CUDA only",
            code="bad_tune_file",
        )
    if file.suffix not in SOURCE_SUFFIXES and not name.endswith(tuple(SOURCE_SUFFIXES)):
        raise UsageError(
            f"{visible(script)} names {shown}, whose name is not that of a source file",
            code="bad_tune_file",
            mend="let the name end with .cu",
        )
    if not file.is_relative_to(folder):
        is_linked = Path(os.path.normpath(folder / name)).is_relative_to(folder)
        raise UsageError(
            f"{visible(script)} names {shown}, which {'links to a file' if is_linked else 'is'} "
            "outside of the script's folder, and a script may only bring files of its folder",
            code="bad_tune_file",
            mend=f"copy the file beside the script, or name it yourself: greenfast import {shown} "
            f"--tune-file {visible(script)}",
        )
    return file


def script_kernel(script: Script, entry: str | None = None) -> ScriptKernel:
    """The kernel of a script; UsageError when it names none that can be read."""
    call = script.call(entry)
    given = None if call is None else call.given.get("kernel_source")
    if call is None or given is None:
        raise _without_kernel(script, call)
    _check_language(script, call)
    _check_single(script, given)
    named = given.path if isinstance(given, FileText) else None
    named = given.text if isinstance(given, FilePath) else named
    named = given if isinstance(given, str) and is_file_name(given) else named
    path, text = script.path, given
    if named is not None:
        path = file_in_folder(named, script.path)
        own = script.written.files.get(os.path.normpath(named))
        text = read_author_file(path, visible(named)) if own is None else own
        path = script.path.parent / path.relative_to(script.path.parent.resolve())
    if not isinstance(text, str):
        raise _unreadable_source(script, call, given)
    lines = _lines_in_script(text, script) if path == script.path else None
    source = read_cuda_text(text, path, within=script.path.parent, places=lines)
    return ScriptKernel(_entry(call, entry), _with_defines(source, script, call), visible(path))


def _lines_in_script(text: str, script: Script) -> list[int]:
    """The script's line of each line of a text that the script has in itself.

    A line that the script has once is that one; others follow the line before.
    """
    written = script.written.text.split("\n")
    plain = [line.strip().replace("{{", "{").replace("}}", "}") for line in written]
    once = Counter(plain)
    lines: list[int] = []
    for line in map(str.strip, text.split("\n")):
        before = lines[-1] if lines else 0
        number = plain.index(line) + 1 if line and once[line] == 1 else before + 1
        lines.append(min(number, len(written)))
    return lines


def script_entry(script: Script, text: str) -> str | None:
    """The first kernel that a script tunes and that the text has."""
    for name in script.entries():
        if re.search(rf"\b{re.escape(short_name(name))}\s*\(", text):
            return name
    return None


def short_name(entry: str | None) -> str:
    """A kernel's name without namespaces and template arguments."""
    return (entry or "").partition("<")[0].rpartition("::")[2].strip()


def _parsed(file: str, text: str) -> ast.Module:
    """The script's statements; UsageError when it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the script's text, such as "\\d" in it
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place, why = file, ""
        if isinstance(error, SyntaxError) and error.lineno:
            place, why = file_line(file, error.lineno), f": {shortened(visible(error.msg))}"
        raise UsageError(f"{place} is not valid Python{why}", code="bad_tune_file") from error


def _entry(call: TuningCall, wanted: str | None = None) -> str | None:
    """The kernel's name in a call, unless the caller wants a certain instance of it."""
    name = call.given.get("kernel_name")
    own = name if isinstance(name, str) else None
    if wanted is None or (own is not None and short_name(own) == wanted.strip()):
        return own
    return wanted


def _check_language(script: Script, call: TuningCall) -> None:
    language = call.given.get("lang")
    if isinstance(language, str) and language.lower() not in _OF_CUDA:
        raise UsageError(
            f"{script.file}:{call.node.lineno}: it tunes a kernel in {visible(language)}, but "
            "greenfast takes CUDA only",
            code="bad_tune_file",
        )


def _check_single(script: Script, given: Any) -> None:
    """UsageError for a host program, whose files Kernel Tuner takes as a list."""
    files = [each for each in items(given) or () if isinstance(each, str)]
    if files and not isinstance(given, str):
        raise UsageError(
            f"{script.file} tunes a host program, {visible(files[0])}; greenfast launches kernels "
            "itself",
            code="bad_tune_file",
            mend=f"greenfast import {visible(files[-1])} --tune-file {script.file}",
        )


def _without_kernel(script: Script, call: TuningCall | None) -> UsageError:
    other = _line_of("run_kernel", script)
    sentence = f"{script.file} has no call of tune_kernel"
    if call is not None:
        sentence = f"{script.file}:{call.node.lineno}: this call of tune_kernel has no source"
    elif other:
        sentence = f"{script.file}:{other}: the script runs a kernel (run_kernel) and tunes none"
    return UsageError(
        f"{sentence}; needed is a call of tune_kernel with a CUDA text or the name of a file",
        code="bad_tune_file",
        mend=f"greenfast import FILE.cu --tune-file {script.file}",
    )


def _line_of(name: str, script: Script) -> int:
    """The line of the first call of a function of this name, else 0."""
    calls = [node for node in ast.walk(script.tree) if isinstance(node, ast.Call)]
    lines = [
        node.lineno
        for node in calls
        if name in (getattr(node.func, "attr", ""), getattr(node.func, "id", ""))
    ]
    return min(lines, default=0)


def _unreadable_source(script: Script, call: TuningCall, given: Any) -> GreenfastError:
    if isinstance(given, Unknown) and given.error is not None:
        return given.error
    line = given.line if isinstance(given, Unknown) else call.node.lineno
    what = "is neither a text nor a file's name"
    if isinstance(given, (Function, Partial)):
        what = "is a function, which writes another text for each point"
    return UsageError(
        f"{script.file}:{line or call.node.lineno}: the kernel's source {what}, and the script is "
        "not run",
        code="bad_tune_file",
        mend=f"save the text as FILE.cu, and greenfast import FILE.cu --tune-file {script.file}",
    )


def _with_defines(source: CudaText, script: Script, call: TuningCall) -> CudaText:
    """The text behind the macros that the call defines: `defines` and -D of compiler_options."""
    defines: dict[str, str] = {}
    for option in items(call.given.get("compiler_options")) or ():
        if isinstance(option, str) and (match := _DEFINE.match(option)):
            defines[match["name"]] = match["value"] if match["value"] is not None else "1"
    given = call.given.get("defines")
    for name, value in given.items() if isinstance(given, Mapping) else ():
        if not is_plain(value) or not str(name).isidentifier() or "\n" in str(value):
            raise UsageError(
                f"{script.file}:{call.node.lineno}: defines[{visible(str(name))!r}] is no constant",
                code="bad_tune_file",
                mend="write its #define into the kernel",
            )
        defines[str(name)] = str(value)
    tuned = call.given.get("tune_params")
    kept = {name: each for name, each in defines.items() if name not in (items(tuned) or ())}
    if not kept:
        return source
    lines = [f"#define {name} {value}" for name, value in kept.items()]
    return replace(
        source,
        text="\n".join([*lines, source.text]),
        places=(*[f"{script.file}:{call.node.lineno}"] * len(lines), *source.places),
    )
