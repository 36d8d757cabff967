"""`greenfast lint` finds what a search would find late, without running a candidate."""

from __future__ import annotations

import json
import os

import pytest
from slow_cases import quick_first

from greenfast.app.cli import main
from greenfast.app.cli.new import kernel_files_of
from greenfast.search.devices.facts import device
from greenfast.search.diagnose.lint import lint_kernel
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, load_kernel

HEADERS = (REPOSITORY_TEMPLATES / "include",)


@pytest.fixture
def linted(tmp_path):
    """`linted((file, old, new), ...)`: the problems of the new kernel with these changes."""

    def problems(*changes: tuple[str, str, str], toolchain=None):
        files = kernel_files_of("vecsum")
        for file, old, new in changes:
            assert old in files[file]
            files[file] = files[file].replace(old, new)
        (tmp_path / "vecsum").mkdir(exist_ok=True)
        for file, text in files.items():
            (tmp_path / "vecsum" / file).write_text(text)
        return lint_kernel(tmp_path / "vecsum", HEADERS, device("h200"), toolchain)

    return problems


UNUSED = '[parameters.unused]\ntype = "bool"\ndefault = false\n\n# Values computed'


@pytest.mark.parametrize(
    ("changes", "codes", "sentence"),
    quick_first([
        ([], [], ""),
        ([("block.toml", "# Values computed", UNUSED)], ["unused_parameter"], "parameter unused"),
        ([("block.toml", "{threads} threads", "{thread} threads")], ["unknown_name"], "is no val"),
        (
            [("block.toml", "# Values computed", '[supports]\ndtype = ["fp16", "half"]\n\n#')],
            ["bad_spec"],
            "'half' is no value of the option",
        ),
        (
            [("block.toml", 'warps = "threads // 32"', 'warps = "threads // 32"\nidle = "1"')],
            ["unused_local"],
            "block.toml:24, [locals] idle",
        ),
        (
            [("kernel.toml", "[dims]", '[dims]\nK = { time = "run", default = "8" }')],
            ["unused_dim"],
            "the dim K is not used",
        ),
        ([("block.toml", "tile =", 'tile = "1"\ntiel =')], ["unused_tile"], "the tile tiel is not"),
        (
            [("kernel.toml", 'bytes = "(4', 'bytes = "8 * (4')],
            ["work_bytes", "work_bytes"],
            "all tensors together have 3,146,752",
        ),
        (
            [("block.toml", 'parameters = { }', "parameters = { threads = 512, unroll = 4 }")],
            ["impossible_preset"],
            "512 threads with 4 elements each take more",
        ),
        (
            [("block.cu.j2", "{{ warps }}", "{{ warp }}")],
            ["render_error"],
            "block.cu.j2:12: UndefinedError: 'warp' is undefined",
        ),
        (
            [("block.toml", 'grid = ["M"', 'grid = ["M // (N - 1024)"')],
            ["bad_expression", "bad_grid"],  # by zero, and below zero for shorter rows
            "cannot be computed",
        ),
        ([("kernel.toml", "M = 256, N", 'M = "256", N')], ["bad_workload"], "not a whole number"),
        (
            [("kernel.toml", "[dims]", 'way = { values = ["1", "a,b"], default = "1" }\n[dims]'),
             ("block.cu.j2", "#include <cuda", "// {{ way }}\n#include <cuda")],
            ["option_value"],
            "no workload by values can name 'a,b'",
        ),
        ([("kernel.toml", '"2 * M * N"', '"dtype"')], ["bad_expression"], "toml:63, [work], f"),
        ([("kernel.toml", '"2 * M * N"', '"M - 4"')], ["bad_expression"], "a number of 0 or more"),
        (
            [("kernel.toml", 'value = "N"', 'value = "N / 2"')],
            ["bad_expression"],
            "which is not of type int32",
        ),
        (
            [("block.toml", "unroll <= 1024", "unroll <= 10")],
            ["impossible_preset", "empty_space"],
            "no parameter values satisfy",
        ),
        (
            [("reference.py", "as_float64(inputs).values()", "open('/etc/hostname') and 1, 2")],
            ["reference_failed"],
            "PermissionError",
        ),
        (
            [("reference.py", "default_rng(seed)", "default_rng()")],
            ["reference_not_repeatable"],
            "draw from numpy.random.default_rng(seed)",
        ),
        (
            [("reference.py", '"c": summed(c, sizes, 2, options["dtype"])',
              '"c": {"value": c, "bound": 1e9, "rounded": None}')],
            ["weak_test"],
            "it accepts zeros as c",
        ),
    ], 10),
)  # fmt: skip
def test_a_problem_is_found_without_running_anything(linted, changes, codes, sentence):
    problems = linted(*changes)
    assert {problem.code for problem in problems} == set(codes)
    if sentence:
        assert any(sentence in problem.sentence for problem in problems), problems


def test_a_template_with_other_arguments_is_found_where_there_is_a_compiler(linted, toolchain):
    change = ("block.cu.j2", "int M, int N)", "int N)")
    assert linted(change) == ()
    problems = linted(change, toolchain=toolchain)
    assert {problem.code for problem in problems} == {"signature"}


