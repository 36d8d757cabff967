"""Mutants of the attention templates whose changed line has a known stage.

A mutation operator changes one line of a template's files. The stage that the line serves is given
by its function, and in functions that serve several stages by the line itself: `STAGES` and `LINES`
were written from the templates' text, before any explanation was made of a mutant. Lines that they
leave out are not mutated.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.correctness.mutation import mutants
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.shipped import KERNEL_TEMPLATES

Stages = tuple[str, ...]
TILES: Stages = ("qk", "pv")  # a fault in the copies of K and V shows in whichever is read first
WEIGHTS: Stages = ("softmax", "state")
END: Stages = ("single_tile", "output")

PRESETS = (
    "wmma:stage1",
    "wmma:stage2",
    "wmma:stage3b",
    "wmma:stage4",
    "wmma:stage5",
    "mma:fa2",
    "mma:short",
    "mma:ahead",
    "mma:single_pass",
    "mma:last_block",
    "scalar:minimal",
    "scalar:vec",
)
FILES = {
    "wmma": (
        "wmma.cu.j2",
        "wmma/tiles.cu.j2",
        "wmma/scores.cu.j2",
        "wmma/softmax_registers.cu.j2",
        "wmma/softmax_shared.cu.j2",
        "wmma/output.cu.j2",
        "wmma/finish.cu.j2",
        "wmma/walk.cu.j2",
    ),
    "mma": (
        "mma.cu.j2",
        "mma/tiles.cu.j2",
        "mma/scores.cu.j2",
        "mma/softmax.cu.j2",
        "mma/combine.cu.j2",
        "mma/walk_plain.cu.j2",
        "mma/walk_ahead.cu.j2",
        "mma/walk_turns.cu.j2",
    ),
    "scalar": ("scalar.cu.j2",),
}
STAGES: dict[str, dict[str, Stages]] = {
    "wmma": {
        "load_query": ("qk",),
        "multiply_q_k": ("qk",),
        "load_transposed": ("qk",),
        "load_tile": TILES,
        "start_kv_tile": TILES,
        "place": TILES,
        "load_fragment": TILES,
        "start_softmax": WEIGHTS,
        "softmax": WEIGHTS,
        "softmax_row": WEIGHTS,
        "find_maxima": WEIGHTS,
        "exchange": WEIGHTS,
        "lane_row": WEIGHTS,
        "multiply_p_v": ("pv",),
        "clear": ("pv",),
        "shrink_rows": ("state", "output"),
        "shrink_output": ("state", "output"),
        "store_fragments": ("pv", *END),
        "finish_row": END,
        "finish_softmax": END,
        "store_output": END,
    },
    "mma": {
        "load_query": ("qk",),
        "load_query_fragment": ("qk",),
        "multiply_q_k": ("qk",),
        "load_tile": TILES,
        "start_tile": TILES,
        "start_kv_tile": TILES,
        "slot": TILES,
        "place": TILES,
        "to_the_right": TILES,
        "mask_scores": ("softmax",),
        "take": WEIGHTS,
        "start": WEIGHTS,
        "update": WEIGHTS,
        "multiply_p_v": ("pv",),
        "finish_sums": END,
        "store_output": END,
        "parts_of": END,
        "store_part": END,
        "combine": END,
    },
    "scalar": {
        "load_share": TILES,
        "dot": ("qk",),
        "exponential": WEIGHTS,
        "load_tile": TILES,
        "store_share": END,
        "log_sum": END,
    },
}
# Where a function serves several stages: the stage of a line by its text.
LINES: dict[str, tuple[tuple[str, Stages], ...]] = {
    "wmma": (
        (r"load_tile<tile_m>", ("qk",)),
        (r"q_rows = \{|k_rows = \{", ("qk",)),
        (r"v_rows = \{", ("pv",)),
        (r"// scores are here", ("qk", "softmax")),
        (r"// p is here|a warp made the rows", ("softmax", "pv")),
        (r"before the next tile overwrites|async_copy_wait<\{\{", TILES),
        (r"// o and factor are here", END),
    ),
    "mma": (
        (r"// q is here", ("qk",)),
        (r"the first k is here|k is here|nobody reads", TILES),
        (r"// v is here", ("pv",)),
        (r"\bsums\b|parts|combine|ticket", END),
    ),
    "scalar": (
        (r"const float product|load_share\(row\.q", ("qk",)),
        (r"score\[j\] = |const float p = ", ("softmax",)),
        (r"maximum = |const float shift|const float rescale|row\.sum", WEIGHTS),
        (r"row\.o\[c\] \*= rescale", ("state", "output")),
        (r"v_share|row\.o\[c\] = fmaf", ("pv",)),
        (r"load_tile\(k_tile", ("qk",)),
        (r"load_tile\(v_tile", ("pv",)),
        (r"store_share\(o|lse\[", END),
    ),
}
BODY = re.compile(r"attend|attention_\w+")
DEFINITION = re.compile(r"\b(\w+)\(")
JINJA = re.compile(r"\{\{|\{%|\}\}|%\}")


@dataclass(frozen=True)
class StageMutant:
    """One changed line of one file, and the stages that it serves."""

    preset: str  # template:preset
    file: str  # below the kernel's folder
    operator: str
    line: int  # from 1
    before: str
    after: str
    right: Stages
    text: str  # of the whole file

    @property
    def template(self) -> str:
        return self.preset.partition(":")[0]

    def catalogue(self, folder: Path) -> Catalogue:
        """A catalogue with the mutant; the folder gets a copy of the kernel."""
        target = folder / "attention"
        shutil.copytree(KERNEL_TEMPLATES / "attention", target)
        (target / self.file).write_text(self.text, "utf-8")
        return Catalogue([KERNEL_TEMPLATES, folder])


def stage_mutants(number: int, seed: int) -> Iterator[StageMutant]:
    """Mutants with a known stage for one number, in random order."""
    rng = random.Random(seed * 1_000_003 + number)
    preset = PRESETS[rng.randrange(len(PRESETS))]
    template = preset.partition(":")[0]
    while True:
        file = rng.choice(FILES[template])
        text = (KERNEL_TEMPLATES / "attention" / file).read_text("utf-8")
        mutant = next(mutants(text, rng))
        right = stages_of(template, text.splitlines(), mutant.number)
        if right and not JINJA.search(mutant.before.partition("//")[0]):
            yield StageMutant(
                preset,
                file,
                mutant.operator,
                mutant.number + 1,
                mutant.before,
                mutant.after,
                right,
                mutant.unit,
            )


def stages_of(template: str, lines: list[str], at: int) -> Stages:
    """The stages that a line serves; empty if they are not known."""
    for pattern, stages in LINES[template]:
        if re.search(pattern, lines[at]):
            return stages
    return STAGES[template].get(function_of(lines, at), ())


def function_of(lines: list[str], at: int) -> str:
    """The name of the function whose body holds a line; empty for none."""
    for number in range(at, -1, -1):
        line = lines[number]
        if number < at and line.startswith("}"):
            return ""
        if line[:1].strip() and not line.startswith(("{", "}", "#", "//")):
            match = DEFINITION.search(line.replace("__launch_bounds__(", ""))
            if match is not None:
                return match[1]
    return ""
