"""An entry of the album as `greenfast album` judges it, rendered only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.session import Session
from greenfast.search.diagnose.album import ALBUM_SECRET, Entry, catalogue_of
from greenfast.search.gates import Subject
from greenfast.search.loop.evaluate import prepare
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
    preset_candidate,
)
from greenfast.search.verdict import Rejected


def album_subject(session: Session, entry: Entry, folder: Path) -> Subject | Rejected:
    """The entry's candidate without a cubin; its catalogue's files come into `folder`."""
    kernel = catalogue_of(entry, folder).kernel(entry.kernel)
    context = replace(
        session.context(kernel, kernel.workload(entry.workload)), sizes_secret=ALBUM_SECRET
    )
    template = kernel.template(entry.template)
    if entry.kind == "patch":
        candidate = preset_candidate(template, entry.preset, context.compiled, entry.parameters)
    else:
        values = complete_parameters(template, entry.parameters, context.compiled)
        candidate = Candidate(kernel.name, template.name, values, Origin(OriginKind.SEEDED))
    return prepare(candidate, context, with_cubin=False)
