"""NVRTC on the machines of a cluster. Cubins are kept here, by digest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from greenfast.search.children import ChildDied, ChildTimeout
from greenfast.search.executors.cluster import Work
from greenfast.search.executors.node import Compiled, CompileRequest, compile_source
from greenfast.search.toolchain.nvrtc import Toolchain
from greenfast.search.toolchain.toolkit import Place


class RemoteToolchain(Toolchain):
    """Every source that this machine has no cubin of is compiled elsewhere.

    A machine with another toolkit is not used, so a cubin does not depend on the choice.
    """

    def __init__(self, work: Work, cache_folder: Path, place: Place | None) -> None:
        super().__init__(cache_folder, 1, place=place)
        self._work = work

    def ask(self, request: Any) -> dict[str, Any]:
        compiled: Compiled = self._work.run(
            compile_source, CompileRequest(self.identity, request), near=request["name"]
        )
        if compiled.timed_out:
            raise ChildTimeout
        if compiled.died is not None:
            raise ChildDied(*compiled.died)
        assert compiled.reply is not None
        return compiled.reply

    def warm(self, count: int) -> None:
        """Other machines start their own."""

    def interrupt(self) -> None:
        self._work.cluster.interrupt()
