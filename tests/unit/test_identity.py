"""What makes a kernel another one, and what does not."""

from __future__ import annotations

import dataclasses

import pytest

from greenfast.search.digest import digest
from greenfast.search.errors import Fault
from greenfast.search.kernels.frozen import KernelFiles, frozen_catalogue, kernel_files
from greenfast.search.kernels.identity import (
    earlier_form,
    kernel_identity,
    newer_checks,
    passed_checks,
    semantics_digest,
)
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.scope import Scope, scope_of

WORKLOAD = "\n[workloads.added]\ndims = { N = 77 }\n"
CHECK = '\n[[checks]]\nname = "added"\ndims = { N = "tile_q + 7" }\ninputs = "normal"\nseeds = 1\n'
SAME = {  # file, what is replaced, by what
    "a workload": (
        "kernel.toml",
        '[[checks]]\nname = "one"',
        WORKLOAD + '\n[[checks]]\nname = "one"',
    ),
    "a check": ("kernel.toml", "[workloads.line]", CHECK + "\n[workloads.line]"),
    "a check's name": ("kernel.toml", 'name = "one"', 'name = "single"'),
    "a workload's name": ("kernel.toml", "[workloads.odd]", "[workloads.uneven]"),
    "a title": ("kernel.toml", 'title = "y =', 'title = "Y ='),
    "a preset": (
        "right.toml",
        "[presets.plain]",
        "[presets.also]\nparameters = {}\n\n[presets.plain]",
    ),
}
ANOTHER = {
    "a dim": ("kernel.toml", "[constants]", 'M = { time = "run", default = "N" }\n\n[constants]'),
    "an argument": (
        "kernel.toml",
        'name = "b"\nkind = "scalar"\ndtype = "float32"',
        'name = "b"\nkind = "scalar"\ndtype = "int32"',
    ),
    "an option": ("kernel.toml", 'values = ["fp16", "bf16"]', 'values = ["fp16"]'),
    "the reference": ("reference.py", "A, B = 2.5", "A, B = 2.25"),
    "a tolerance": ("reference.py", "+ 1e-5", "+ 1e-4"),
    "the work": ("kernel.toml", 'flop = "2 * N"', 'flop = "3 * N"'),
    "a template's text": ("right.cu.j2", "using Element =", "// new\nusing Element ="),
    "a parameter's values": ("right.toml", "values = [1, 2, 4]", "values = [1, 2]"),
}


@pytest.fixture
def kernel(album):
    return album.kernel("axpy")


class TestIdentity:
    @pytest.mark.parametrize("what", SAME)
    def test_it_stays_with(self, broken_kernel, kernel, what):
        edited = broken_kernel(*SAME[what]).kernel("axpy")
        assert kernel_identity(edited) == kernel_identity(kernel) and digest(edited) != digest(
            kernel
        )

    @pytest.mark.parametrize("what", ANOTHER)
    def test_it_is_another_with(self, broken_kernel, kernel, what):
        edited = broken_kernel(*ANOTHER[what]).kernel("axpy")
        assert kernel_identity(edited) != kernel_identity(kernel)
        assert (semantics_digest(edited) == semantics_digest(kernel)) is (
            ANOTHER[what][0].startswith("right")
        )

    def test_a_kernel_that_grew_is_still_known_by_the_digest_of_its_earlier_form(
        self, broken_kernel, kernel
    ):
        grown = broken_kernel("kernel.toml", "[work]", WORKLOAD + "[work]").kernel("axpy")
        assert digest(earlier_form(grown, digest(kernel))) == digest(kernel)
        assert (
            earlier_form(
                broken_kernel("reference.py", "A, B = 2.5", "A, B = 2.25").kernel("axpy"),
                digest(kernel),
            )
            is None
        )

    def test_a_check_is_newer_by_its_content_not_by_its_name(self, broken_kernel, kernel):
        passed = passed_checks(kernel)
        assert newer_checks(kernel, passed) == ()
        assert (
            newer_checks(
                broken_kernel("kernel.toml", 'name = "one"', 'name = "single"').kernel("axpy"),
                passed,
            )
            == ()
        )
        assert newer_checks(
            broken_kernel("kernel.toml", 'N = "tile_q + 1"', 'N = "tile_q + 2"').kernel("axpy"),
            passed,
        ) == ("tile_plus_one",)


