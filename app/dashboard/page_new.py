"""`/new`: the form that starts a search, made from the kernel's own description."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from greenfast.app.dashboard.pages import PageRoute, render, services_of
from greenfast.app.views.listings import list_kernels, list_strategies, list_targets
from greenfast.app.views.problems import status_of
from greenfast.app.wiring import Services
from greenfast.search.errors import LONGEST_NAME, GreenfastError, Refusals, UsageError
from greenfast.search.gates import GateLimits
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Workload, WorkloadValues
from greenfast.search.loop.plan import (
    CHAMPION,
    DEFAULT_TARGET,
    NO_BASELINE,
    SearchRequest,
    default_workloads,
)
from greenfast.search.loop.settings import DEFAULT_TRIALS, MODES
from greenfast.search.strategies import DEFAULT_STRATEGY
from greenfast.search.strategies.objectives import OBJECTIVES, TIME

Number = TypeVar("Number", int, float)

NO_LIMIT = "none"
MODE_WORDS = {
    "auto": "by the workload's size",
    "hot": "data in L2",
    "cold": "data in memory",
}
LIMITS = tuple(limit.name for limit in fields(GateLimits))
ALSO = {
    name: name.replace("_", " ") for name in OBJECTIVES if name != TIME
}  # objectives beside the time, by the form's values
ONE_LINE = (
    "name",
    "target",
    "strategy",
    "mode",
    "trials",
    "seconds",
    "gpu_seconds",
    "no_gain",
    "bound_percent",
    "seed",
    "baseline",
    "min_gain",
    "hypothesis",
    "expected_gain",
    "cost",
    *LIMITS,
)
LISTS = ("workloads", "templates", "objectives")
# The field of the form that an error is shown at, if it is not the field of the request.
FIELD_OF = {
    "strategy_cannot": "objectives",
    "unknown_strategy": "strategy",
    "unknown_mode": "mode",
    **dict.fromkeys(("unknown_workload", "mixed_workloads", "repeated_workload"), "workloads"),
    **dict.fromkeys(("bad_workload", "workload_too_large"), "own"),
    **dict.fromkeys(("unknown_template", "unsupported_workload", "empty_space"), "templates"),
    **dict.fromkeys(("unknown_target", "no_gpu"), "target"),
    **dict.fromkeys(("bad_preset", "unknown_preset", "no_champion"), "baseline"),
}

# The form's field `shape`: which workloads it asks for, and the prefix of the fields of one's own.
NAMED, OWN = "named", "own"
OWN_PREFIX = "own."

router = APIRouter(route_class=PageRoute)


@router.get("/new")
def new_page(request: Request, kernel: str = "", workload: str = "") -> Response:
    services = services_of(request)
    spec = services.catalogue.kernel(kernel or _first_that_loads(services.catalogue))
    given = defaults(spec)
    if workload:
        _preselect(given, spec, spec.workload(workload))
    return form_page(services, spec, given, None)


def _first_that_loads(catalogue: Catalogue) -> str:
    return next((each.name for each in catalogue.kernels() if isinstance(each, KernelSpec)), "")


def _preselect(given: dict[str, Any], kernel: KernelSpec, workload: Workload) -> None:
    """Select the workload in the form's values: by its name, or as the user's own."""
    if workload in kernel.workloads:
        given["workloads"] = [workload.name]
        return
    given["shape"] = OWN
    given["own"] = {name: str(value) for name, value in (*workload.dims, *workload.options)}


@router.post("/new")
async def submit(request: Request) -> Response:
    """Start the search and go to its page, or show the filled-in form again with the error."""
    services = services_of(request)
    form = await request.form(max_files=0, max_fields=200)
    return await run_in_threadpool(_submit, services, form)


def _submit(services: Services, form: FormData) -> Response:
    """In a thread, since the database may block."""
    kernel = services.catalogue.kernel(str(form.get("kernel", "")))
    try:
        wrong = Refusals()
        request = search_request(kernel, form, wrong)
        if wrong.errors:  # the fields that can be read are checked, too
            services.check(request, wrong, services.catalogue)
        wrong.raise_all()
        row = services.submit(request)
    except GreenfastError as error:
        return form_page(services, kernel, typed(form), error)
    return RedirectResponse(f"/searches/{row.id}", 303)


def form_page(
    services: Services, kernel: KernelSpec, given: dict[str, Any], error: GreenfastError | None
) -> Response:
    """The form with the values `given`, and each error at its field."""
    kernels, broken = list_kernels(services.catalogue)
    presets = [
        f"{template.name}:{preset.name}"
        for template in kernel.templates
        for preset in template.presets
    ]
    return render(
        "new.html",
        {
            "kernels": kernels,
            "broken": broken,
            "kernel": kernel,
            "given": given,
            "error": error,
            "wrong": errors_by_field(error),
            "targets": [each for each in list_targets() if each.kernel in (None, kernel.name)],
            "strategies": list_strategies(),
            "limits": LIMITS,
            "also": ALSO,
            "baselines": ["", CHAMPION, *presets, NO_BASELINE],
            "modes": [(mode, MODE_WORDS[mode]) for mode in MODES],
        },
        status_of(error) if error else 200,
    )


def errors_by_field(error: GreenfastError | None) -> dict[str, list[GreenfastError]]:
    """The errors to show at each field of the form; one about no field is in the box above it."""
    fields: dict[str, list[GreenfastError]] = {}
    for each in (error, *error.also) if error else ():
        fields.setdefault(FIELD_OF.get(each.code, each.field), []).append(each)
    return fields


def defaults(kernel: KernelSpec) -> dict[str, Any]:
    """The values of an untouched form."""
    limits = {
        field.name: "" if field.default is None else str(field.default)
        for field in fields(GateLimits)
    }
    return {
        "name": "",
        "shape": NAMED,
        "workloads": list(default_workloads(kernel)),
        "own": _usual_values(kernel),
        "templates": [template.name for template in kernel.templates],
        "target": DEFAULT_TARGET,
        "strategy": DEFAULT_STRATEGY,
        "mode": MODES[0],
        "trials": str(DEFAULT_TRIALS),
        "seconds": "",
        "gpu_seconds": "",
        "no_gain": "",
        "bound_percent": "",
        "seed": "",
        "baseline": "",
        "min_gain": "0.01",
        "hypothesis": "",
        "expected_gain": "",
        "cost": "",
        "objectives": [],
        **limits,
    }


def _usual_values(kernel: KernelSpec) -> dict[str, str]:
    """The default workload's values for dims that have a list of them, since a list has no gap."""
    usual = dict(kernel.workload(default_workloads(kernel)[0]).dims)
    return {dim.name: str(usual[dim.name]) for dim in kernel.dims if dim.values}


