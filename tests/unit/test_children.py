"""Python children under limits."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from greenfast.search.children import Child, ChildDied, Children, Limits
from greenfast.search.cpu_time import process_s

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


ENDLESS = """
import os, subprocess, sys
from greenfast.search.children import Child, Limits
child = Child("endless_child", Limits(cpu_s=60))
print(child.process.pid, child.call({"is_endless": False}, 60.0), flush=True)
child.call({"is_endless": True}, 60.0)
"""
LOOP = """
import sys
from greenfast.search.children import serve_requests
def answer(request):
    while request["is_endless"]:
        sum(range(10**9))  # holds the interpreter
    return {}
serve_requests(answer, int(sys.argv[1]), int(sys.argv[2]))
"""


def test_a_child_in_an_endless_loop_ends_when_its_parent_is_killed(tmp_path):
    (tmp_path / "endless_child.py").write_text(LOOP)
    path = f"{tmp_path}:{':'.join(sys.path)}"
    parent = subprocess.Popen(
        [sys.executable, "-c", ENDLESS],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid, _, reply = parent.stdout.readline().partition(" ")
    assert reply == "{}\n"
    _until(lambda: process_s(int(pid)) > 0.3)  # it works on the second request
    parent.kill()
    parent.communicate()
    _until(lambda: not _runs(int(pid)))


SLOW = """
import sys, time
from greenfast.search.children import serve_requests
def answer(request):
    time.sleep(request["seconds"])
    return request
serve_requests(answer, int(sys.argv[1]), int(sys.argv[2]))
"""


def test_data_that_arrives_while_a_child_works_does_not_end_it(tmp_path, monkeypatch):
    """The kernel may tell of a request's last bytes when the child has long read them."""
    (tmp_path / "slow_child.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    child = Child("slow_child", Limits())
    assert child.call({"seconds": 0}, 60.0) == {"seconds": 0}
    late = threading.Timer(0.3, os.write, (child._write, b"\0"))
    late.start()
    assert child.call({"seconds": 1}, 60.0) == {"seconds": 1}
    late.join()
    child.close()


def test_only_a_crash_says_something_of_a_childs_work():
    died = {number: ChildDied(-number, "") for number in (signal.SIGSEGV, signal.SIGIO)}
    assert died[signal.SIGSEGV].has_crashed and not died[signal.SIGIO].has_crashed
    assert not ChildDied(1, "").has_crashed


def _until(is_so):
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


TALKER = """
import os, sys, time
from greenfast.search.children import serve_requests
def answer(request):
    time.sleep(request["seconds"])
    return {"pid": os.getpid()}
serve_requests(answer, int(sys.argv[1]), int(sys.argv[2]))
"""


@pytest.mark.parametrize(("patience_s", "work_s", "count"), [(60.0, 0.0, 1), (0.05, 3.0, 2)])
def test_a_patient_pool_starts_another_child_only_for_long_work(
    tmp_path, monkeypatch, patience_s, work_s, count
):
    (tmp_path / "talking_child.py").write_text(TALKER)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    children = Children(2, "talking_child", Limits(), patience_s=patience_s)
    request = {"seconds": work_s}
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(children.call, [request] * 2, [60.0] * 2))
    children.close()
    assert len({answer["pid"] for answer in answers}) == count


def test_warm_children_are_there_before_they_are_needed():
    pool = Children(3, "greenfast.search.rendering.child", Limits())
    try:
        with pool.taken():
            pool.warm(2)
            assert len(pool.all) == 2
            pool.warm(5)
            assert len(pool.all) == 3
        before = set(pool.all)
        with pool.taken("a"), pool.taken("b"), pool.taken("c"):
            assert set(pool.all) == before
    finally:
        pool.close()


BOUNDED = """
import resource, sys
from greenfast.search.children import Child, Limits
kind, most = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(kind, (most, most))
child = Child("limits_child", Limits(cpu_s=10**6, memory_bytes=2**43, file_bytes=2**43))
print(child.call({"kind": kind}, 60.0)["limit"], flush=True)
"""
OWN_LIMITS = """
import resource, sys
from greenfast.search.children import serve_requests
def answer(request):
    return {"limit": resource.getrlimit(request["kind"])}
serve_requests(answer, int(sys.argv[1]), int(sys.argv[2]))
"""


@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_CPU"])
def test_a_child_starts_under_lower_limits_than_its_own(tmp_path, name):
    """`ulimit -v` of a batch system, for example; nobody but root may raise it again."""
    (tmp_path / "limits_child.py").write_text(OWN_LIMITS)
    most = {"RLIMIT_AS": 2**40, "RLIMIT_FSIZE": 2**40, "RLIMIT_CPU": 10**5}[name]
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, str(getattr(resource, name)), str(most)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"[{most}, {most}]\n", "")
