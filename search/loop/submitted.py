"""A submitted source: CUDA C++ by a person or a program for a kernel that the catalogue knows.

It becomes a template of its kernel with one point, so that it takes every step of a candidate. The
template is among the files that its search freezes: it is rendered, resumed, confirmed, bundled and
verified from them like any other. No text of the author becomes a name of a file.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass, fields, replace
from functools import cached_property

from greenfast.search.digest import digest
from greenfast.search.errors import UsageError
from greenfast.search.json_values import json_text
from greenfast.search.kernels.frozen import KernelFiles
from greenfast.search.kernels.submitted_name import NAME_DIGITS, PREFIX
from greenfast.search.kernels.template_text import ENDS_RAW_TEXT
from greenfast.search.loop.plan import NO_BASELINE, SearchPlan
from greenfast.search.loop.submitted_launch import launch_toml
from greenfast.search.space.candidate import Candidate, Origin, OriginKind

PARAMETER = "submission"  # the template's only parameter; its only value is the digest
_AFTER_LAUNCH = f"[parameters.{PARAMETER}]"
RECORD = "submission.json"
SOURCE = "source.cu.j2"
LARGEST_SOURCE_BYTES = 500_000
LONGEST_LINE = 20_000  # characters
LONGEST_TEXT = 200  # of an author, a model or a parent
LONGEST_HYPOTHESIS = 2_000
_ENTRY = re.compile(r"[A-Za-z_]\w{0,200}\Z", re.ASCII)
_LINE_MARKER = re.compile(r"^[ \t]*(?:#|%:|\?\?=)[ \t]*(?:line\b|\d)", re.MULTILINE)
_PRIVATE_CHARACTERS = ("Co", "Cn")  # categories; rendering marks lines by some of them


@dataclass(frozen=True)
class Submission:
    """A source with its launches and its author's statements."""

    kernel: str
    source: str
    launch: str  # TOML: the keys of a template's file that describe launches
    entry: str = ""  # of launches that name none
    author: str = ""
    model: str = ""
    parent: str = ""  # digest of the source that it was made from
    hypothesis: str = ""

    @cached_property
    def text(self) -> str:
        """The source with LF line ends; UsageError if it is not a text of CUDA C++."""
        return _checked_source(self.source)

    @cached_property
    def launch_text(self) -> str:
        """The launches as the template's file has them, without a name."""
        if self.entry and not _ENTRY.match(self.entry):
            raise UsageError(
                "the entry is not a valid function name",
                code="bad_entry",
                mend="for example my_kernel",
            )
        return launch_toml(self.launch, self.entry)

    @cached_property
    def digest(self) -> str:
        """Identifies the source and its launches; who wrote it does not matter."""
        return digest({"source": self.text, "launch": self.launch_text})

    @property
    def template(self) -> str:
        return PREFIX + self.digest[:NAME_DIGITS]

    @property
    def candidate(self) -> Candidate:
        parents = (self.parent,) if self.parent else ()
        return Candidate(
            self.kernel,
            self.template,
            ((PARAMETER, self.digest),),
            Origin(OriginKind.SUBMITTED, parents),
        )

    @property
    def record(self) -> dict[str, str]:
        """The author's statements about it, as stored."""
        return {
            "author": self.author,
            "model": self.model,
            "parent": self.parent,
            "hypothesis": self.hypothesis,
        }

    def checked(self) -> Submission:
        """UsageError for a text or a field that is not stored; SpecError for its launches."""
        limits = {each.name: LONGEST_TEXT for each in fields(self) if each.name in self.record}
        limits["hypothesis"] = LONGEST_HYPOTHESIS
        for name, longest in limits.items():
            _check_field(name, self.record[name], longest)
        _ = self.digest
        return self


def files_with(files: KernelFiles, folder: str, submission: Submission) -> KernelFiles:
    """The kernel's files and those of the submitted template; `folder` is the kernel's."""
    name = submission.template
    heading = (
        f'name = "{name}"\nkernel = "{folder}"\nidea = "A submitted source."\n'
        f"{submission.launch_text}\n{_AFTER_LAUNCH}\n"
        f'type = "choice"\nvalues = ["{submission.digest}"]\ndefault = "{submission.digest}"\n'
    )
    body = f'{{% raw %}}\n{{% include "{name}/{SOURCE}" %}}\n{{% endraw %}}\n'
    own = (
        (f"{folder}/{name}.toml", heading),
        (f"{folder}/{name}.cu.j2", body),
        (f"{folder}/{name}/{SOURCE}", submission.text),
        (f"{folder}/{name}/{RECORD}", json_text(submission.record)),
    )
    return KernelFiles(tuple(sorted((*files.files, *own))))


