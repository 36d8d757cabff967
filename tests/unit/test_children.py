"""Python children under limits."""

from __future__ import annotations

import sys

from greenfast.search.children import Child, Limits

CHILD = """
import sys, big
from greenfast.search.children import serve_requests
serve_requests(lambda request: {"size": len(big.TEXT)}, int(sys.argv[1]), int(sys.argv[2]))
"""


def test_a_child_with_a_file_limit_leaves_no_bytecode_that_is_cut_off(tmp_path, monkeypatch):
    (tmp_path / "big.py").write_text(f"TEXT = {'x' * 100_000!r}\n")
    (tmp_path / "limited_child.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    for _ in range(2):  # the second would read what the first has left
        child = Child("limited_child", Limits(file_bytes=1000))
        assert child.call({}, 60.0) == {"size": 100_000}
        child.close()
    assert not list(tmp_path.rglob("*.pyc"))
