"""Whether the emulator takes a text: what is judged of it before it is compiled."""

from __future__ import annotations

from dataclasses import dataclass

from greenfast.search.targets.emulator.build import EmulatorBuild
from greenfast.search.targets.emulator.source_rewriting import Refused
from greenfast.search.targets.emulator.source_tokens import line_directive

COMPILE_DEADLINE_S = 60.0


@dataclass(frozen=True)
class Refusal:
    """Why a text is refused; `line` is the text's, or None if the sentence names the place."""

    sentence: str
    line: int | None = None


def refusal(build: EmulatorBuild, text: str, unit: str, arch: str) -> Refusal | None:
    """The refusal of a source by its flattened text and its translation unit; None: it is taken.

    Fault if the host's compiler cannot tell.
    """
    if (directive := line_directive(text)) is not None:
        return Refusal(directive[1], directive[0])
    examined = build.examined(unit, arch=arch, deadline_s=COMPILE_DEADLINE_S)
    return Refusal(examined.sentence) if isinstance(examined, Refused) else None
