"""The stage of the computation in which a candidate first goes wrong, by all that is known.

Probes show wrong values. Four things they cannot show: a run that ends without results, a race that
their own schedule hides, keys past the end (which no stage's array holds), and sizes that they do
not run. For these the lines of a finding, the tiles, and the buffer of a bad access stand in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from greenfast.search.diagnose.probes import BETWEEN, OUTPUT, ProbedCase, ProbeReport, first_wrong
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.verdict import SafetyFinding

PROBES, SAFETY, ACCESS = "probes", "safety", "access"
DEEPEST_CALL = 6
# `{% if probe == "qk" %}`, or a call of a macro that adds what the probe shows: `{{ probe_qk() }}`.
_PROBE = re.compile(r'(?:\bprobe\s*==\s*"|\{\{-?\s*probe_)(\w+)["(]')
_BRANCH = re.compile(r"\s*\{%[-+]?\s*(if|elif|else|endif)\b")
_DEFINITION = re.compile(r"(\w+)(?:\{\{[^}]*\}\})?\(")
_LAST_TILE = re.compile(r"\btiles? (\d+)\b(?!\.\.)")
_OWN_ARRAY = re.compile(r"\bof an array of type\b|past the end of (?:the thread's own|its) object")
_BUFFER = re.compile(r"(?:of|outside) '(\w+)'")


def first_stage(
    kernel: KernelSpec,
    template: TemplateSpec,
    tiles: Mapping[str, int],
    reports: Sequence[ProbeReport],
    findings: Sequence[SafetyFinding],
    sentence: str,
) -> tuple[str, str, str]:
    """(stage, what shows it, why another stage than the probes' first); empty for none."""
    order = [*(probe.name for probe in kernel.probes), OUTPUT]
    first = first_wrong(reports)
    of_finding, kind = _of_findings(kernel, template, order, findings)
    if first is not None and first.outcome == "wrong" and first.suspect != BETWEEN:
        own = _own_array(findings)
        if own is not None and _is_probed_beside(template, first.probe, own):
            return first.probe, PROBES, ""
        if own is not None and of_finding in order and of_finding != first.probe:
            why = f"an access outside an array spoils what lies beside it, here in {first.probe}"
            return of_finding, SAFETY, why
        if of_finding in order and order.index(of_finding) < order.index(first.probe):
            words = kind.replace("_", " ")
            return of_finding, SAFETY, f"values go wrong in {first.probe}, behind the {words}"
        # A finding at or behind the wrong stage explains it without keys past the end.
        explained = of_finding in order and order.index(of_finding) >= order.index(first.probe)
        before = "" if explained else _before_partial_tile(reports, first, tiles)
        if before:
            why = (
                f"only tiles that are not full are wrong in {first.probe}, and the probe of "
                f"{before} does not see keys past the end"
            )
            return before, PROBES, why
        return first.probe, PROBES, ""
    if of_finding in order:
        return of_finding, SAFETY, ""
    if first is not None and first.outcome == "wrong":
        return first.probe, PROBES, ""
    if order[:-1] and (stage := _of_access(kernel, sentence)):
        return stage, ACCESS, ""
    # Where no stage ran to its end, the first of them is only the first that was tried.
    ended = any(report.outcome in ("right", "wrong") for report in reports)
    return (first.probe, PROBES, "") if first is not None and ended else ("", "", "")


def probe_tiles(template: TemplateSpec, values: Mapping[str, Value]) -> dict[str, int]:
    """The tile sizes that probes of the template have of their own.

    One that depends on a case's dims is no size that errors begin at.
    """
    return {
        f"{name} of {probe.name}": int(size(values))
        for probe in template.probes
        for name, size in probe.values
        if name.startswith("tile") and size.names <= values.keys()
    }


def _own_array(findings: Sequence[SafetyFinding]) -> tuple[str, int] | None:
    """The line of the first finding, where it is an access outside an array of the code's own.

    Such an access reads or spoils whatever lies beside the array, which may serve another stage.
    """
    first = findings[0] if findings else None
    if first is None or first.kind != "out_of_bounds":
        return None
    return first.where if _OWN_ARRAY.search(first.sentence) else None


def _is_probed_beside(template: TemplateSpec, probe: str, place: tuple[str, int]) -> bool:
    """Whether the function that holds the line also shows this probe, or makes its inputs."""
    text, at = template.text.split("\n"), _line_of(template, place)
    if at is None:
        return False
    begin, end, _ = _function(text, at)
    return any(match[1] == probe for line in text[begin:end] if (match := _PROBE.search(line)))


def _of_findings(
    kernel: KernelSpec,
    template: TemplateSpec,
    order: Sequence[str],
    findings: Sequence[SafetyFinding],
) -> tuple[str, str]:
    """(stage, kind) of the first finding whose line is known."""
    for finding in findings:
        for place in (finding.where, finding.other_where):
            if place is None:
                continue
            stage = stage_of_line(template, order, place)
            if stage or (stage := stage_of_twin(kernel, template, order, place)):
                return stage, finding.kind
    return "", ""


def stage_of_line(template: TemplateSpec, order: Sequence[str], place: tuple[str, int]) -> str:
    """The stage to which a line belongs: the first in `order` of the probes that follow it.

    A function without probes belongs where it is called, or to the stage after which its file is
    named if it is called before. `output` behind the last probe; empty for a template without
    probes, or an unknown line.
    """
    text = template.text.split("\n")
    if not any(_PROBE.search(line) for line in text):
        return ""
    at = _line_of(template, place)
    if at is None:
        return ""
    return _stage_at(text, order, at, DEEPEST_CALL, _stage_of_file(order, place[0]))


def stage_of_twin(
    kernel: KernelSpec, template: TemplateSpec, order: Sequence[str], place: tuple[str, int]
) -> str:
    """The stage of a line of a template without probes, by a template of the kernel that has some.

    Its twin is the function of the same name, or that of the function from which it is called; else
    the file of the same name. Empty if there is none.
    """
    text, at = template.text.split("\n"), _line_of(template, place)
    probed = [each for each in kernel.templates if each.probes]
    if template.probes or not probed or at is None:
        return ""
    for _ in range(DEEPEST_CALL):
        _, end, name = _function(text, at)
        for other in probed:
            if name and (twin := _body_of(other, name)) is not None:
                return _stage_at(
                    other.text.split("\n"),
                    order,
                    twin,
                    DEEPEST_CALL,
                    _stage_of_file(order, other.lines[twin].file),
                )
        call = re.compile(rf"\b{re.escape(name)}\b[^;]*\(")
        at = next((n for n in range(end + 1, len(text)) if name and call.search(text[n])), -1)
        if at < 0:
            break
    return next(filter(None, (_stage_of_same_file(each, order, place[0]) for each in probed)), "")


def _body_of(template: TemplateSpec, name: str) -> int | None:
    """A line in the body of the function of this name."""
    text = template.text.split("\n")
    for number, line in enumerate(text):
        match = _DEFINITION.search(line) if line[:1].strip() else None
        if match is not None and match[1] == name and not line.startswith(("//", "#", "{")):
            begin = next((n for n in range(number, len(text)) if text[n].rstrip() == "{"), None)
            return begin + 1 if begin is not None else None
    return None


def _stage_of_same_file(template: TemplateSpec, order: Sequence[str], file: str) -> str:
    """The stage of the last function in the template's file of the same name."""
    stem = file.rpartition("/")[2]
    last = [n for n, line in enumerate(template.lines) if line.file.rpartition("/")[2] == stem]
    text = template.text.split("\n")
    inside = next((n for n in reversed(last) if text[n][:1] == " "), None)
    return stage_of_line(template, order, _place(template, inside)) if inside is not None else ""


def _place(template: TemplateSpec, number: int) -> tuple[str, int]:
    return template.lines[number].file, template.lines[number].number


def _line_of(template: TemplateSpec, place: tuple[str, int]) -> int | None:
    """The line's number in the template's whole text."""
    return next(
        (number for number, line in enumerate(template.lines) if (line.file, line.number) == place),
        None,
    )


def _stage_of_file(order: Sequence[str], file: str) -> str:
    """The probe after which a file is named, as in softmax_shared.cu.j2; empty for none."""
    stem = file.rpartition("/")[2].partition(".")[0]
    return next((probe for probe in order[:-1] if f"{stem}_".startswith(f"{probe}_")), "")


def _stage_at(
    text: Sequence[str], order: Sequence[str], at: int, depth: int, named: str = ""
) -> str:
    _, end, name = _function(text, at)
    following = list(_following(text[at:end]))
    # A probe may declare something before the stage that precedes it has ended.
    if known := [probe for probe in following if probe in order]:
        return min(known, key=order.index)
    called = _stage_of_call(text, order, end, name, depth)
    # What is called before the stage of its file prepares that stage.
    if named and (called == OUTPUT or order.index(called) < order.index(named)):
        return named
    return called


def _following(text: Sequence[str]) -> Iterator[str]:
    """The probes in a text, without those in branches that exclude its first line."""
    depth, is_excluded = 0, False
    for line in text:
        branch = _BRANCH.match(line)
        match branch and branch[1]:
            case "if":
                depth += 1
            case "endif" if depth:
                depth -= 1
            case "endif":
                is_excluded = False
            case "elif" | "else" if not depth:
                is_excluded = True
        if not is_excluded and (probe := _PROBE.search(line)):
            yield probe[1]


def _stage_of_call(
    text: Sequence[str], order: Sequence[str], end: int, name: str, depth: int
) -> str:
    """The stage in which the function that ends at a line is called first."""
    if depth and name:
        call = re.compile(rf"\b{re.escape(name)}\b[^;]*[(<{{]")
        for number, line in enumerate(text):
            if number > end and call.search(line) and not line.lstrip().startswith("//"):
                return _stage_at(text, order, number, depth - 1)
    return OUTPUT


def _function(text: Sequence[str], at: int) -> tuple[int, int, str]:
    """(lines of its braces, name) of the function that holds a line."""
    end = next((n for n in range(at, len(text)) if text[n].startswith("}")), len(text))
    begin = next((n for n in range(at, -1, -1) if text[n].rstrip() == "{"), 0)
    name = ""
    for number in range(begin, max(-1, begin - 16), -1):
        if number < begin and text[number].startswith("}"):
            break
        match = _DEFINITION.search(text[number]) if text[number][:1].strip() else None
        if match is not None and not text[number].startswith(("//", "{%", "#", "{")):
            name = match[1]
            break
    return begin, end, "" if name in ("__launch_bounds__",) else name


def _before_partial_tile(
    reports: Sequence[ProbeReport], first: ProbeReport, tiles: Mapping[str, int]
) -> str:
    """The stage before the first wrong one, where only the last, partly filled tiles are wrong."""
    wrong = [case for case in first.cases if case.wrong]
    if not wrong or not all(_LAST_TILE.search(case.where) for case in wrong):
        return ""
    before = next(
        (a.probe for a, b in pairwise(reports) if b is first and a.outcome == "right"), ""
    )
    for size in set(tiles.values()):
        if size > 1 and all(_is_last_and_partial(case, size) for case in wrong):
            return before
    return ""


def _is_last_and_partial(case: ProbedCase, size: int) -> bool:
    """Whether the one wrong tile of a case is its last, and is not full."""
    tile = _LAST_TILE.search(case.where)
    keys = re.search(r"\bS_kv=(\d+)", case.shape) or re.search(r"\b\w+=(\d+)$", case.shape)
    if tile is None or keys is None:
        return False
    count = int(keys[1])
    return count % size != 0 and int(tile[1]) == (count - 1) // size


def _of_access(kernel: KernelSpec, sentence: str) -> str:
    """The stage that a bad access outside a named buffer belongs to."""
    buffer = _BUFFER.search(sentence)
    if buffer is None:
        return ""
    argument = next((each for each in kernel.arguments if each.name == buffer[1]), None)
    if argument is None:
        return ""
    if argument.kind == "output":
        return OUTPUT
    name = re.compile(rf"\b{re.escape(argument.name)}\b", re.IGNORECASE)
    return next(
        (probe.name for probe in kernel.probes if name.search(f"{probe.doc} {probe.suspect}")), ""
    )
