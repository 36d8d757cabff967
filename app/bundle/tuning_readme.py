"""README.txt of a tuning bundle: its table in words, and how to call its kernels."""

from __future__ import annotations

from collections.abc import Iterable

from greenfast.app.bundle.download import STATIC_FILES
from greenfast.db.rows import TuningRow
from greenfast.runtime.fallbacks import FALLBACK_WORDS, FALLBACKS, use_words
from greenfast.search.dispatch.table import DispatchGroup, DispatchTable
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.verdict import TimeKind

_WARNING = """
The times are not measured: within a factor of 2 they cannot be distinguished. Tune again on the
GPU before you rely on the table.
"""
_CPP = """
Call it from C++17 with cuda.h and libcuda: cpp/greenfast_{name}.h is all that a program needs.
"""


def tuning_readme(
    tuning: TuningRow, table: DispatchTable, kernel: KernelSpec, programs: Iterable[str]
) -> bytes:
    """The text; `programs` are the names of the bundle's files in cpp/."""
    tensors = [argument for argument in kernel.arguments if argument.kind in ("input", "output")]
    inputs = [
        tensor.name for tensor in tensors if tensor.kind == "input" and tensor.read_when is None
    ]
    library = f"{FALLBACK_WORDS}, else " if kernel.name in FALLBACKS else ""
    facts = {
        "@KERNEL@": kernel.name,
        "@TITLE@": kernel.title,
        "@TUNING@": tuning.id,
        "@TARGET@": tuning.target,
        "@KIND@": table.time_kind,
        "@TABLE@": "\n".join(line for group in table.groups for line in _lines(group, library)),
        "@WARNING@": _WARNING if table.time_kind == TimeKind.MODELLED else "",
        "@NAME@": kernel.name,
        "@INPUTS@": ", ".join(inputs),
        "@OUTPUT@": next((tensor.name for tensor in tensors if tensor.kind == "output"), "result"),
        "@CPP@": _CPP.format(name=kernel.name) if tuple(programs) else "",
    }
    text = (STATIC_FILES / "TUNING.txt").read_text("utf-8")
    for mark, words in facts.items():
        text = text.replace(mark, words)
    return text.encode()


def _lines(group: DispatchGroup, library: str) -> list[str]:
    """The rules of a group, and the workloads that each kernel serves."""
    values = ", ".join(f"{name}={value}" for name, value in group.compiled)
    lines = [f"  {values}" if values else "  all types"]
    for rule in group.rules:
        lines.append(f"    {group.sizes_of(rule)}: {use_words(rule.use)}")
    lines.append(f"    outside of the tuned sizes: {library}{group.outside}")
    for row in group.workloads:
        lines.append(
            f"      {row.name}: {use_words(row.use)}, {dict(row.times_us)[row.use]:.2f} us"
        )
    return lines