def launch_of(heading: str) -> str:
    """The launch file in the template's file of a submission."""
    return heading.split("\n", 3)[3].partition(f"\n{_AFTER_LAUNCH}")[0]


def submitted_files(files: KernelFiles, template: str) -> dict[str, str]:
    """The files of one submitted template, by path."""
    return {
        path: text
        for path, text in files.files
        if path.partition("/")[2].startswith((f"{template}.", f"{template}/"))
    }


def record_in(files: KernelFiles, template: str) -> dict[str, str]:
    """The author's statements about a submission; empty if none are stored."""
    texts = submitted_files(files, template)
    text = next((text for path, text in texts.items() if path.endswith(f"/{RECORD}")), "{}")
    return {str(name): str(value) for name, value in json.loads(text).items()}


def plan_of_submission(plan: SearchPlan, submission: Submission) -> SearchPlan:
    """The plan that judges the submission beside its baseline."""
    trials = 1 if plan.baseline == NO_BASELINE else 2
    return replace(plan, trials=trials, submitted=submission.candidate, modelled=0)


def with_template(files: KernelFiles, other: KernelFiles, template: str) -> KernelFiles:
    """`files` and the submitted template among `other`, for a baseline that was submitted."""
    return KernelFiles(
        tuple(sorted({**dict(files.files), **submitted_files(other, template)}.items()))
    )


def retold(message: str, folder: str, submission: Submission) -> str:
    """A message about the template's files, in words of the author's files."""
    name = submission.template
    for written, meant in (
        (f"{folder}/{name}.toml", "the launch file"),
        (f"{folder}/{name}/{SOURCE}", "the source"),
        (f"template {name}", "the submission"),
        (name, "the submission"),
    ):
        message = message.replace(written, meant)
    return message


def _check_field(name: str, value: str, longest: int) -> None:
    if len(value) > longest:
        raise UsageError(
            f"{name} has {len(value):,} characters", code="too_long", mend=f"at most {longest:,}"
        )
    # PostgreSQL stores no NUL.
    if any(character == "\0" or unicodedata.category(character) == "Cs" for character in value):
        raise UsageError(f"{name} is not valid text", code="bad_text")


def _checked_source(text: str) -> str:
    if len(text.encode("utf-8", "surrogatepass")) > LARGEST_SOURCE_BYTES:
        raise UsageError(
            "the source is too large",
            code="source_too_large",
            mend=f"at most {LARGEST_SOURCE_BYTES:,} bytes",
        )
    text = text.replace("\r\n", "\n")
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LONGEST_LINE:
            raise _bad_source(f"line {number} has more than {LONGEST_LINE:,} characters")
        if (bad := next(filter(_is_refused, line), None)) is not None:
            raise _bad_source(f"line {number} holds the character U+{ord(bad):04X}")
    for pattern, what in (
        (_LINE_MARKER, "a line marker, which would misname lines in reports"),
        (ENDS_RAW_TEXT, "the text '{% include' or '{% endraw'"),
    ):
        if match := pattern.search(text):
            number = text.count("\n", 0, match.end()) + 1
            raise _bad_source(f"line {number} holds {what}")
    if not text.strip():
        raise _bad_source("it is empty")
    return text if text.endswith("\n") else text + "\n"


def _bad_source(reason: str) -> UsageError:
    return UsageError(
        f"the source cannot be judged: {reason}",
        code="bad_source",
        mend="a source is UTF-8 text of CUDA C++",
    )


def _is_refused(character: str) -> bool:
    """Characters that end or reorder lines for some readers, and those that are no text."""
    if character == "\t" or " " <= character <= "~":
        return False
    category = unicodedata.category(character)
    return category in ("Cc", "Cf", "Cs", "Zl", "Zp", *_PRIVATE_CHARACTERS)
