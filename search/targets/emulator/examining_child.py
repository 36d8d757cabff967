"""The child that examines texts for a search, beside the loop and not in its process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from greenfast.search.children import serve_requests
from greenfast.search.errors import Fault
from greenfast.search.targets.emulator.build import EmulatorBuild
from greenfast.search.targets.emulator.examination import refusal
from greenfast.search.targets.emulator.host_compiler import find_host_compiler


def examiner(
    cache_folder: str, include_dirs: list[str]
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Answers {"text", "unit", "arch"} with {"sentence", "line"}, and {"unknown"} after a fault."""
    include = tuple(Path(folder) for folder in include_dirs)
    build = EmulatorBuild(Path(cache_folder), find_host_compiler(), include)

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            refused = refusal(build, request["text"], request["unit"], request["arch"])
        except Fault as fault:
            return {"unknown": str(fault)}
        return {
            "sentence": refused.sentence if refused else None,
            "line": refused.line if refused else None,
        }

    return answer


if __name__ == "__main__":
    read, write, cache, *folders = sys.argv[1:]
    serve_requests(examiner(cache, folders), int(read), int(write))