def typed(form: FormData) -> dict[str, Any]:
    """The filled-in values, as they were typed."""
    return {
        **{name: str(form.get(name, "")) for name in ONE_LINE},
        "shape": str(form.get("shape", NAMED)),
        **{name: _list(form, name) for name in LISTS},
        "own": {
            name.removeprefix(OWN_PREFIX): str(value)
            for name, value in form.items()
            if name.startswith(OWN_PREFIX)
        },
    }


def search_request(kernel: KernelSpec, form: FormData, wrong: Refusals) -> SearchRequest:
    """The form as a request. A field that cannot be read is added to `wrong`, and left out."""
    _refuse_unknown(kernel, form)
    given = typed(form)
    _require_choices(given, wrong)
    named = given["shape"] != OWN
    workloads: tuple[str | WorkloadValues, ...] = tuple(given["workloads"])
    if not named:
        with wrong.at("workloads"):
            workloads = (_own(kernel, given["own"]),)
    limits = {name: _read(_limit, name, given, wrong) for name in LIMITS}
    chosen = tuple(given["templates"])
    return SearchRequest(
        kernel=kernel.name,
        name=given["name"].strip() or None,
        workloads=workloads,
        templates=None if len(given["templates"]) == len(kernel.templates) else chosen,
        target=given["target"].strip() or None,
        strategy=given["strategy"] or None,
        trials=_read(_whole, "trials", given, wrong),
        seconds=_read(_number, "seconds", given, wrong),
        gpu_seconds=_read(_number, "gpu_seconds", given, wrong),
        seed=_read(_whole, "seed", given, wrong),
        baseline=given["baseline"] or None,
        min_gain=_read(_number, "min_gain", given, wrong),
        mode=given["mode"] or None,
        gates={"ptxas": limits},
        no_gain=_read(_whole, "no_gain", given, wrong),
        bound_percent=_read(_number, "bound_percent", given, wrong),
        objectives=(TIME, *given["objectives"]) if given["objectives"] else None,
        hypothesis=given["hypothesis"].strip(),
        expected_gain=_read(_number, "expected_gain", given, wrong),
        cost=given["cost"].strip(),
    )


