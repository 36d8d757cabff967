"""One sentence for a plain CUDA file that the emulator cannot compile, out of a compiler's log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from greenfast.search.diagnose.argument_assertions import ARGUMENTS, MISFIT
from greenfast.search.diagnose.plain_text import MissingInclude
from greenfast.search.errors import UsageError
from greenfast.search.targets.emulator.target import MACHINE_PATH
from greenfast.search.text import file_line, one_line, shortened
from greenfast.search.toolchain.includes import STANDARD_HEADERS

LONGEST_MESSAGE = 400  # characters
_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<message>.*)$"
)
_ASSERTION = re.compile(rf"static assertion failed: {MISFIT}(.*)")
_INSTANTIATED = re.compile(r"^(?P<file>[^\s/:][^:]*):(?P<line>\d+)(?::\d+)?:")
_OF_A_LIBRARY = re.compile(r"'(?:cub|cuda|cooperative_groups|nvcuda)(?:::|')")
_UNKNOWN_NAME = re.compile(r"not (?:been )?declared|does not name|is not a member|undeclared")
_WHAT_IT_HAS = "`greenfast docs emulator` lists what it has of CUDA's libraries"
_LAUNCH = "expected primary-expression before '<' token"  # of g++ at <<<
_FOLLOWS = re.compile(r"variable or field .* declared void|expected primary-expression")


def refusal(log: str, missing: Sequence[MissingInclude]) -> UsageError:
    """UsageError for the log's first error; the assertions on arguments come first."""
    lines = log.splitlines()
    errors = [match for line in lines if (match := _ERROR.match(line))]
    assertions = [match for line in lines if (match := _ASSERTION.search(line))]
    own = next((match for match in errors if _is_cause(match)), None)
    if assertions and own is None:
        return UsageError(assertions[0][1].strip(), code="bad_arguments")
    if launch := next((match for match in errors if match["message"] == _LAUNCH), None):
        return UsageError(
            f"{file_line(launch['file'], int(launch['line']))}: a kernel launches another one "
            "(dynamic parallelism), which the emulator cannot run",
            code="unsupported_source",
            mend="check the launched kernel by itself: name it with --entry",
        )
    error = own or (errors[0] if errors else None)
    if error is None:
        message = one_line(log) or "the compiler gave no reason"
        return UsageError(
            f"the emulator cannot compile this: {shortened(_clean(message), LONGEST_MESSAGE)}",
            code="unsupported_source",
            mend=_about(message, missing),
        )
    place = file_line(error["file"], int(error["line"]))
    if error["file"].startswith("/"):  # in a header of the emulator: the text's own line caused it
        own_lines = (_INSTANTIATED.match(line) for line in lines)
        cause = next((match for match in own_lines if match), None)
        place = file_line(cause["file"], int(cause["line"])) if cause else "the text"
    message = shortened(_clean(error["message"]), LONGEST_MESSAGE)
    return UsageError(
        f"{place}: the emulator cannot compile this: {message}",
        code="unsupported_source",
        mend=_about(message, missing),
    )


def _is_cause(error: re.Match[str]) -> bool:
    """Whether an error is in the author's files and is not just a consequence of another one."""
    return not (
        error["file"].startswith(("/", "<"))
        or error["file"] == ARGUMENTS
        or _FOLLOWS.match(error["message"])
    )


def _clean(message: str) -> str:
    return MACHINE_PATH.sub("", one_line(message))


def _about(message: str, missing: Sequence[MissingInclude]) -> str:
    """What may help: files that were not found, and libraries that the emulator does not have."""
    if removed := _REMOVED.search(message):
        return f"CUDA has {removed[1]}_sync in its place, with the mask of the threads: 0xffffffff"
    local = [each for each in missing if each.is_local]
    if local:
        return f"these includes were not found: {_listed(local)}; name their folder with -I FOLDER"
    if named := [each for each in missing if re.search(rf"\b{_library(each.name)}", message)]:
        return (
            f"the emulator does not have {_listed(named[:4])}, and cannot run device code that "
            f"uses it; {_WHAT_IT_HAS}"
        )
    if _OF_A_LIBRARY.search(message):
        return _WHAT_IT_HAS
    others = [each for each in missing if each.name not in STANDARD_HEADERS]
    if others and _UNKNOWN_NAME.search(message):
        return f"the emulator does not have {_listed(others[:4])}, which may declare it"
    return ""


# Functions of a warp that CUDA no longer has for the GPUs of today.
_REMOVED = re.compile(r"'(__(?:shfl(?:_up|_down|_xor)?|any|all|ballot))' was not declared")


def _library(header: str) -> str:
    """`thrust` of <thrust/sort.h>, `curand` of <curand_kernel.h>: how its names begin."""
    return re.split(r"[^A-Za-z0-9]", header)[0]


def _listed(includes: Sequence[MissingInclude]) -> str:
    return ", ".join(
        f"{each.name} ({file_line(each.where.file, each.where.number)})"
        if each.is_local
        else f"<{each.name}> ({file_line(each.where.file, each.where.number)})"
        for each in includes
    )
