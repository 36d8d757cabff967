"""Whether launch.json has the launches that the bundle's kernel.toml and template.toml give.

`greenfast.load` and the host examples launch what launch.json says, and the other checks of
`greenfast verify` launch what the template says. Hashes prove nothing here: whoever changes a file
can write its new hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from greenfast.app.bundle.download import workload_description
from greenfast.app.bundle.launch_data import alignments, launch_numbers, launch_texts
from greenfast.search.devices.facts import Device
from greenfast.search.errors import SpecError
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import resolve

MOST_MULTIPROCESSORS = 65536
ONE = ["1", "1", "1"]  # clusters of a launch that names none


def wrong_launch(
    kernel: KernelSpec, launch: Mapping[str, Any], compiled: Items, device: Device
) -> str:
    """The differences of launch.json from the kernel's files; empty if there are none."""
    count = launch.get("sm_count")
    if type(count) is not int or not 0 < count <= MOST_MULTIPROCESSORS:
        return "launch.json has no sm_count of 1 or more"
    template = kernel.template(str(launch["template"]))
    try:
        parameters = complete_parameters(template, launch["parameters"], compiled)
        ran_on = replace(device, multiprocessors=count)
        values = resolve(template, parameters, compiled, ran_on).values
        expected = {"tensor_maps": None, **launch_texts(template, values)}
        if "entries" in launch:  # of a tuning bundle
            expected |= launch_numbers(kernel, template, values, dict(compiled))
        if "alignment" in launch:  # which bundles of earlier versions lack
            expected["alignment"] = alignments(kernel, template, values, dict(compiled))
        expected["workloads"] = [
            workload_description(
                kernel, template, kernel.workload(each["name"]), launch["parameters"], ran_on
            )
            for each in launch["workloads"]
        ]
    except SpecError as error:
        return f"an expression of template.toml cannot be computed: {error}"
    plain = json.loads(json.dumps(expected))
    stated = {**launch, "launches": _with_clusters(launch.get("launches"))}
    wrong = [name for name, value in plain.items() if not _equal(stated.get(name), value)]
    if not wrong:
        return ""
    return f"launch.json has other {' and '.join(wrong)} than kernel.toml and template.toml give"


def _equal(stated: Any, value: Any) -> bool:
    """Equal as JSON: true is not 1."""
    return json.dumps(stated, sort_keys=True) == json.dumps(value, sort_keys=True)


def _with_clusters(launches: Any) -> Any:
    if not isinstance(launches, list):
        return launches
    return [{"cluster": ONE, **each} if isinstance(each, dict) else each for each in launches]
