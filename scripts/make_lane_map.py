"""Write kernel_templates/include/gf/wmma_lanes.cuh from the description of bits below.

    python scripts/make_lane_map.py

For each bit of an element's row and column, the description names the bit of the lane's number
(l0 ... l4) or of the element's index (e0 ... e2) that it equals.
tests/unit/test_attention_wmma_lanes.py compares the header with it, and both with the hardware's
store.
"""

from __future__ import annotations

from pathlib import Path

HEADER = (
    Path(__file__).resolve().parent.parent
    / "kernel_templates"
    / "include"
    / "gf"
    / "wmma_lanes.cuh"
)
LANES, ELEMENTS = 32, 8
# Of a 16 x 16 float accumulator, lowest bit first.
ROW_BITS = ("l2", "l3", "l4", "e1")
COLUMN_BITS = ("e0", "l0", "l1", "e2")
_WIDTH = {"l": 5, "e": 3}
_NAME = {"l": "lane", "e": "element"}

_TEXT = """\
#pragma once

namespace gf {{

// Made by scripts/make_lane_map.py from a description of bits; change it there.
//
// Where element x[e] of lane l lies in a 16 x 16 float accumulator of wmma. CUDA leaves that open; this is what an
// H200 (sm_90) does and what is published of sm_80. tests/gpu/test_gpu_lane_map.py asks a GPU, by storing it.
// Each lane has elements of {row_count} rows, and {row_lanes} neighbouring lanes share a row.
//
//      e = {head}
{lines}
//! Undefined: a lane beyond {last_lane}, an element beyond {last_element}, and a GPU with another lane map; nothing reports them.
__device__ constexpr int accumulator_row(int lane, int element) {{ return {row}; }}
__device__ constexpr int accumulator_column(int lane, int element) {{ return {column}; }}

// Which of its lane's rows an element is in.
//! Undefined: an element beyond {last_element}.
__device__ constexpr int accumulator_half(int element) {{ return {half}; }}

//! How many neighbouring lanes share a row. Undefined: a GPU with another lane map.
constexpr int accumulator_row_lanes = {row_lanes};

}}  // namespace gf
"""  # noqa: E501


def place(bits: tuple[str, ...], lane: int, element: int) -> int:
    """The row or column that `bits` describe."""
    number = {"l": lane, "e": element}
    return sum((number[bit[0]] >> int(bit[1]) & 1) << position for position, bit in enumerate(bits))


def lane_map() -> list[list[tuple[int, int]]]:
    """[lane][element] -> (row, column)."""
    return [
        [
            (place(ROW_BITS, lane, element), place(COLUMN_BITS, lane, element))
            for element in range(ELEMENTS)
        ]
        for lane in range(LANES)
    ]


def formula(bits: tuple[str, ...]) -> str:
    """C for `place`: runs of neighbouring bits as one quotient each."""
    terms, position = [], 0
    while position < len(bits):
        source, first = bits[position][0], int(bits[position][1])
        count = 1
        while position + count < len(bits) and bits[position + count] == f"{source}{first + count}":
            count += 1
        term = _NAME[source]
        term += f" / {1 << first}" if first else ""
        term += f" % {1 << count}" if first + count < _WIDTH[source] else ""
        term += f" * {1 << position}" if position else ""
        terms.append(term)
        position += count
    return " + ".join(terms)


def header() -> str:
    """The device header's text."""
    sharing = [bit for bit in COLUMN_BITS if bit[0] == "l"]
    assert sharing == [f"l{number}" for number in range(len(sharing))], (
        "gf::warp_sum needs neighbouring lanes"
    )
    assert COLUMN_BITS[0] == "e0", "pairs of elements are stored together"
    rows = tuple(bit for bit in ROW_BITS if bit[0] == "e")
    table = lane_map()
    lines = [
        f"//   l = {lane:2}: "
        + " ".join(f"({row},{column})".ljust(7) for row, column in table[lane]).rstrip()
        for lane in (0, 1, 4, 31)
    ]
    return _TEXT.format(
        row_count=1 << len(rows),
        row_lanes=1 << len(sharing),
        lines="\n".join(lines),
        head=" ".join(f"{element}".ljust(7) for element in range(ELEMENTS)).rstrip(),
        row=formula(ROW_BITS),
        column=formula(COLUMN_BITS),
        half=formula(rows),
        last_lane=LANES - 1,
        last_element=ELEMENTS - 1,
    )


if __name__ == "__main__":
    HEADER.write_text(header(), "utf-8")
