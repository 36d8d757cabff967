"""Rendering is strict, the text is the device form, and every line knows where it came from."""

from __future__ import annotations

import pytest

from greenfast.search.devices.facts import device
from greenfast.search.errors import SpecError
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource, RenderFailed, assemble, render, with_markers
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve
from greenfast.search.targets.emulator.build import EmulatorBuild
from greenfast.search.toolchain import CompileFailed

SHARED = '#include "gf/shared.cuh"'


def _assembled(catalogue, text):
    body = [(line, Line("k.cu", number)) for number, line in enumerate(text.split("\n"), 1)]
    return assemble(body, ["k"], catalogue.include_dirs)


def _render(catalogue, kernel_name, preset, workload=None):
    kernel = catalogue.kernel(kernel_name)
    template, point = kernel.preset(preset)
    compiled = (kernel.workload(workload) if workload else kernel.workloads[0]).compile_time(kernel)
    candidate = preset_candidate(template, point.name, compiled)
    return render(
        kernel,
        template,
        resolve(template, candidate.parameters, compiled, device("h200")),
        catalogue.include_dirs,
    )


@pytest.mark.parametrize(
    "preset", ["scalar:minimal", "scalar:vec", "wmma:stage2", "wmma:flashcore_a64"]
)
def test_the_source_is_the_device_form_with_nothing_left_of_the_template(catalogue, preset):
    source = _render(catalogue, "attention", preset)
    assert isinstance(source, RenderedSource)
    assert "gf/" not in source.text and "#line" not in source.text
    assert "{{" not in source.text and "{%" not in source.text and "\ue000" not in source.text
    assert source.text.count("#include <cuda_fp16.h>") == 1
    assert not source.raw_asm


def test_every_line_maps_to_the_line_it_came_from(catalogue):
    kernel = catalogue.kernel("attention")
    template = kernel.template("wmma")
    source = _render(catalogue, "attention", "wmma:stage2")
    original = {name: path.read_text().splitlines() for name, path in template.files.items()}
    plain = 0
    for text, line in zip(source.text.splitlines(), source.lines, strict=True):
        if line.file in original and text.strip():
            written = original[line.file][line.number - 1]
            if "{" + "{" not in written and "{%" not in written:
                assert text.strip() == written.strip()
                plain += 1
        elif line.file.startswith("gf/"):
            header = next(folder / line.file for folder in catalogue.include_dirs)
            assert header.read_text().splitlines()[line.number - 1].rstrip() == text
    assert plain > 100


def test_markers_name_a_line_wherever_the_origin_jumps():
    lines = [Line("a", 1), Line("a", 2), Line("a", 7), Line("b", 1)]
    assert with_markers(["one", "two", "seven", "b"], lines).splitlines() == [
        '#line 1 "a"',
        "one",
        "two",
        '#line 7 "a"',
        "seven",
        '#line 1 "b"',
        "b",
    ]


def test_the_same_candidate_renders_to_the_same_digest_and_another_to_another(catalogue):
    first, again = (_render(catalogue, "attention", "wmma:stage2") for _ in range(2))
    assert first == again
    assert _render(catalogue, "attention", "wmma:stage2", "mission_bf16").digest != first.digest


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{{ threads }}", "{{ thread }}", "'thread' is undefined"),
        ("{{ threads }}", "{{ lipsum() }}", "'lipsum' is undefined"),
        ("{{ threads }}", "{{ threads.__class__ }}", "unsafe"),
        ("{{ threads }}", "{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{{ threads }}", "{% if %}", "TemplateSyntaxError"),
    ],
)
def test_a_template_that_does_not_render_says_where(broken_kernel, old, new, message):
    failed = _render(broken_kernel("right.cu.j2", old, new), "axpy", "right:plain")
    assert isinstance(failed, RenderFailed)
    assert message in failed.message
    assert failed.line == Line("axpy/right.cu.j2", 8)


def test_a_text_without_end_is_stopped(broken_kernel):
    failed = _render(
        broken_kernel("right.cu.j2", "{{ threads }}", "{{ 'a' * 5000000 }}"), "axpy", "right:plain"
    )
    assert isinstance(failed, RenderFailed) and "longer than" in failed.message


def test_an_unknown_header_is_the_authors_error(broken_kernel):
    with pytest.raises(
        SpecError, match=r"axpy/right.cu.j2:5: the header 'gf/dtipe.cuh' does not exist"
    ) as caught:
        _render(broken_kernel("right.cu.j2", "gf/dtype.cuh", "gf/dtipe.cuh"), "axpy", "right:plain")
    assert caught.value.mend.startswith("did you mean gf/dtype.cuh? known: ")


