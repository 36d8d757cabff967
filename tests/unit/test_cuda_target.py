"""The parent's side of the GPU target, with a real child that has no GPU."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from slow_cases import quick_first

from greenfast.search.devices.facts import device
from greenfast.search.errors import Fault, UsageError
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.oracle.cases import Case, workload_case
from greenfast.search.oracle.problem import POISON, LaunchPlan, Problem, Tensor
from greenfast.search.oracle.reference import case_data
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Rival
from greenfast.search.targets.cuda import driver, execution, gpu_count
from greenfast.search.targets.cuda import target as cuda
from greenfast.search.targets.cuda.failures import cannot_start
from greenfast.search.targets.cuda.images import ImageFiles
from greenfast.search.targets.cuda.lock import GpuLock, locks_folder
from greenfast.search.targets.cuda.nvml import Health, foreign_percent, own_number, strangers
from greenfast.search.targets.cuda.quarantine import QUARANTINE_S, Quarantine
from greenfast.search.timing import LOOKS
from greenfast.search.verdict import Reason

HERE = Path(__file__).parent


def problem_of(fill: int, size: int = 40) -> Problem:
    def tensor(name, role, byte):
        return Tensor(
            name, role, np.dtype(np.float32), (size // 4,), (1,), np.full(size, byte, np.uint8)
        )

    x, y = tensor("x", "input", fill), tensor("y", "output", POISON)
    return Problem(
        Case(f"case{fill}", (), (), "normal", "contiguous", 0, ()),
        (x, y),
        (),
        (x, y),
        (LaunchPlan("entry", (1, 1, 1), (32, 1, 1), 0),),
        0.0,
        0.0,
    )


@pytest.fixture
def target(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE.parents[1]), str(HERE)]))
    monkeypatch.setattr(driver, "device_of", lambda number: device("h200"))
    monkeypatch.setattr(driver, "gpu_uuid", lambda number: "0123")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # its locks are no other test's
    monkeypatch.setattr(cuda.CudaTarget, "measurer", "standin_measurer")
    opened = cuda.CudaTarget("0", tmp_path, 3.0)
    yield opened
    opened.close()


def jobs(target) -> int:
    """Requests that its present child has answered."""
    return target._open().child.jobs


def heard(target, monkeypatch) -> list[dict]:
    """The requests to its child from now on."""
    conversation, requests = target._open().conversation, []
    reply = conversation.reply
    monkeypatch.setattr(
        conversation, "reply", lambda request: requests.append(request) or reply(request)
    )
    return requests


def program(target, words):
    return target.load(None, SimpleNamespace(code=words.encode()))


def test_a_lost_reporter_costs_one_request(target):
    (first,) = target.execute(program(target, "copies"), [problem_of(1)])
    assert first.failure is None
    (reporter,) = (int(pid) for pid in children_of(target.child_pid))
    os.kill(reporter, signal.SIGKILL)
    with pytest.raises(Fault) as lost:
        list(target.execute(program(target, "copies"), [problem_of(2)]))
    assert lost.value.code == "child_lost"
    (after,) = target.execute(program(target, "copies"), [problem_of(3)])
    assert after.failure is None and set(after.outputs["y"]) == {3}


def children_of(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_run_with_damage_is_repeated_once_with_inputs_copied_anew(target, monkeypatch):
    conversation, sent = target._open().conversation, []
    once = conversation._reply
    monkeypatch.setattr(
        conversation, "_reply", lambda request: sent.append(request) or once(request)
    )
    (damaged,) = target.execute(program(target, "writes_x"), [problem_of(1)])
    assert damaged.failure.reason is Reason.INPUT_CHANGED
    assert [request.get("anew", False) for request in sent] == [False, True]
    (right,) = target.execute(program(target, "copies"), [problem_of(1)])
    assert right.failure is None and len(sent) == 3


def test_whoever_has_the_gpu_alone_has_its_turn_and_its_lock_and_needs_no_child(target, tmp_path):
    turns = []

    @contextmanager
    def turn(uuid):
        turns.append(uuid)
        yield

    target._turn = turn
    another = GpuLock(locks_folder(tmp_path / "another"), "0123", "cuda:0", 0.1)
    with target.alone():
        assert turns == ["0123"] and target._open().child.running is None and target.number == 0
        with pytest.raises(Fault, match="another process has used"), another.held():
            pass
    with another.held():
        pass
    another.close()


def test_all_data_folders_of_a_user_share_a_gpus_lock(target, tmp_path):
    other = cuda.CudaTarget("0", tmp_path / "elsewhere", 3.0)
    with target.alone(), pytest.raises(BlockingIOError):
        fcntl.flock(other._open().lock._gpu, fcntl.LOCK_EX | fcntl.LOCK_NB)
    other.close()


@pytest.mark.parametrize("spoil", ["writable", "linked", "a file"])
def test_a_folder_of_locks_that_others_could_write_to_is_not_used(tmp_path, monkeypatch, spoil):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shared = locks_folder(tmp_path / "own")
    assert shared.parent == tmp_path and locks_folder(tmp_path / "own") == shared
    shared.rmdir()
    if spoil == "writable":
        shared.mkdir()
        shared.chmod(0o777)
    elif spoil == "linked":
        (tmp_path / "target").mkdir(mode=0o700)
        shared.symlink_to(tmp_path / "target")
    else:
        shared.touch()
    assert locks_folder(tmp_path / "own") == tmp_path / "own"


def test_a_candidate_waits_for_who_has_the_gpu_alone(target):
    order, begun = [], threading.Event()

    def run():
        begun.set()
        order.extend(
            execution.problem.case.name
            for execution in target.execute(program(target, "right"), [problem_of(1)])
        )

    target.prepare()
    with target.alone():
        thread = threading.Thread(target=run)
        thread.start()
        assert begun.wait(5.0)
        time.sleep(0.2)
        order.append("alone")
    thread.join()
    assert order == ["alone", "case1"]


def test_all_problems_of_a_candidate_take_one_request_and_come_back_in_order(target):
    problems = [problem_of(fill) for fill in (1, 2, 3)]
    executions = list(target.execute(program(target, "right"), problems))
    assert [execution.problem for execution in executions] == problems and jobs(target) == 1
    assert [set(execution.outputs["y"].tolist()) for execution in executions] == [{1}, {2}, {3}]


def test_a_run_that_breaks_is_the_only_one_that_failed(target):
    problems = [problem_of(fill) for fill in (1, 2, 3, 4)]
    executions = list(target.execute(program(target, "breaks_at_3"), problems))
    assert [
        execution.failure.reason if execution.failure else None for execution in executions
    ] == [
        None,
        None,
        Reason.DEVICE_FAULT,
        None,
    ]
    assert [
        set(execution.outputs["y"].tolist()) for execution in executions if not execution.failure
    ] == [{1}, {2}, {4}]


@pytest.mark.parametrize(("words", "reason"), [("hangs_once", None), ("hangs", Reason.TIMEOUT)])
def test_a_run_without_an_end_is_repeated_before_it_is_a_verdict(
    target, monkeypatch, words, reason
):
    requests = heard(target, monkeypatch)
    (execution,) = target.execute(program(target, words), [problem_of(1)])
    assert (execution.failure.reason if execution.failure else None) == reason
    assert len(requests) == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [("past_the_end", Reason.OUT_OF_BOUNDS), ("writes_x", Reason.INPUT_CHANGED)],
)
def test_what_a_run_damaged_is_its_own_failure(words, reason, target):
    (execution,) = target.execute(program(target, words), [problem_of(1)])
    assert execution.failure.reason is reason and not execution.outputs


def test_a_child_that_dies_by_itself_is_our_fault_and_the_next_request_finds_a_new_one(target):
    with pytest.raises(Fault) as fault:
        list(target.execute(program(target, "dies"), [problem_of(1)]))
    assert fault.value.code == "child_lost"
    assert len(list(target.execute(program(target, "right"), [problem_of(1)]))) == 1


def test_large_problems_go_a_few_at_a_time(target, monkeypatch):
    monkeypatch.setattr(execution, "BATCH_BYTES", 200)
    executions = list(
        target.execute(program(target, "right"), [problem_of(fill) for fill in range(1, 8)])
    )
    assert [set(execution.outputs["y"].tolist()) for execution in executions] == [
        {fill} for fill in range(1, 8)
    ]
    assert jobs(target) == 4


@pytest.mark.parametrize(
    ("mode", "size", "says"),
    quick_first(
        [("auto", 40, "hot"), ("cold", 40, "cold"), ("hot", 40, "hot"), ("auto", 40 << 20, "cold")],
        3,
    ),
)
def test_the_mode_of_a_time_is_the_problems_or_follows_from_its_size_and_is_in_the_note(
    mode, size, says, target
):
    (timing,) = target.measure(
        program(target, "right"), None, [replace(problem_of(1, size), mode=mode)]
    )
    assert (
        timing.note.startswith(f"{says}, ring of")
        and timing.limited_by == ""
        and timing.mode == says
    )


def test_a_search_may_ask_for_a_mode_and_an_unknown_one_is_refused_with_the_known_ones(catalogue):
    def plan(mode):
        return make_plan(SearchRequest("attention", templates=("wmma",), mode=mode), catalogue)

    assert [plan(mode).mode for mode in (None, "auto", "hot", "cold")] == [
        "auto",
        "auto",
        "hot",
        "cold",
    ]
    with pytest.raises(UsageError, match="warm") as refused:
        plan("warm")
    assert all(mode in f"{refused.value} {refused.value.mend}" for mode in ("auto", "hot", "cold"))


def test_a_race_is_screened_for_one_workload_that_may_end_early_only(target, monkeypatch):
    requests = heard(target, monkeypatch)
    problem, right = problem_of(1), program(target, "right")
    target.measure(right, None, [problem], Rival(right, (problem,)))
    target.measure(right, None, [problem, problem], Rival(right, (problem, problem)))
    target.measure(right, None, [problem], Rival(right, (problem,), to_the_end=True))
    assert [(tuple(each["looks"]), each["screen"]) for each in requests] == [
        (LOOKS, True),
        (LOOKS, False),
        (LOOKS, False),
        (LOOKS[-1:], False),
    ]


def test_a_gpu_on_which_no_child_starts_twice_in_a_row_is_set_aside_with_the_reason(
    target, tmp_path, monkeypatch
):
    monkeypatch.setattr(cuda.CudaTarget, "measurer", "no_such_module")
    with pytest.raises(
        Fault, match="is set aside for 300 s: it could not be started twice in a row"
    ) as fault:
        target.prepare()
    assert fault.value.code == "gpu_quarantined" and "no_such_module" in str(fault.value)
    monkeypatch.setattr(cuda.CudaTarget, "measurer", "standin_measurer")
    other = cuda.CudaTarget("0", tmp_path, 3.0)
    with pytest.raises(Fault, match="set aside"):
        other.prepare()  # another process would hear the same
    Quarantine(tmp_path / "locks", "0123", "cuda:0").lift()
    other.prepare()
    other.close()


def test_a_quarantine_ends_by_itself(tmp_path):
    now = [1000.0]
    quarantine = Quarantine(tmp_path, "0123", "cuda:0", lambda: now[0])
    quarantine.check()
    assert quarantine.begin("it is lost").code == "gpu_quarantined"
    now[0] += QUARANTINE_S - 1
    with pytest.raises(Fault, match="for 1 s: it is lost"):
        quarantine.check()
    now[0] += 2
    quarantine.check()


@pytest.mark.parametrize(
    ("tail", "code"),
    [
        ("ModuleNotFoundError: No module named 'cupy'", "cupy_missing"),
        (
            "CUDARuntimeError: cudaErrorInsufficientDriver: CUDA driver version is insufficient",
            "driver_too_old",
        ),
        ("CUDARuntimeError: cudaErrorMemoryAllocation: out of memory", "gpu_memory"),
        (
            "CUDARuntimeError: cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy",
            "gpu_busy",
        ),
        ("CUDARuntimeError: cudaErrorSystemDriverMismatch: mismatch", "driver_mismatch"),
        ("", "gpu_not_ready"),
        ("CUDARuntimeError: cudaErrorUnknown: unknown error", "gpu_not_ready"),
    ],
)
def test_why_no_child_can_start_is_one_sentence_with_a_mend(tail, code):
    fault = cannot_start("cuda:0", f"Traceback\n  File x\n{tail}\n")
    assert (
        fault.code == code
        and str(fault).startswith("cuda:0 ")
        and "\n" not in str(fault)
        and fault.mend
    )


def test_a_gpu_that_is_not_there_is_refused_with_what_is(tmp_path):
    with pytest.raises(UsageError) as refused:
        open_target("cuda:9", TargetSettings(tmp_path, (), 1))
    assert refused.value.code == "no_gpu" and "cuda:9 cannot be used on this machine: " in str(
        refused.value
    )
    assert refused.value.mend
    if not gpu_count():
        assert "driver" in str(refused.value)


@pytest.mark.parametrize(
    ("status", "count", "sentence"),
    [
        (driver.NO_LIBRARY, 0, "no NVIDIA driver is installed"),
        (100, 0, "shows no CUDA device"),
        (0, 0, "shows no CUDA"),
        (803, 0, "different versions"),
        (999, 0, "cuInit returned 999"),
        (0, 1, "1 CUDA device is visible, the last is cuda:0"),
        (0, 8, "8 CUDA devices are visible, the last is cuda:7"),
        (0, 10, ""),
    ],
)
def test_why_a_gpu_cannot_be_used(status, count, sentence):
    assert (sentence in driver.why_not(9, status, count)) and bool(
        driver.why_not(9, status, count)
    ) is bool(sentence)


def test_a_gpu_too_old_for_the_compiler_is_refused_with_both_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "greenfast.search.targets.cuda.device_of", lambda number: replace(device("h200"), sm=70)
    )
    monkeypatch.setattr("greenfast.search.targets.cuda.why_not", lambda *_: "")
    with pytest.raises(
        UsageError, match="cuda:0 is sm_70, but the compiler needs sm_75 or later"
    ) as refused:
        open_target("cuda:0", TargetSettings(tmp_path, (), 1))
    assert refused.value.code == "gpu_too_old"


def test_image_files_are_written_once_and_stay_while_they_are_used(tmp_path):
    files = ImageFiles(tmp_path, kept_bytes=100)
    first, same, other = problem_of(1), problem_of(1), problem_of(2)
    with files.held([first, same]) as paths, files.held([other]) as more:
        assert paths[0] == paths[1] and paths[0] != more[0]
        assert all(path.stat().st_size == 80 for path in (*paths, *more))
    assert [path.exists() for path in (paths[0], more[0])].count(True) == 1


# Versions of reference.py: o is 1e-6 too large with CuPy, CuPy is not accepted, or it raises.
SHIFTED = """
_right = reference
def reference(dims, options, inputs, xp=np):
    found = _right(dims, options, inputs)
    if xp is not np:
        found["o"]["value"] = found["o"]["value"] + 1e-6
    return found