@pytest.mark.slow
def test_what_only_one_value_of_a_parameter_shows_is_compiled(linted, toolchain):
    change = ("block.cu.j2", "    sum = block_sum(sum);", "{% if unroll == 4 %}more;{% endif %}")
    problems = linted(change, toolchain=toolchain)
    assert [problem.code for problem in problems] == ["compile_error"]
    assert '"more" is undefined' in problems[0].message


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "attention_fp8", "rmsnorm"])
def test_the_shipped_kernels_have_no_problem(name, toolchain):
    problems = lint_kernel(REPOSITORY_TEMPLATES / name, HEADERS, device("h200"), toolchain)
    # Some presets are for shapes that no workload has by name.
    assert {problem.code for problem in problems} <= {"impossible_preset"}, problems


class TestCommands:
    @pytest.fixture(autouse=True)
    def home(self, tmp_path, monkeypatch, artifacts):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("GREENFAST_DATA", str(tmp_path / "data"))
        monkeypatch.delenv("GREENFAST_TEMPLATE_PATH", raising=False)
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "cache").symlink_to(artifacts)
        self.folder = tmp_path

    def run(self, capsys, *arguments: str):
        code = main.run(arguments)
        out = capsys.readouterr()
        return code, out.out, out.err

    def test_a_new_kernel_passes_at_once(self, capsys):
        assert self.run(capsys, "new", "kernel", "vecsum")[0] == 0
        assert sorted(os.listdir(self.folder / "kernels" / "vecsum")) == [
            ".schemas", "block.cu.j2", "block.toml", "kernel.toml", "reference.py",
        ]  # fmt: skip
        assert os.listdir(self.folder / "kernels") == ["vecsum"]  # nothing half written
        assert self.run(capsys, "lint", "vecsum") == (0, "vecsum: no problems\n", "")

    @pytest.mark.slow
    def test_a_new_template_has_the_kernels_arguments(self, capsys):
        self.run(capsys, "new", "kernel", "vecsum")
        code, out, _ = self.run(capsys, "new", "template", "vecsum", "vectors", "--json")
        assert code == 0 and json.loads(out)["next"][0] == "greenfast lint vecsum"
        code, out, _ = self.run(capsys, "lint", "kernels/vecsum", "--json")
        assert (code, json.loads(out)["problems"]) == (0, [])
        text = (self.folder / "kernels/vecsum/vectors.cu.j2").read_text()
        assert "const Element* __restrict__ a" in text and "int N)" in text

    def test_the_first_template_of_a_folder_has_the_baselines_name(self, capsys):
        self.run(capsys, "new", "kernel", "vecsum")
        folder = self.folder / "kernels/vecsum"
        for name in ("block.toml", "block.cu.j2"):
            (folder / name).unlink()
        path = folder / "kernel.toml"
        path.write_text(path.read_text().replace('"block:plain"', '"rows:simple"'))
        assert self.run(capsys, "new", "template", "vecsum", "rows")[0] == 0
        assert [each.name for each in load_kernel(folder).templates] == ["rows"]

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (("kernel", "../x"), "names are small letters"),
            (("kernel", "a b"), "names are small letters"),
            (("kernel", "A"), "names are small letters"),
            (("kernel", "x" * 49), "at most 48 characters"),
            (("kernel", "include"), "have a meaning already"),
            (("kernel", "\x1b[31m"), "names are small letters"),
            (("kernel", "vecsum"), "already exists"),
            (("kernel", "gemm"), "is a kernel of greenfast; one of yours with this name"),
            (("template", "vecsum", "block"), "already exists"),
            (("template", "vecsum", "kernel"), "have a meaning already"),
            (("template", "attention", "mine"), "is a shipped kernel"),
            (("template", "nothing", "mine"), "unknown kernel"),
            (("template", "vecsum"), "greenfast new template KERNEL NAME"),
            (("kernel", "fresh", "--in", "file"), "cannot be written"),
        ],
    )
    def test_hostile_and_taken_names_are_refused(self, capsys, arguments, sentence):
        self.run(capsys, "new", "kernel", "vecsum")
        (self.folder / "file").write_text("")
        before = sorted(map(str, self.folder.rglob("*")))
        code, _, err = self.run(capsys, "new", *arguments)
        assert code == 2 and sentence in err and "\x1b" not in err
        assert sorted(map(str, self.folder.rglob("*"))) == before

    def test_all_problems_are_printed_and_the_exit_code_is_2(self, capsys):
        self.run(capsys, "new", "kernel", "vecsum")
        path = self.folder / "kernels/vecsum/block.toml"
        path.write_text(path.read_text().replace("default = 128", "default = 100"))
        path = self.folder / "kernels/vecsum/kernel.toml"
        path.write_text(path.read_text().replace('shape = ["M"]', 'shape = ["Q"]'))
        code, out, _ = self.run(capsys, "lint")
        assert code == 2 and out.count("\n") == 3 and out.endswith("2 problems\n")
        code, out, _ = self.run(capsys, "lint", "--json")
        assert code == 2
        assert [(p["file"], p["code"]) for p in json.loads(out)["problems"]] == [
            ("vecsum/block.toml", "bad_spec"), ("vecsum/kernel.toml", "unknown_dim"),
        ]  # fmt: skip
        assert all(problem["line"] > 5 for problem in json.loads(out)["problems"])

    def test_a_name_that_is_no_kernel_is_refused(self, capsys):
        for words, code in ((("nothing",), 2), ((str(self.folder),), 2), ((), 2)):
            assert self.run(capsys, "lint", *words)[0] == code
