"""`greenfast import` of notebooks, whose cells are a script and the files that it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_import_kernel import run  # noqa: F401 (a fixture)

from greenfast.app.cli.import_script import read_script
from greenfast.search.errors import UsageError

KERNEL = """%%writefile copy.cu
__global__ void copy(float *c, const float *a, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) c[i] = a[i];
}"""
SETUP = """%matplotlib inline
import numpy as np
!pip install kernel_tuner
note = '''
%not a magic é
'''
n = 640"""
TUNE = """%%time
c = np.zeros(n, np.float32); a = np.ones_like(c); args = [c, a, np.int32(n)]
tune_kernel?
tune_kernel("copy", "copy.cu", n, args, {"block_size_x": [32, 64]})"""


def notebook(*cells, indent=1):
    content = {
        "nbformat": 4,
        "cells": [
            {"cell_type": "markdown", "source": ["%%writefile copy.cu\n", "wrong"]},
            *(
                {"cell_type": "code", "outputs": [], "source": cell.splitlines(keepends=True)}
                for cell in cells
            ),
        ],
    }
    return json.dumps(content, indent=indent)


def test_a_notebook_is_imported_with_the_files_that_its_cells_write(run):  # noqa: F811
    Path("n.ipynb").write_text(notebook(KERNEL, SETUP, "%%bash\nnvidia-smi", TUNE))
    code, out, err = run("import", "n.ipynb", "--name", "copied")
    assert code == 0, err
    assert "--arg c:float32[n]:output --arg a:float32[n]:input --arg n:int32=640" in out
    assert "if (i < n) c[i] = a[i];" in Path("kernels/copied/plain.cu.j2").read_text()


@pytest.mark.parametrize("indent", [1, None])
def test_messages_name_the_line_of_the_notebook_s_file(tmp_path, indent):
    path = tmp_path / "n.ipynb"
    path.write_text(notebook(SETUP, TUNE + "\n1 +", indent=indent))
    with pytest.raises(UsageError) as refused:
        read_script(path)
    written = path.read_text().split("\n")
    line = written.index('    "1 +"') + 1 if indent else 12
    assert f"n.ipynb:{line} is not valid Python" in str(refused.value)


@pytest.mark.parametrize(
    "content", ["{}", "no JSON", '{"cells": [1]}', '{"cells": [{"source": 1}]}']
)
def test_another_file_is_no_notebook(tmp_path, content):
    path = tmp_path / "n.ipynb"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"n\.ipynb is not a notebook of Jupyter \(save it in"):
        read_script(path)
