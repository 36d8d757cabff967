"""A reference.py may import another kernel's: it enters the digest, or is refused by name."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from greenfast.search.digest import digest
from greenfast.search.errors import SpecError
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, load_kernel
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.reference import case_data, kernel_module
from greenfast.search.recordings.contents import checks_digest
from greenfast.search.targets.cuda.large_reference import computed, described

ALBUM = Path(__file__).resolve().parents[1] / "kernels"
BUILDS_ON_AXPY = """
import axpy_reference
from axpy_reference import make_inputs

def reference(dims, options, inputs, xp=None):
    from axpy_reference import A
    found = axpy_reference.reference(dims, options, inputs)
    return {"y": {**found["y"], "bound": found["y"]["bound"] * A}}
"""


@pytest.fixture
def kernels(tmp_path):
    """Copies of the album's axpy: `kernels(name, uses, reference)` returns a new one's folder."""

    def written(name: str, uses: tuple[str, ...] = (), reference: str = "") -> Path:
        folder = tmp_path / "templates" / name
        shutil.copytree(ALBUM / "axpy", folder)
        for path in folder.glob("*.toml"):
            path.write_text(path.read_text().replace('"axpy"', f'"{name}"'))
        if uses:
            toml = folder / "kernel.toml"
            toml.write_text(
                toml.read_text().replace(
                    "[options]", f"reference_uses = {json.dumps(uses)}\n[options]", 1
                )
            )
        if reference:
            (folder / "reference.py").write_text(reference)
        return folder

    return written


def test_the_reference_beside_it_is_imported_by_a_plain_name(kernels):
    plain, user = (
        load_kernel(kernels("axpy")),
        load_kernel(kernels("user", ("axpy",), BUILDS_ON_AXPY)),
    )
    assert user.reference_files == {
        "reference.py": BUILDS_ON_AXPY,
        "axpy_reference.py": plain.reference_text,
    }
    case = workload_case(user.workload("odd"), 1)
    expected, right = case_data(user, case).outputs["y"], case_data(plain, case).outputs["y"]
    assert np.array_equal(expected.value, right.value) and np.array_equal(
        expected.bound, right.bound * 2.5
    )
    sent = json.loads(json.dumps(described(user, case)))  # to a child on a GPU
    assert np.array_equal(computed(sent, np)["y"]["bound"], expected.bound)


def test_a_kernel_elsewhere_builds_on_a_shipped_one_and_what_is_beside_it_comes_first(kernels):
    user = kernels("user", ("rmsnorm",), "from rmsnorm_reference import make_inputs, reference")
    shipped = (REPOSITORY_TEMPLATES / "rmsnorm" / "reference.py").read_text()
    assert load_kernel(user).reference_uses == (("rmsnorm", shipped),)
    kernels("rmsnorm")
    assert load_kernel(user).reference_uses == (
        ("rmsnorm", (ALBUM / "axpy" / "reference.py").read_text()),
    )


def test_a_folder_that_carries_what_it_builds_on_needs_nothing_beside_it(kernels):
    user = kernels("user", ("axpy",), BUILDS_ON_AXPY)
    with pytest.raises(SpecError, match="no such kernel is beside it or shipped"):
        load_kernel(user)
    shutil.copy(ALBUM / "axpy" / "reference.py", user / "axpy_reference.py")
    assert callable(kernel_module(load_kernel(user)).reference)


def test_what_is_built_on_is_part_of_every_identity(kernels):
    kernels("axpy")
    user = load_kernel(kernels("user", ("axpy",), BUILDS_ON_AXPY))
    other = replace(
        user, reference_uses=(("axpy", user.reference_uses[0][1].replace("2.5", "3.5")),)
    )
    assert digest(other) != digest(user) and checks_digest(other) != checks_digest(user)
    assert (
        kernel_module(other).axpy_reference.A == 3.5 and kernel_module(user).axpy_reference.A == 2.5
    )
    assert kernel_module(other).__name__ != kernel_module(user).__name__


@pytest.mark.parametrize(
    ("uses", "code", "says"),
    [
        (
            ("axpi",),
            "unknown_kernel",
            "reference_uses names 'axpi', and no such kernel is beside it or shipped",
        ),
        (("../axpy",), "bad_spec", "the name '../axpy'"),
        (
            ("user",),
            "nested_reference",
            "names 'user', whose reference.py uses another",
        ),
        (
            ("back",),
            "nested_reference",
            "names 'back', whose reference.py uses another",
        ),
        (
            ("attention_fp8",),
            "nested_reference",
            "names 'attention_fp8', whose reference.py uses another",
        ),
    ],
)
def test_what_is_missing_or_goes_in_a_circle_is_refused(kernels, uses, code, says):
    kernels("axpy")
    kernels("back", ("user",))
    with pytest.raises(SpecError, match=says) as refused:
        load_kernel(kernels("user", uses))
    assert (
        refused.value.code == code
        and "user/kernel.toml" in refused.value.message
        and "\n" not in str(refused.value)
    )


def test_only_what_is_named_can_be_imported(kernels):
    kernels("axpy")
    user = load_kernel(kernels("user", (), BUILDS_ON_AXPY))
    with pytest.raises(
        SpecError, match=r"user/reference.py:2 does not load: ModuleNotFoundError"
    ) as refused:
        case_data(user, workload_case(user.workload("odd"), 1))
    assert refused.value.code == "reference_failed"
