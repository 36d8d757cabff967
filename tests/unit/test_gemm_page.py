"""docs/gemm.md says what the results and the template say."""

from bench.gpu.hopper_rows import GEMM
from bench.pages.gemm_page import PAGE, pages, presets, sweep
from bench.results import read_result
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue


def test_the_page_is_what_results_and_presets_make_of_it():
    assert PAGE.read_text() == pages()[PAGE], "run `python -m bench.pages.gemm_page --save`"


def test_every_row_of_the_sweep_has_a_right_winner_and_a_line():
    stored = read_result("h200/gemm_sweep")["rows"]
    assert [row["workload"] for row in stored] == [workload for workload, _ in GEMM]
    assert all(row["finalists"] and not row["wrong"] for row in stored)
    assert all(f"`{workload}`" in sweep() for workload, _ in GEMM)


def test_each_row_begins_with_a_preset_of_the_table():
    template = Catalogue([REPOSITORY_TEMPLATES]).kernel("gemm").template("wgmma")
    names = {preset.name for preset in template.presets}
    assert {baseline.partition(":")[2] for _, baseline in GEMM} <= names
    assert all(f"`{name}`" in presets() for name in names)
