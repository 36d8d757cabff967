"""Submitted sources as templates: what renders is the text, and identities stay as they are."""

from __future__ import annotations

import pytest

from greenfast.search.devices.facts import device
from greenfast.search.errors import SpecError
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.frozen import frozen_catalogue, kernel_files
from greenfast.search.kernels.identity import kernel_identity
from greenfast.search.loop.submitted import Submission, files_with, launch_of, record_in
from greenfast.search.loop.submitted_parent import writable
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Space, resolve

LAUNCH = 'grid = ["ceil_div(N, 64)"]\nblock = [64]\n'
H200 = device("h200")


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue([REPOSITORY_TEMPLATES])


def loaded(catalogue, kernel, submission, folder):
    files = files_with(kernel_files(kernel, catalogue.include_dirs), kernel.name, submission)
    return files, frozen_catalogue(files, folder)


def rendered(catalogue, kernel, candidate, compiled):
    template = kernel.template(candidate.template)
    point = resolve(template, candidate.parameters, compiled, H200)
    source = render(kernel, template, point, catalogue.include_dirs)
    assert isinstance(source, RenderedSource)
    return source, point


@pytest.mark.parametrize(
    "name, preset",
    [("rmsnorm", ""), ("gemm", "wgmma"), ("attention", "mma")],
)
def test_a_candidate_that_is_submitted_again_is_the_same_source(catalogue, tmp_path, name, preset):
    """Also with parameters, tensor maps and workspaces, which become constants of its launches."""
    kernel = catalogue.kernel(name)
    template = kernel.template(preset) if preset else kernel.preset(kernel.baseline)[0]
    compiled = kernel.workloads[0].compile_time(kernel)
    space = Space(template, compiled, H200)
    candidates = [preset_candidate(template, each.name, compiled) for each in template.presets]
    original = next(each for each in candidates if space.why_not(each.parameters) is None)
    text = writable(kernel, original, compiled, H200, catalogue.include_dirs)
    submission = Submission(name, text.source, text.launch).checked()
    _, frozen = loaded(catalogue, kernel, submission, tmp_path)
    again = frozen.kernel(name)
    before, point = rendered(catalogue, kernel, original, compiled)
    after, its_point = rendered(frozen, again, submission.candidate, compiled)
    assert after.text == before.text and after.entries == before.entries
    assert its_point.tiles == point.tiles and its_point.clusters == point.clusters
    assert its_point.threads_per_block == point.threads_per_block
    assert its_point.smem_dynamic_bytes == point.smem_dynamic_bytes
    assert kernel_identity(again) == kernel_identity(kernel)


def test_jinja_in_a_source_is_text(catalogue, tmp_path):
    source = (
        'int a[2][1] = {{1}, {2}}; // {# no comment #} {% if x %}\nconst char* t = "{{ 1 }}";\n'
    )
    kernel = catalogue.kernel("rmsnorm")
    submission = Submission("rmsnorm", source, 'grid = "1"\nblock = 1\n', "mine", "An author")
    files, frozen = loaded(catalogue, kernel, submission, tmp_path)
    compiled = kernel.workloads[0].compile_time(kernel)
    text, _ = rendered(frozen, frozen.kernel("rmsnorm"), submission.candidate, compiled)
    assert text.text == source
    assert [(line.file.rpartition("/")[2], line.number) for line in text.lines] == [
        ("source.cu.j2", 1),
        ("source.cu.j2", 2),
    ]
    assert record_in(files, submission.template)["author"] == "An author"
    heading = dict(files.files)[f"rmsnorm/{submission.template}.toml"]
    again = Submission("rmsnorm", source, launch_of(heading), "mine")
    assert again.digest == submission.digest


def test_the_digest_covers_source_and_launches_and_not_its_author():
    first = Submission("axpy", "int a;", LAUNCH, "mine")
    same = Submission("axpy", "int a;\r\n", LAUNCH + "# a remark\n", "mine", author="somebody")
    assert first.digest == same.digest and first.candidate.digest == same.candidate.digest
    for other in (
        Submission("axpy", "int b;", LAUNCH, "mine"),
        Submission("axpy", "int a;", LAUNCH, "other"),
        Submission("axpy", "int a;", LAUNCH.replace("64]", "32]"), "mine"),
    ):
        assert other.digest != first.digest


@pytest.mark.parametrize(
    "launch",
    [
        "",
        'kernel = "x"\n' + LAUNCH,
        '[[launches]]\ngrid = ["1"]\nblock = ["1"]\n[parameters.x]\ntype = "int"\n',
        LAUNCH + '[tiles]\n"a\\nb" = "1"\n',
        LAUNCH + '[tiles]\na = "1\\n[presets.x]"\n',
        LAUNCH + "[tiles]\na = 1979-05-27\n",
        "launches = 1\n",
        '[[launches]]\ngrid = ["1"]\nblock = ["1"]\n' * 33,
        LAUNCH + "[tiles]\n" + "".join(f"a{number} = 1\n" for number in range(201)),
        "launches = [1]\n",
        LAUNCH + "tiles = 1\n",
        "x = [" * 100,
    ],
)
def test_a_launch_file_of_anything_else_is_refused(launch):
    with pytest.raises(SpecError):
        Submission("rmsnorm", "int a;", launch, "mine").checked()
