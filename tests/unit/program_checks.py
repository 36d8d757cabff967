"""Checks of whole CUDA programs, for several files of tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from greenfast.search.diagnose.host_program import check_host_program
from greenfast.search.diagnose.plain import PlainOptions
from greenfast.search.targets.emulator.target import EmulatorTarget


@dataclass(frozen=True)
class ProgramChecks:
    """Checks programs that it writes into a folder."""

    target: EmulatorTarget
    folder: Path

    def __call__(self, text: str, *words: str, **files: str) -> list[tuple[str, str | None]]:
        """The kinds and lines of the findings; `words` go to the program's main."""
        for name, content in files.items():
            (self.folder / f"{name}.cuh").write_text(content)
        report = self.checked(text, *words).report
        return [(finding.kind, finding.where) for finding in report.findings]

    def checked(self, text: str, *words: str):
        file = self.folder / "program.cu"
        file.write_text(text)
        return check_host_program(file, PlainOptions(words=words), self.target, is_strict=False)

    def program(self, file: Path, *others: Path):
        options = PlainOptions(others=others)
        return check_host_program(file, options, self.target, is_strict=False)
