"""Launch files whose numbers no kernel can mean: the author is told, and nothing fails."""

from __future__ import annotations

import pytest
from contexts import workload_context

from greenfast.search.devices.facts import device
from greenfast.search.errors import SpecError
from greenfast.search.kernels.frozen import frozen_catalogue, kernel_files
from greenfast.search.loop.evaluate import evaluate
from greenfast.search.loop.submitted import Submission, files_with
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.problem import launches
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Rejected

SOURCE = 'extern "C" __global__ void mine() {}\n'


def frozen(album, folder, launch, source=SOURCE):
    kernel = album.kernel("axpy")
    submission = Submission("axpy", source, launch, "mine").checked()
    files = files_with(kernel_files(kernel, album.include_dirs), kernel.name, submission)
    return frozen_catalogue(files, folder), submission


def submitted(album, folder, launch):
    """The template of a launch file, its point and the values of a workload."""
    catalogue, submission = frozen(album, folder, launch)
    kernel = catalogue.kernel("axpy")
    compiled = kernel.workloads[0].compile_time(kernel)
    template = kernel.template(submission.template)
    return kernel, template, submission.candidate.parameters, compiled


@pytest.mark.parametrize("grid", ["-1", "N - 2**40", "0 - N"])
def test_a_negative_grid_is_the_authors_mistake(album, tmp_path, grid):
    launch = f'grid = ["{grid}"]\nblock = [32]\n'
    kernel, template, parameters, compiled = submitted(album, tmp_path, launch)
    point = resolve(template, parameters, compiled, device("h200"))
    with pytest.raises(SpecError) as refusal:
        launches(template, {**kernel.values_of({"N": 5}, {"dtype": "fp16"}), **point.values})
    assert refusal.value.code == "bad_grid"


def test_negative_shared_memory_fits_no_device(album, tmp_path):
    launch = 'grid = ["1"]\nblock = [32]\nsmem_dynamic_bytes = -1\n'
    _, template, parameters, compiled = submitted(album, tmp_path, launch)
    reason = Space(template, compiled, device("h200")).why_not(parameters)
    assert reason is not None and reason.startswith("-1 bytes of dynamic shared memory")


@pytest.mark.parametrize("tile", ["2**60", "2**31", "100000000"])
def test_tiles_that_make_checks_of_billions_of_elements_are_refused(album, tmp_path, tile):
    launch = f'grid = ["1"]\nblock = [32]\n[tiles]\ntile_q = "{tile}"\n'
    kernel, template, parameters, compiled = submitted(album, tmp_path, launch)
    point = resolve(template, parameters, compiled, device("h200"))
    with pytest.raises(SpecError) as refusal:
        derived_cases(kernel, compiled, dict(point.tiles), 1)
    assert "elements; a check has at most" in refusal.value.message


def test_an_entry_with_a_name_of_checks_own_is_refused(album, tmp_path):
    """The emulator takes such a name for a reference, which a text could point at any function."""
    launch = 'entry = "greenfast_entry_0"\ngrid = ["1"]\nblock = [32]\n'
    with pytest.raises(SpecError, match="has a name that `greenfast check` gives"):
        submitted(album, tmp_path, launch)


@pytest.mark.parametrize("entry", ["k) { } void evil(", "a$b", "__cuda_mine", "3d"])
def test_an_entry_is_one_word_of_the_author(album, tmp_path, entry):
    """The emulator writes it into code; ptxas does not report kernels with names of its own."""
    with pytest.raises(SpecError, match="is not a valid name of a kernel"):
        submitted(album, tmp_path, f'entry = "{entry}"\ngrid = ["1"]\nblock = [32]\n')


@pytest.mark.parametrize("size", ["'a'", "1e308 * 10", "1e308 * 10 - 1e308 * 10"])
@pytest.mark.parametrize("key", ["grid", "block", "smem_dynamic_bytes", "tile_q"])
def test_a_size_that_is_no_number_is_the_authors_mistake(album, tmp_path, key, size):
    """Not a bug of ours, which a text that becomes a number by int() would be."""
    sizes = {"grid": "1", "block": "32", "smem_dynamic_bytes": "0", "tile_q": "128", key: size}
    launch = f'grid = ["{sizes["grid"]}"]\nblock = ["{sizes["block"]}"]\n'
    launch += f'smem_dynamic_bytes = "{sizes["smem_dynamic_bytes"]}"\n'
    launch += f'[tiles]\ntile_q = "{sizes["tile_q"]}"\n'

    def launched():
        kernel, template, parameters, compiled = submitted(album, tmp_path, launch)
        point = resolve(template, parameters, compiled, device("h200"))
        launches(template, {**kernel.values_of({"N": 5}, {"dtype": "fp16"}), **point.values})

    with pytest.raises(SpecError) as refusal:
        launched()
    assert refusal.value.code == "bad_expression"


def test_a_kernel_called_like_a_function_of_the_library_is_the_authors(
    album, tmp_path, artifacts, toolchain
):
    source = 'extern "C" __global__ void memcpy(const short*, short*, int, float, float) {}\n'
    launch = 'entry = "memcpy"\ngrid = ["1"]\nblock = [32]\n'
    catalogue, submission = frozen(album, tmp_path, launch, source)
    target = open_target("emulator:h200", TargetSettings(artifacts, album.include_dirs, 1))
    context = workload_context(catalogue, "axpy", "line", target, toolchain)
    verdict = evaluate(submission.candidate, context).verdict
    assert isinstance(verdict, Rejected) and "give it another name" in verdict.sentence, verdict
