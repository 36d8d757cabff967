"""Parts of a template: included text, and messages with the part's own file and line."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
from slow_cases import quick_every

from greenfast.search.devices.facts import device
from greenfast.search.diagnose.album import FOLDER, Entry, catalogue_of, entries, judge
from greenfast.search.digest import digest
from greenfast.search.errors import Fault, SpecError
from greenfast.search.kernels.catalogue import Catalogue, load_kernel
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.template_text import Line, TemplateText, read_template_text
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import RenderedSource, RenderFailed, render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Resolved, resolve
from greenfast.search.toolchain import CompileFailed

PARTED = ("mma", "wmma")
LOOP = "    for (int step"


@pytest.fixture
def written(tmp_path):
    """`written(text, **parts)`: template `one` of kernel `k`, read from these files."""
    folder = tmp_path / "k"
    (folder / "one").mkdir(parents=True)

    def write(text: str, **parts: str) -> TemplateText:
        (folder / "one.cu.j2").write_text(text)
        for name, part in parts.items():
            (folder / "one" / f"{name}.cu.j2").write_text(part)
        return read_template_text(folder, "one")

    return write


@pytest.fixture
def parted(tmp_path):
    """`parted(old, new)`: axpy with its template from line 12 on in a part, `old` replaced."""
    folder = tmp_path / "templates" / "axpy"
    shutil.copytree(FOLDER / "axpy", folder)
    lines = (folder / "right.cu.j2").read_text().splitlines(keepends=True)
    (folder / "right.cu.j2").write_text("".join(lines[:11]) + '{% include "right/steps.cu.j2" %}\n')
    (folder / "right").mkdir()

    def change(old: str, new: str) -> Catalogue:
        text = "".join(lines[11:])
        assert text.count(old) == 1
        (folder / "right" / "steps.cu.j2").write_text(text.replace(old, new))
        return Catalogue([tmp_path / "templates"])

    return change


def a_point(kernel: KernelSpec) -> tuple[TemplateSpec, Resolved]:
    template, preset = kernel.preset("right:plain")
    compiled = kernel.workloads[0].compile_time(kernel)
    candidate = preset_candidate(template, preset.name, compiled)
    return template, resolve(template, candidate.parameters, compiled, device("h200"))


def rendered(catalogue: Catalogue) -> RenderedSource | RenderFailed:
    kernel = catalogue.kernel("axpy")
    return render(kernel, *a_point(kernel), catalogue.include_dirs)


# ---- what the text is, and where its lines stand ----


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        ("p\nq\n", "a\np\nq\nb\n"),
        ("p\nq", "a\np\nq\nb\n"),
        ("p\n\n", "a\np\n\nb\n"),
        ("", "a\nb\n"),
        ("\n", "a\n\nb\n"),
    ],
)
def test_the_lines_of_a_part_take_the_place_of_its_include(written, part, whole):
    assert written('a\n{% include "one/p.cu.j2" %}\nb\n', p=part).text == whole


def test_a_part_may_be_the_first_line_the_last_and_come_twice(written):
    include = '{% include "one/p.cu.j2" %}'
    assert written(f"{include}\na\n{include}", p="p\n").text == "p\na\np"


def test_every_line_knows_its_file_and_its_number_there(written):
    source = written(
        'a\n{% include "one/p.cu.j2" %}\nb\n{% include "one/q.cu.j2" %}\n', p="p1\np2\n", q="q1\n"
    )
    places = [
        (text, line.file, line.number)
        for text, line in zip(source.text.split("\n"), source.lines, strict=True)
    ]
    assert places == [
        ("a", "k/one.cu.j2", 1),
        ("p1", "k/one/p.cu.j2", 1),
        ("p2", "k/one/p.cu.j2", 2),
        ("b", "k/one.cu.j2", 3),
        ("q1", "k/one/q.cu.j2", 1),
        ("", "k/one.cu.j2", 5),
    ]


def test_a_template_without_parts_is_its_file(written):
    text = "a\r{# {% if %} #}\f\n\n b \nlast without newline"
    source = written(text)
    assert source.text.encode() == text.replace("\r", "\n").encode()  # as Python reads a text
    assert {line.file for line in source.lines} == {"k/one.cu.j2"}


@pytest.mark.parametrize("name", PARTED)
def test_every_line_of_the_shipped_parts_is_where_it_is_said_to_be(catalogue, name):
    template = catalogue.kernel("attention").template(name)
    files = {shown: path.read_text().split("\n") for shown, path in template.files.items()}
    assert len(files) > 5
    for text, line in zip(template.text.split("\n"), template.lines, strict=True):
        assert files[line.file][line.number - 1] == text


def test_no_part_lies_about_unused(catalogue):
    for kernel in map(catalogue.kernel, catalogue.names()):
        used = {path.resolve() for template in kernel.templates for path in template.files.values()}
        own = {path.resolve() for path in kernel.folder.rglob("*.cu.j2")}
        assert own <= used and {path.name for path in used - own} <= {"epilogue.cu.j2"}


@pytest.mark.parametrize("name", PARTED)
def test_where_lines_stand_is_no_part_of_an_identity(catalogue, tmp_path, name):
    kernel = catalogue.kernel("attention")
    template = kernel.template(name)
    folder = tmp_path / "attention"
    shutil.copytree(kernel.folder, folder)
    shutil.rmtree(folder / name)
    (folder / f"{name}.cu.j2").write_text(template.text)
    in_one_file = load_kernel(folder)
    assert list(in_one_file.template(name).files) == [f"attention/{name}.cu.j2"]
    assert digest(in_one_file) == digest(kernel)
    assert digest(replace(template, text=template.text + " ")) != digest(template)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("text", "parts", "says"),
    [
        (
            'a\n{% include "one/none.cu.j2" %}\n',
            {"p": "", "q": ""},
            (
                "k/one.cu.j2:2: the part 'one/none.cu.j2' does not exist "
                "(known: one/p.cu.j2, one/q.cu.j2)"
            ),
        ),
        (
            '{% include "one/none.cu.j2" %}',
            {},
            "k/one.cu.j2:1: the part 'one/none.cu.j2' does not exist (known: none)",
        ),
        (
            'a\n\nint x; {% include "one/p.cu.j2" %}\n',
            {"p": ""},
            (
                "k/one.cu.j2:3: an include must be alone on its line "
                '(write {% include "one/NAME.cu.j2" %})'
            ),
        ),
        (
            '{%- include "one/p.cu.j2" -%}',
            {"p": ""},
            "k/one.cu.j2:1: an include must be alone on its line",
        ),
        (
            "{% include 'one/p.cu.j2' %}",
            {"p": ""},
            "k/one.cu.j2:1: an include must be alone on its line",
        ),
        (
            '{% include "one/p.cu.j2" ignore missing %}',
            {"p": ""},
            "k/one.cu.j2:1: an include must be alone on its line",
        ),
        (
            '{% include "one/p.cu.j2" %}',
            {"p": 'x\n{% include "one/p.cu.j2" %}\n'},
            "k/one/p.cu.j2:2: a part cannot include another part (include it in k/one.cu.j2)",
        ),
        (
            '{% include "one/p.cu.j2" %}',
            {"p": 'x {%+ include "one/q.cu.j2" %}\n', "q": ""},
            "k/one/p.cu.j2:1: a part cannot include another part",
        ),
    ],
    ids=["missing", "none_at_all", "other_text", "trimmed", "quotes", "words", "itself", "nested"],
)
def test_an_include_that_is_not_as_it_should_be_is_refused(written, text, parts, says):
    with pytest.raises(SpecError, match=re.escape(says)):
        written(text, **parts)


@pytest.mark.parametrize(
    "name",
    [
        "one/../p.cu.j2",
        "../one/p.cu.j2",
        "/etc/hostname",
        "p.cu.j2",
        "two/p.cu.j2",
        "one.cu.j2",
        "one/p.cu",
        "one/deep/p.cu.j2",
        "one/P.cu.j2",
        "one/.cu.j2",
        "one\\p.cu.j2",
        "",
    ],
)
def test_a_part_lies_in_the_folder_of_its_template(written, tmp_path, name):
    for place in (
        "one/p.cu.j2",
        "one/deep/p.cu.j2",
        "two/p.cu.j2",
        "p.cu.j2",
        "one/P.cu.j2",
        "one/.cu.j2",
    ):
        (tmp_path / "k" / place).parent.mkdir(exist_ok=True)
        (tmp_path / "k" / place).write_text("")
    says = f"k/one.cu.j2:1: {name!r} is not part of template one (parts are one/NAME.cu.j2"
    with pytest.raises(SpecError, match=re.escape(says)):
        written(f'{{% include "{name}" %}}')


def test_a_part_that_is_no_text_is_the_authors_error(written, tmp_path):
    written("//")
    (tmp_path / "k" / "one" / "p.cu.j2").write_bytes(b"//\n\xff\xfe")
    with pytest.raises(SpecError, match=r"k/one/p.cu.j2:2: this is not UTF-8"):
        written('{% include "one/p.cu.j2" %}')


# ---- who names a part's file and line ----


def line_of(catalogue: Catalogue, text: str) -> Line:
    """Where the one line that holds `text` stands in the part."""
    lines = (
        catalogue.kernel("axpy")
        .template("right")
        .files["axpy/right/steps.cu.j2"]
        .read_text()
        .splitlines()
    )
    (number,) = (number for number, line in enumerate(lines, 1) if text in line)
    return Line("axpy/right/steps.cu.j2", number)


def test_a_source_in_parts_is_the_same_source(parted, album):
    source, whole = rendered(parted(LOOP, LOOP)), rendered(album)
    assert source.text == whole.text and source.digest == whole.digest and source.unit != whole.unit
    assert {line.file for line in source.lines} >= {"axpy/right.cu.j2", "axpy/right/steps.cu.j2"}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("{{ no_such_name }}", "'no_such_name' is undefined"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
    ],
)
def test_what_does_not_render_is_placed_in_its_part(parted, wrong, says):
    catalogue = parted(LOOP, f"{wrong}\n{LOOP}")
    failed = rendered(catalogue)
    assert isinstance(failed, RenderFailed) and says in failed.message
    assert failed.line == line_of(catalogue, wrong)


def test_a_header_that_does_not_exist_is_placed_in_its_part(parted):
    catalogue = parted(LOOP, f'#include "gf/none.cuh"\n{LOOP}')
    where = line_of(catalogue, "gf/none.cuh")
    with pytest.raises(
        SpecError,
        match=f"{where.file}:{where.number}: the header 'gf/none.cuh' does not exist",
    ):
        rendered(catalogue)


def test_both_compilers_point_into_the_part(parted, toolchain, emulator):
    catalogue = parted("y[i] =", "z[i] =")
    source, where = rendered(catalogue), line_of(catalogue, "z[i] =")
    failed = toolchain.compile(source, "sm_90")
    assert (
        isinstance(failed, CompileFailed)
        and f"{where.file}({where.number}): error" in failed.sentence
    )
    kernel = catalogue.kernel("axpy")
    (template, point), case = a_point(kernel), workload_case(kernel.workloads[0], 0)
    problems = [lay_out(kernel, template, point, case, case_data(kernel, case))]
    with pytest.raises(Fault, match=re.escape(f" {where.file}:{where.number}:")):
        next(emulator.execute(emulator.load(source, None), problems))


@pytest.mark.slow
def test_the_emulator_finds_defects_in_the_part(parted, toolchain, emulator):
    entry = Entry(
        "right",
        "",
        "axpy",
        "right",
        "odd",
        stage="correctness",
        finds=("out_of_bounds",),
        reasons=("out_of_bounds", "wrong_values", "not_finite"),
        at="gf::to_float(x[i + N])",
    )
    catalogue = parted("to_float(x[i])", "to_float(x[i + N])")
    judged = judge(entry, catalogue, emulator, toolchain)
    assert judged.sentence == "" and {Line(*finding.where) for finding in judged.findings} == {
        line_of(catalogue, entry.at)
    }


# ---- the album's patches ----


@pytest.mark.parametrize(
    "entry",
    quick_every([entry for entry in entries() if entry.kind == "patch"], 12),
    ids=lambda entry: entry.id,
)
def test_a_patch_changes_the_file_that_holds_its_text(entry, tmp_path, catalogue):
    before = catalogue.kernel(entry.kernel).template(entry.template)
    after = catalogue_of(entry, tmp_path).kernel(entry.kernel).template(entry.template)
    assert after.text == before.text.replace(entry.old, entry.new) != before.text
    assert after.files.keys() == before.files.keys()


@pytest.mark.parametrize("old", ["no such text", "#pragma unroll", "float scale"])
def test_a_patch_has_one_place_in_all_files_of_its_template(old, tmp_path):
    entry = Entry("patch", "x", "attention", "mma", "mission", old=old, new="")
    with pytest.raises(
        SpecError, match=r"attention-x: template mma holds the text to change \d+ times"
    ):
        catalogue_of(entry, tmp_path)
