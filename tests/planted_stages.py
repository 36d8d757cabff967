"""Faults planted in stages of attention's templates, and what a probe says of each."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from contexts import workload_context

from greenfast.search.diagnose.probes import ProbeReport, probe_candidate
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.template_text import read_template_text
from greenfast.search.space.candidate import preset_candidate


@dataclass(frozen=True)
class Planted:
    """A change of a template's text, the first wrong stage, and the place that the report names."""

    old: str
    new: str
    stage: str
    says: str
    workload: str = "mission"
    preset: str = "vec"
    template: str = "scalar"


PLANTED = {
    "K read at another offset from the second tile on": Planted(
        "load_tile(k_tile, k, k_row_stride, first_key, S_kv);",
        "load_tile(k_tile, k, k_row_stride, first_key - (first_key ? 8 : 0), S_kv);",
        "qk",
        "key tiles from 1 on",
    ),
    "the mask is one key too wide": Planted(
        "score[j] = first_key + j < row_end ?",
        "score[j] = first_key + j <= row_end ?",
        "softmax",
        "key = row + 1",
        "mission_causal",
    ),
    "P made of another key's score": Planted(
        "const float p = exponential(fmaf(score[j],",
        "const float p = exponential(fmaf(score[j ^ 1],",
        "softmax",
        "",
    ),
    "the sum counts some rows' lanes only": Planted(
        "row.sum += p;",
        "row.sum += threadIdx.x % 32 < 16 ? p : 0.0f;",
        "state",
        "l, rows 2..3 of each 4",
    ),
    "the sum is not rescaled": Planted("row.sum *= rescale;", "", "state", "l"),
    "the maximum misses a key": Planted(
        "maximum = fmaxf(maximum, score[j] * scale);",
        "if (j) maximum = fmaxf(maximum, score[j] * scale);",
        "state",
        "m",
    ),
    "V's rows swapped": Planted(
        "v.first + min(first_key + j, last_key)",
        "v.first + min(first_key + (j ^ 1), last_key)",
        "pv",
        "",
    ),
    "the first V tile stays": Planted(
        "load_tile(v_tile, v, v_row_stride, first_key, S_kv);",
        "load_tile(v_tile, v, v_row_stride, 0, S_kv);",
        "pv",
        "",
    ),
    "O is not divided": Planted(
        "row.sum > 0.0f ? 1.0f / row.sum : 0.0f", "1.0f", "single_tile", ""
    ),
    "O is not rescaled": Planted(
        "row.o[c] *= rescale;", "row.o[c] *= 1.0f;", "output", "o", preset="minimal"
    ),
    "the sum is rescaled in half of the rows of a fragment": Planted(
        "softmax.sum[i][half] *= shrink;",
        "softmax.sum[i][half] *= half ? 1.0f : shrink;",
        "state",
        "l, rows 8..15 of each 16, tiles from 1 on",
        preset="fa2",
        template="mma",
    ),
    "the maximum of two lanes of the four that share a row": Planted(
        "gf::warp_max<4>(largest)",
        "gf::warp_max<2>(largest)",
        "state",
        "m",
        preset="fa2",
        template="mma",
    ),
    # The bug of the original prototype: softmax on the fragment with a guessed lane map.
    "a fused softmax takes an element for another row's": Planted(
        "gf::accumulator_half(e);\n                const float2",
        "e / 4;\n                const float2",
        "softmax",
        "rows 0..7 of each 16 at all keys, rows 8..15 of each 16 at keys 0..7 of each 16",
        "mission",
        "stage3b",
        "wmma",
    ),
}


def changed(
    folder: Path, old: str, new: str, file: str = "scalar.cu.j2", baseline: str = "vec"
) -> Catalogue:
    """attention with the template of `file` only, its parts put in, in which `old` is `new`."""
    copy, template = folder / "templates" / "attention", file.partition(".")[0]
    copy.mkdir(parents=True)
    for name in ("kernel.toml", "reference.py", f"{template}.toml"):
        shutil.copy(REPOSITORY_TEMPLATES / "attention" / name, copy / name)
    whole = read_template_text(REPOSITORY_TEMPLATES / "attention", template)
    (copy / f"{template}.cu.j2").write_text(whole.text)
    kernel = re.sub(
        r'^baseline = ".*"',
        f'baseline = "{template}:{baseline}"',
        (copy / "kernel.toml").read_text(),
        flags=re.M,
    )
    (copy / "kernel.toml").write_text(kernel)
    text = (copy / file).read_text()
    assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {file}"
    (copy / file).write_text(text.replace(old, new))
    return Catalogue([folder / "templates"])


def probed(
    catalogue: Catalogue,
    target,
    toolchain,
    template="scalar",
    preset="vec",
    workload="mission",
    cases=(),
    **changes,
) -> tuple[ProbeReport, ...]:
    context = workload_context(catalogue, "attention", workload, target, toolchain)
    return probe_candidate(
        context,
        preset_candidate(context.kernel.template(template), preset, context.compiled, changes),
        cases,
    )


def probed_fault(fault: Planted, folder: Path, target, toolchain) -> tuple[ProbeReport, ...]:
    catalogue = changed(folder, fault.old, fault.new, f"{fault.template}.cu.j2", fault.preset)
    changes = {"tile_n": 16} if fault.preset == "vec" else {}
    return probed(
        catalogue, target, toolchain, fault.template, fault.preset, fault.workload, **changes
    )
