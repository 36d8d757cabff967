"""Identity: every field of every identified type counts, whatever is added later."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from greenfast.search.digest import canonical, digest
from greenfast.search.gates.base import GateLimits
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.expressions import Expression
from greenfast.search.kernels.spec import (
    Argument,
    Check,
    Constraint,
    KernelSpec,
    LaunchSpec,
    Parameter,
    Preset,
    TemplateSpec,
)
from greenfast.search.kernels.workloads import Dim, Option, Workload
from greenfast.search.loop.plan import SearchPlan, SearchRequest, make_plan
from greenfast.search.space.candidate import Candidate, Origin, OriginKind


def _samples() -> list[object]:
    """One real value of each identified type."""
    catalogue = Catalogue.from_environment()
    kernel = catalogue.kernel("attention")
    template = kernel.template("wmma")
    plan = make_plan(SearchRequest("attention", seed=1, templates=("wmma",)), catalogue)
    candidate = Candidate(
        "attention", "wmma", template.presets[0].parameters, Origin(OriginKind.PRESET)
    )
    return [
        kernel,
        template,
        plan,
        candidate,
        GateLimits(),
        kernel.arguments[0],
        kernel.checks[0],
        template.constraints[0],
        kernel.dims[0],
        template.launches[0],
        kernel.options[0],
        template.parameters[0],
        template.presets[0],
        kernel.workloads[0],
    ]


def _fields() -> list[tuple[object, str]]:
    return [(sample, field.name) for sample in _samples() for field in dataclasses.fields(sample)]


def _changed(value: object) -> object:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case None:
            return 1
        case Path():
            return value / "x"
        case Expression():
            return dataclasses.replace(value, text=value.text + " + 1")
        case tuple():
            return (*value, "x")
    return "changed"


@pytest.mark.parametrize(
    ("value", "name"),
    _fields(),
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_changing_any_field_changes_the_digest_unless_the_class_names_it(value, name):
    changed = dataclasses.replace(value, **{name: _changed(getattr(value, name))})
    excluded = name in getattr(type(value), "DIGEST_EXCLUDES", ())
    assert (digest(changed) == digest(value)) is excluded


def test_only_places_and_origins_are_left_out():
    excluded = {
        (type(sample).__name__, name)
        for sample in _samples()
        for name in getattr(type(sample), "DIGEST_EXCLUDES", ())
    }
    assert excluded == {
        ("KernelSpec", "folder"),
        ("KernelSpec", "requirements"),
        ("KernelSpec", "empty_dims"),
        ("KernelSpec", "broken_workloads"),
        ("TemplateSpec", "path"),
        ("TemplateSpec", "lines"),
        ("TemplateSpec", "worthwhile_when"),
        ("Parameter", "group"),
        ("Candidate", "origin"),
    }


def test_what_may_be_absent_is_left_out_only_while_it_is():
    when_set = {
        (type(sample).__name__, name)
        for sample in _samples()
        for name in getattr(type(sample), "DIGEST_WHEN_SET", ())
    }
    assert when_set == {
        ("Argument", "read_when"),
        ("KernelSpec", "reference_uses"),
        ("TemplateSpec", "arch_specific"),
        ("TemplateSpec", "tensor_maps"),
        ("TemplateSpec", "scalars"),
    }
    kernel = Catalogue.from_environment().kernel("attention")
    assert "reference_uses" not in canonical(kernel)["fields"]
    assert digest(dataclasses.replace(kernel, reference_uses=(("a", "b"),))) != digest(kernel)


def test_samples_cover_the_spec():
    kinds = {type(sample) for sample in _samples()}
    assert {
        KernelSpec,
        TemplateSpec,
        Workload,
        Check,
        Parameter,
        Constraint,
        LaunchSpec,
        Preset,
        Argument,
        Dim,
        Option,
        SearchPlan,
        GateLimits,
        Candidate,
    } <= kinds


def test_equal_numbers_of_different_types_are_different_identities():
    assert len({digest(1), digest(True), digest(1.0), digest("1"), digest((1,))}) == 5


def test_what_has_no_canonical_form_is_refused():
    with pytest.raises(TypeError, match="object has no canonical form"):
        digest(object())
