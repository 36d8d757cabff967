"""Texts as editors save them: marks, line ends, other encodings, nothing at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenfast.app.cli.new import kernel_files_of
from greenfast.search.devices.facts import device
from greenfast.search.errors import SpecError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource, RenderFailed, assemble, render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Space, resolve

COMPILED = (("dtype", "float32"),)


def saved(folder: Path, **changed: bytes) -> KernelSpec:
    """The kernel of `greenfast new`, with the bytes of some files replaced by their first words."""
    (folder / "vecsum").mkdir()
    for name, text in kernel_files_of("vecsum").items():
        data = changed.get(name.partition(".")[0] + "_" + name.rpartition(".")[2], text.encode())
        (folder / "vecsum" / name).write_bytes(data)
    return Catalogue([folder]).kernel("vecsum")


def rendered(kernel: KernelSpec) -> RenderedSource | RenderFailed:
    template = kernel.templates[0]
    candidate = preset_candidate(template, "plain", COMPILED)
    point = resolve(template, candidate.parameters, COMPILED, device("h200"))
    return render(kernel, template, point, Catalogue.from_environment().include_dirs)


def text_of(name: str) -> str:
    return kernel_files_of("vecsum")[name]


@pytest.mark.parametrize("change", ["\ufeff{}", "\ufeff{}\r\n"])
def test_what_an_editor_of_windows_adds_changes_no_source(tmp_path, change):
    (tmp_path / "plain").mkdir()
    (tmp_path / "windows").mkdir()
    plain = rendered(saved(tmp_path / "plain"))
    texts = {
        key: change.format(text_of(name).replace("\n", "\r\n")).encode()
        for key, name in (("kernel_toml", "kernel.toml"), ("block_j2", "block.cu.j2"))
    }
    windows = rendered(saved(tmp_path / "windows", **texts))
    assert isinstance(plain, RenderedSource) and isinstance(windows, RenderedSource)
    assert windows.text.strip() == plain.text.strip()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"// one\n// caf\xe9\n", "vecsum/block.cu.j2:2: this is not UTF-8 (save it as UTF-8)"),
        ("// text\n".encode("utf-16"), "vecsum/block.cu.j2:1: this is not UTF-8"),
        (b"//\n" * 9000 + b"\xff", "vecsum/block.cu.j2:9001: this is not UTF-8"),
        (b"// one\n\0", "vecsum/block.cu.j2:2: it holds a NUL character"),
    ],
)
def test_a_text_that_is_none_is_refused_with_its_line(tmp_path, data, sentence):
    with pytest.raises(SpecError) as refused:
        saved(tmp_path, block_j2=data)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("text", [b"", b" \r\n\t\n", b"{% if threads == 7 %}x{% endif %}\n"])
def test_a_template_that_renders_to_nothing_is_the_authors_error(tmp_path, text):
    source = rendered(saved(tmp_path, block_j2=text))
    assert isinstance(source, RenderFailed) and "renders to no text" in source.message


def test_a_point_without_launches_is_invalid_and_renders_to_nothing(tmp_path):
    launches = text_of("block.toml").replace("[[launches]]", '[[launches]]\nwhen = "threads > 512"')
    kernel = saved(tmp_path, block_toml=launches.encode())
    source = rendered(kernel)
    assert isinstance(source, RenderFailed) and "has no launch" in source.message
    space = Space(kernel.templates[0], COMPILED, device("h200"))
    point = preset_candidate(kernel.templates[0], "plain", COMPILED).parameters
    assert "there is no launch" in str(space.why_not(point)) and len(space.points) == 0


@pytest.mark.parametrize("end", ["\f", "\v", "\x1c", "\x85", "\u2028"])
def test_other_ends_of_lines_are_characters(end):
    lines = [(f"int a;  // one{end}two", Line("a.cu", 1)), ("int b;", Line("a.cu", 2))]
    assert assemble(lines, (), ()).marked().count("#line") == 1
