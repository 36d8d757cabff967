"""Replace the digests of sources in recordings and results after a change of the templates' texts.

COMPARED.json is the result of same_machine_code with --recordings. A digest is replaced only where
that comparison shows the same machine code, made by the compiler that made the recorded cubins. All
recorded candidates of the changed templates must be among them, or nothing is written. Results in
bench/results/ may hold other candidates: their digests stay as they are, and are counted.

python -m bench.correctness.renew_digests COMPARED.json [--write]
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.command_line import script_parser
from bench.correctness.same_machine_code import SAME
from bench.results import COMPRESSED, PLAIN, RESULTS, ROOT

RECORDINGS = ROOT / "recordings"
SUFFIX = ".recording.jsonl.gz"
TEMPLATE, SOURCE = 1, 3  # fields of a recording's row
COMPILER = "nvidia-cuda-nvrtc"
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


class NotProved(Exception):
    """A digest cannot be renewed: the comparison lacks its candidate, or shows a difference."""


@dataclass(frozen=True)
class Proof:
    """What a comparison shows: the new digest of each source whose machine code is the same."""

    renewed: Mapping[str, str]  # old digest -> new digest
    templates: frozenset[str]  # kernel/template, whose texts changed
    compiler: str

    @classmethod
    def of(cls, compared: Mapping[str, Any]) -> Proof:
        different = [row["name"] for row in compared["rows"] if row["verdict"] not in SAME]
        if different:
            raise NotProved(f"{len(different)} candidates differ, the first is {different[0]}")
        return cls(
            {row["before"]: row["after"] for row in compared["rows"]},
            frozenset(compared["templates"]),
            compared["toolchain"][COMPILER],
        )


def renewed_recording(text: str, proof: Proof) -> str:
    """The text of a recording with renewed digests. NotProved when one of them is not known.

    The heading stays: its digest tells with which text the recording was made.
    """
    first, *rows, last = text.removesuffix("\n").split("\n")
    heading = json.loads(first)
    kernel = heading["kernel"]
    recorded_with = dict(map(tuple, heading["environment"])).get(COMPILER)
    lines = [_row(kernel, line, proof) for line in rows]
    if lines != rows and recorded_with != proof.compiler:
        raise NotProved(f"it was compiled by {recorded_with}, not by {proof.compiler}")
    return "\n".join((first, *lines, last)) + "\n"


def _row(kernel: str, line: str, proof: Proof) -> str:
    row = json.loads(line)
    old = row[SOURCE]
    if f"{kernel}/{row[TEMPLATE]}" not in proof.templates or old in proof.renewed.values():
        return line
    if old not in proof.renewed:
        raise NotProved(f"candidate {row[0]} with the source {old[:12]} was not compared")
    return line.replace(old, proof.renewed[old])


def renewed_text(text: str, proof: Proof) -> tuple[str, int]:
    """A result's text with renewed digests, and how many were replaced."""
    replaced = sum(found in proof.renewed for found in DIGEST.findall(text))
    return DIGEST.sub(lambda match: proof.renewed.get(match[0], match[0]), text), replaced


def main() -> None:
    options = _options()
    proof = Proof.of(json.loads(options.compared.read_text()))
    changes: dict[Path, bytes] = {}
    for path in sorted(options.recordings.glob(f"*{SUFFIX}")):
        text = gzip.decompress(path.read_bytes()).decode()
        try:
            after = renewed_recording(text, proof)
        except NotProved as error:
            raise SystemExit(f"{path.name}: {error}; nothing was written") from error
        print(f"{path.name}: {'renewed' if after != text else 'unchanged'}")
        if after != text:
            changes[path] = _packed(after)
    for path in sorted(options.results.rglob("*")):
        if path.name.endswith((PLAIN, COMPRESSED)):
            is_packed = path.name.endswith(COMPRESSED)
            data = gzip.decompress(path.read_bytes()) if is_packed else path.read_bytes()
            after, count = renewed_text(data.decode(), proof)
            if count:
                print(f"{path.relative_to(options.results)}: {count} digests renewed")
                changes[path] = _packed(after) if is_packed else after.encode()
    if not options.write:
        print(f"{len(changes)} files would change; add --write")
        return
    for path, contents in changes.items():
        path.write_bytes(contents)
    print(f"{len(changes)} files written")


def _packed(text: str) -> bytes:
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("compared", type=Path, metavar="COMPARED.json")
    parser.add_argument("--recordings", type=Path, default=RECORDINGS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--write", action="store_true", help="write the files, not only list them")
    return parser.parse_args()


if __name__ == "__main__":
    main()