def test_raw_assembly_in_a_template_is_seen(broken_kernel, catalogue):
    changed = broken_kernel("right.cu.j2", '#include "gf/dtype.cuh"', "")
    assert not _render(changed, "axpy", "right:plain").raw_asm
    changed = broken_kernel(
        "right.cu.j2", "    for (int step", '    asm volatile("");\n    for (int step'
    )
    assert _render(type(changed)(changed._roots), "axpy", "right:plain").raw_asm


@pytest.mark.parametrize(
    ("text", "has_header"),
    [
        (f"{SHARED} // for tiles", True),
        ("/* a */ #include <gf/shared.cuh>", True),
        (f"// \\\n{SHARED}", False),
        (f"/*\n{SHARED}\n*/", False),
        (f"#define X \\\n{SHARED}", False),
        (f'auto s = R"(\n{SHARED}\n)";', False),
        (f"{SHARED} /*\n*/ int a;", False),
    ],
)
def test_a_header_comes_in_where_a_compiler_finds_its_include(catalogue, text, has_header):
    """The emulator reads the include itself, so both must agree on what is one."""
    source = _assembled(catalogue, text)
    assert ("GF_DYNAMIC_SHARED" in source.text) is has_header


NOTED = """#pragma once
// Doubles a number.
//! Undefined: a number beyond 2^30.

    //! A note may be indented, and several may follow.
//! #include "gf/absent.cuh"
__device__ int twice(int x) { return 2 * x; }
//!
__device__ int wrong() { return absent; }
"""


@pytest.fixture
def with_header(tmp_path):
    """A source with a header of this text, which lies in a folder like a user's own."""

    def source(header: str, name: str = "mine.cuh") -> RenderedSource:
        (tmp_path / "gf").mkdir(exist_ok=True)
        (tmp_path / "gf" / name).write_text(header)
        text = f'#include "gf/{name}"\nextern "C" __global__ void k(int* y) {{ *y = 1; }}'
        body = [(line, Line("k.cu", number)) for number, line in enumerate(text.split("\n"), 1)]
        return assemble(body, ["k"], (tmp_path,))

    return source


def test_a_source_does_not_contain_the_notes_of_its_headers(with_header):
    source = with_header(NOTED)
    bare = [line for line in NOTED.split("\n") if not line.lstrip().startswith("//!")]
    plain = with_header("\n".join(bare), "plain.cuh")
    assert "//!" not in source.text
    assert (source.text, source.digest) == (plain.text, plain.digest)
    assert with_header(NOTED.replace("//!", "// "), "other.cuh").digest != plain.digest


@pytest.mark.parametrize("feed", ["\f", "\v", "\x1c", "\x85", "\u2028"])
def test_only_a_line_feed_ends_a_comment(with_header, broken_kernel, feed):
    """As for a compiler: the emulator reads a header as it is, so both must see the same code."""
    comment = f"// a comment{feed}int hidden;"
    assert comment in with_header(f"#pragma once\n{comment}\nint seen;\n").text.split("\n")
    changed = broken_kernel("right.cu.j2", "    for (int step", f"    {comment}\n    for (int step")
    source = _render(changed, "axpy", "right:plain")
    assert f"    {comment}" in source.text.split("\n")
    assert len(source.lines) == source.text.count("\n")


def test_messages_name_the_line_below_a_note(with_header, toolchain, artifacts, tmp_path):
    source = with_header(NOTED)
    written = NOTED.split("\n")
    for text, line in zip(source.text.split("\n"), source.lines, strict=False):
        assert line.file == "k.cu" or written[line.number - 1] == text
    failed = toolchain.compile(source, "sm_90")
    assert isinstance(failed, CompileFailed)
    assert 'gf/mine.cuh(9): error: identifier "absent" is undefined' in failed.log
    build = EmulatorBuild(artifacts, include_dirs=(tmp_path,))
    build.prepare()
    module = build.build_module(source.unit, ("k",), flavour="plain", deadline_s=60)
    assert "gf/mine.cuh:9:" in module.log


@pytest.mark.parametrize(
    "kept",
    [
        "#define TWO \\\n//! a\n2",
        "//! a \\\nstill a comment",
        "/*\n//! a\n*/",
        'constexpr auto text = R"(\n//! a\n)";',
        "int a; //! a",
        "// //! a",
    ],
)
def test_what_only_looks_like_a_note_stays(with_header, kept):
    assert f"{kept}\n" in with_header(f"{kept}\nint b;\n").text


def test_an_include_that_may_be_left_out_replaces_no_other(catalogue):
    left_out = "#if 0\n%s\n#endif\n%s"
    source = _assembled(catalogue, left_out % (("#include <mma.h>",) * 2))
    assert source.text.count("#include <mma.h>") == 2
    with pytest.raises(SpecError, match=r"line 4: .* is included twice"):
        _assembled(catalogue, left_out % (SHARED, SHARED))
