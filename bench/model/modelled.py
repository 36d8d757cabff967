"""Modelled times of stored candidates."""

from __future__ import annotations

from collections.abc import Iterator

from bench.results import Row
from bench.session import open_session, workload_problem
from greenfast.search.cores import usable_cores
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.evaluate import prepare
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.reference import case_data
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.verdict import Rejected, Timing

WORKLOAD = "mission"
DEADLINE_S = 300.0  # of an emulated run: a few blocks of the longest workloads take minutes


def sampled_candidate(kernel: str, row: Row) -> Candidate:
    """A stored row's candidate."""
    parameters = tuple(row["parameters"].items())
    return Candidate(kernel, row["template"], parameters, Origin(OriginKind.SAMPLED))


def modelled(rows: list[Row], workload: str = WORKLOAD) -> Iterator[Timing]:
    """The modelled time of each row's candidate; SystemExit where its source has changed."""
    with open_session(
        "emulator:h200",
        prefix="model",
        catalogue=Catalogue.from_environment(),
        workers=usable_cores(),
        compilers=1,
        run_deadline_s=DEADLINE_S,
    ) as session:
        kernel = session.catalogue.kernel("attention")
        context = session.context(kernel, kernel.workload(workload))
        reference = case_data(kernel, workload_case(context.workloads[0], 0))
        for row in rows:
            candidate = sampled_candidate(kernel.name, row)
            subject = prepare(candidate, context)
            if isinstance(subject, Rejected):
                raise SystemExit(f"{row['template']} {row['parameters']}: {subject.sentence}")
            if not subject.source.digest.startswith(row["source"]):
                raise SystemExit(
                    f"the source of {row['template']} {row['parameters']} has changed: "
                    "measure it again"
                )
            laid_out = workload_problem(context, candidate, reference)
            yield session.target.measure(subject.program, subject.machine_code, [laid_out])[0]