class TestScope:
    def scope(self, catalogue, workload) -> Scope:
        plan = make_plan(SearchRequest("axpy", workloads=(workload,), seed=1), catalogue)
        return scope_of(plan, {"device": "h200", "toolchain": "nvrtc 13.0"})

    def test_workloads_count_by_their_values(self, broken_kernel, album):
        line = self.scope(album, "line")
        assert self.scope(album, "odd").digest != line.digest
        assert (
            self.scope(
                broken_kernel("kernel.toml", "[workloads.line]", "[workloads.row]"), "row"
            ).digest
            == line.digest
        )
        assert (
            self.scope(broken_kernel("kernel.toml", "N = 4096", "N = 4097"), "row").digest
            != line.digest
        )

    def test_a_scope_of_an_earlier_version_keeps_its_digest(self):
        """The digest of the champion in tests/data/release_0004.sqlite3.gz."""
        scope = Scope(
            "axpy",
            "01015df06817bfd53bbb07d52f0822335a39a07daf9808301dcf697c7687f64f",
            ("line",),
            (("dtype", "fp16"),),
            "h200",
            "nvrtc 13.0",
        )
        assert scope.digest == "51212746a8771e8ba0df3df79e03b3932f202791bc93c15380f24c90ab89358e"

    def test_every_other_field_counts(self, album):
        line = self.scope(album, "line")
        for name in ("kernel", "kernel_digest", "device", "toolchain", "mode"):
            assert dataclasses.replace(line, **{name: "another"}).digest != line.digest, name
        assert dataclasses.replace(line, values=(("dtype", "bf16"),)).digest != line.digest


class TestFrozenFiles:
    @pytest.mark.parametrize("name", ["axpy", "attention", "attention_fp8", "rmsnorm"])
    def test_a_frozen_kernel_is_the_kernel_wherever_it_lies(self, album, tmp_path, name):
        kernel = album.kernel(name)
        frozen = frozen_catalogue(kernel_files(kernel, album.include_dirs), tmp_path)
        loaded = frozen.kernel(name)
        assert digest(loaded) == digest(kernel) and loaded.folder.is_relative_to(tmp_path)
        assert frozen.names() == (name,) and loaded.reference_files == kernel.reference_files
        assert (loaded.folder / "peers.py").is_file() == (kernel.folder / "peers.py").is_file()
        assert all(directory.is_relative_to(tmp_path) for directory in frozen.include_dirs)

    def test_what_was_damaged_in_the_cache_is_written_again(self, album, tmp_path, kernel):
        files = kernel_files(kernel, album.include_dirs)
        folder = frozen_catalogue(files, tmp_path).kernel("axpy").folder
        (folder / "reference.py").write_text("raise SystemExit")
        (folder / "more.toml").write_text("")
        assert digest(frozen_catalogue(files, tmp_path).kernel("axpy")) == digest(kernel)

    def test_headers_are_shared_by_kernels_and_frozen(self, album, tmp_path, kernel):
        first, second = (
            frozen_catalogue(kernel_files(album.kernel(name), album.include_dirs), tmp_path)
            for name in ("axpy", "rmsnorm")
        )
        assert (
            first.include_dirs == second.include_dirs
            and (first.include_dirs[0] / "gf" / "dtype.cuh").is_file()
        )

    def test_a_path_that_leads_outside_is_refused(self, tmp_path):
        with pytest.raises(Fault, match="outside"):
            frozen_catalogue(KernelFiles((("../../escaped.py", "x"),)), tmp_path / "cache")
        assert not list(tmp_path.rglob("escaped.py"))
