"""The command that shows the stage at which a wrong candidate of a search goes wrong."""

from __future__ import annotations

from greenfast.db.rows import SearchRow, TrialDetail
from greenfast.search.diagnose.probes import probe_command
from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.catalogue import Catalogue


def probe_of(catalogue: Catalogue, search: SearchRow, trial: TrialDetail) -> str:
    """The command that locates a candidate's wrong outputs; empty when there is none."""
    gate = trial.gates.get("correctness", {})
    if gate.get("outcome") != "failed" or search.target.startswith("replay:"):
        return ""
    case = next((check["workload"] for check in gate.get("checks", ()) if not check["passed"]), "")
    try:
        return probe_command(
            catalogue.kernel(search.kernel),
            trial.template,
            trial.parameters,
            search.workloads[0],
            search.target,
            case,
        )
    except (GreenfastError, KeyError):
        return ""  # the template has changed since
