"""Compare the texts that two folders of templates give for the same candidates.

BEFORE and AFTER are checkouts, or folders of templates. Each preset is rendered in all groups of
options, and then --count random points of each template, with and without probes. The exit status
is 1 when any text differs.

python -m bench.correctness.same_sources BEFORE AFTER [--count N]
"""

from __future__ import annotations

import argparse
import difflib
import itertools
import sys
import time
from pathlib import Path

from bench.command_line import script_parser
from bench.correctness.template_pairs import (
    Pair,
    catalogue_of,
    preset_points,
    random_points,
    rendered_pair,
    select,
    templates_of,
)
from greenfast.search.devices.facts import device

DEVICE = "h200"
SHOWN_LINES = 40  # of the difference of a pair
SHOWN_PAIRS = 3


def main() -> None:
    options = _options()
    before, after = (catalogue_of(templates_of(path)) for path in (options.before, options.after))
    names = options.template or [
        f"{kernel.name}/{template.name}"
        for kernel in map(before.kernel, before.names())
        for template in kernel.templates
    ]
    gpu, differ = device(DEVICE), 0
    for kernel, template in select(names, before):
        begin, count, different = time.monotonic(), 0, 0
        for point in itertools.chain(
            () if options.no_presets else preset_points(kernel, template, gpu),
            random_points(kernel, template, gpu, options.seed, options.count),
        ):
            pair = rendered_pair(before, after, point)
            count += 1
            if not pair.is_same_text:
                different += 1
                if different <= SHOWN_PAIRS:
                    print(difference(pair))
        seconds = time.monotonic() - begin
        print(f"{kernel.name}/{template.name}: {count} texts, {different} differ, {seconds:.0f} s")
        sys.stdout.flush()
        differ += different
    raise SystemExit(1 if differ else 0)


def difference(pair: Pair) -> str:
    """The first lines in which the texts of a pair differ."""
    before, after = pair.before.text.split("\n"), pair.after.text.split("\n")
    lines = difflib.unified_diff(before, after, "before", "after", lineterm="", n=2)
    return "\n".join((pair.point.name, *itertools.islice(lines, SHOWN_LINES)))


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--template", action="append", metavar="KERNEL/NAME", help="only this one")
    parser.add_argument("--count", type=int, default=2000, help="random points of each template")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-presets", action="store_true", help="random points only")
    return parser.parse_args()


if __name__ == "__main__":
    main()