def _require_choices(given: dict[str, Any], wrong: Refusals) -> None:
    """At least one workload, one template and one budget."""
    for name in ("workloads", "templates") if given["shape"] != OWN else ("templates",):
        if not given[name]:
            with wrong.at(name):
                raise _bad_value(f"none of the {name} is selected", "select at least one")
    if not any(given[name].strip() for name in ("trials", "seconds", "gpu_seconds")):
        with wrong.at("trials"):
            raise _bad_value(
                "no budget is given", "give a number of trials, of seconds or of GPU seconds"
            )


def _bad_value(message: str, mend: str) -> UsageError:
    return UsageError(message, code="bad_value", mend=mend)


def _read(
    read: Callable[[str, str], Number | None], name: str, given: dict[str, Any], wrong: Refusals
) -> Number | None:
    """The number in a field; None for one that is empty, or added to `wrong`."""
    with wrong.at(name):
        return read(name, given[name])
    return None


def _refuse_unknown(kernel: KernelSpec, form: FormData) -> None:
    """UsageError `unknown_field` for a misspelt field, which would otherwise be ignored."""
    own = [OWN_PREFIX + name for name in kernel.workload_form.names]
    for name in form:
        if name in (*ONE_LINE, *LISTS, "kernel", "shape", *own):
            continue
        known = own if name.startswith(OWN_PREFIX) else (*ONE_LINE, *LISTS, "kernel", "shape")
        raise UsageError(
            f"unknown field {name[:LONGEST_NAME]!r} in the form for kernel {kernel.name}",
            code="unknown_field",
            mend=f"known: {', '.join(known)}",
        )


def _own(kernel: KernelSpec, typed_values: dict[str, str]) -> WorkloadValues:
    """The user's own workload; UsageError for a size that is no number."""
    values: list[tuple[str, object]] = []
    for name in kernel.workload_form.names:
        text = typed_values.get(name, "").strip()
        if text:
            is_dim = name in {dim.name for dim in kernel.dims}
            values.append((name, _size(name, text) if is_dim else text))
    return WorkloadValues(tuple(values))


def _size(name: str, text: str) -> int:
    try:
        return int(text.replace("_", ""))
    except ValueError:
        raise UsageError(
            f"{name} is {text[:80]!r}", code="bad_workload", mend="write a whole number"
        ) from None


def _list(form: FormData, name: str) -> list[str]:
    return [str(value) for value in form.getlist(name)]


def _limit(name: str, text: str) -> int | None:
    """A limit; empty and `none` are no limit."""
    return None if text.strip().lower() in ("", NO_LIMIT) else _whole(name, text)


def _whole(name: str, text: str) -> int | None:
    if not text.strip():
        return None
    try:
        value = int(text.strip().replace("_", ""))
    except ValueError:
        raise _bad_value(f"{name} is {text.strip()[:80]!r}", "write a whole number") from None
    if value < 0:
        raise _bad_value(f"{name} is {value}", "write a whole number of 0 or more")
    return value


def _number(name: str, text: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _bad_value(f"{name} is {text.strip()[:80]!r}", "write a number")
    return value
