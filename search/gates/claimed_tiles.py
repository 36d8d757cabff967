"""More cases for a submitted source, whose author names its tiles.

Check sizes follow from tiles. A source whose author names a tile of 1 is checked on one or two
elements, and with a tile of 1,000,000 on nothing between one and a million. The tiles of the
kernel's baseline can be trusted.
"""

from __future__ import annotations

from dataclasses import replace

from greenfast.search.gates.base import Subject
from greenfast.search.kernels.submitted_name import is_submitted
from greenfast.search.oracle.cases import Case, derived_cases
from greenfast.search.oracle.drawn import drawn_cases
from greenfast.search.oracle.own_multiples import multiple_cases, tile_numbers
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve


def cases_of_submitted(subject: Subject) -> list[Case]:
    """Cases of sizes that are drawn as for the baseline, and of whole steps of the source.

    Empty if the tiles are trusted.
    """
    secret = subject.conditions.sizes_secret
    if secret is None or not is_submitted(subject.template.name):
        return []
    kernel, compiled = subject.kernel, subject.compiled
    template, preset = kernel.preset(kernel.baseline)
    parameters = preset_candidate(template, preset.name, compiled).parameters
    tiles = resolve(template, parameters, compiled, subject.target.device).tiles
    derived = derived_cases(kernel, compiled, tiles, subject.seed)
    drawn = drawn_cases(kernel, compiled, derived, secret, subject.seed)
    numbers = [subject.point.threads_per_block, *tile_numbers(subject.source.text)]
    return [
        *(replace(case, name=f"baseline_{case.name}") for case in drawn),
        *multiple_cases(kernel, compiled, derived, numbers),
    ]