"""
UNAWARE = """
_right = reference
def reference(dims, options, inputs):
    return _right(dims, options, inputs)
"""
BREAKS = SHIFTED.replace("xp is not np", "xp is not np and xp.no_such_function")


@pytest.mark.parametrize(
    ("added", "trusted"), [("", True), (SHIFTED, False), (UNAWARE, False), (BREAKS, False)]
)
def test_a_large_reference_comes_from_the_gpu_only_if_it_agrees_with_numpy(
    added, trusted, target, catalogue, monkeypatch
):
    monkeypatch.setattr(cuda, "LARGE_FLOP", 0.0)
    kernel = catalogue.kernel("attention")
    kernel = replace(kernel, reference_text=kernel.reference_text + added)
    case = workload_case(kernel.workload("small"), 3)
    computed, right = target.case_data(kernel, case), case_data(replace(kernel), case)
    assert target._references[id(kernel), case.options][1] is trusted
    for name, output in right.outputs.items():
        assert np.array_equal(computed.outputs[name].value, output.value)
        # The child has fewer threads: BLAS adds a bound's float32 sums in another order.
        np.testing.assert_allclose(computed.outputs[name].bound, output.bound, rtol=1e-6)
    assert all(np.array_equal(computed.inputs[name], right.inputs[name]) for name in right.inputs)


def test_a_small_reference_asks_no_gpu(target, catalogue):
    kernel = catalogue.kernel("attention")
    target.case_data(kernel, workload_case(kernel.workload("small"), 4))
    assert jobs(target) == 0 and not target._references


def test_other_peoples_work_is_told_from_our_own():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert strangers([os.getpid(), 1, child.pid], os.getpid()) == {1, child.pid} - (
            {1} if os.getppid() == 1 else set()
        )
        assert strangers([123456789], None) == set()
    finally:
        child.communicate(b"\n")
    assert (
        foreign_percent([(7, 30), (8, 90), (9, 4)], {7, 9}) == 30 and foreign_percent([], {7}) == 0
    )


def test_this_process_is_known_by_its_number_or_as_the_one_that_came_with_its_context():
    assert own_number({5}, {5, os.getpid(), 9}) == os.getpid()
    assert own_number({5}, {5, 7}) == 7  # a container: NVML counts by the host's numbers
    assert own_number({5}, {5}) is None and own_number(set(), {7, 8}) is None


class FakeNvml:
    """NVML as on an H200: samples are rare, and a query for too short a time finds none."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVMLError_NotFound = type("NVMLError_NotFound", (NVMLError,), {})
    NVML_CLOCK_SM = 1

    def __init__(self):
        self.users, self.looks = [1001], []
        self.busy = dict
        self.nvmlInit = lambda: None
        self.nvmlDeviceGetHandleByPciBusId = lambda bus: "handle"
        self.nvmlSystemGetDriverVersion = lambda: "580"
        self.nvmlDeviceGetComputeRunningProcesses = lambda handle: [
            SimpleNamespace(pid=user) for user in self.users
        ]

    def nvmlDeviceGetProcessUtilization(self, handle, since_us):  # noqa: N802 - NVML's name
        self.looks.append(time.time() - since_us / 1e6)
        if self.looks[-1] < 0.5 or not self.busy():
            raise self.NVMLError_NotFound
        return [SimpleNamespace(pid=pid, smUtil=share) for pid, share in self.busy().items()]


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml()
    bus = SimpleNamespace(
        cuda=SimpleNamespace(
            runtime=SimpleNamespace(deviceGetPCIBusId=lambda number: "0000:01:00.0")
        )
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setitem(sys.modules, "cupy", bus)
    return fake


def test_a_process_that_never_pauses_is_waited_for_and_then_said(nvml):
    health = Health(0)
    nvml.users = [1001, 2002]  # 2002 is this one
    nvml.busy = lambda: {1001: 97, 2002: 3}
    begun = time.monotonic()
    assert health.quiet(0.6) == {"gpu_processes": 2.0, "foreign_busy_percent": 97.0}
    assert time.monotonic() - begun >= 0.6 and min(nvml.looks) > 0.9  # each look at a whole second


def test_a_process_that_has_ended_or_only_holds_memory_is_not_waited_for(nvml):
    health = Health(0)
    nvml.users = [1001, 2002]
    nvml.busy = lambda: {1: {1001: 97}, 2: {1001: 60}}.get(len(nvml.looks), {})
    assert health.quiet(30.0) == {"gpu_processes": 2.0, "foreign_busy_percent": 0.0}
    assert len(nvml.looks) == 3
    nvml.users = [2002]
    assert Health(0).quiet(30.0) == {"gpu_processes": 1.0}
