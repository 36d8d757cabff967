"""Logs of NVIDIA's tools become fields and findings with lines; other text is refused."""

from __future__ import annotations

import itertools
from contextlib import contextmanager

import pytest

from greenfast.search.diagnose.profile import ncu_command, parse_ncu, parse_sanitizer, run_tool
from greenfast.search.errors import UsageError

NCU_NAMES = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
    "gpu__time_duration.sum",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "launch__registers_per_thread",
    "lts__t_sector_hit_rate.pct",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
)
NCU_UNITS = (
    ("",) * 11 + ("ns", "%", "", "", "register/thread", "%", "%", "%", "%", "%") + ("inst",) * 5
)
# Layout, names, units and first values come from an H200's log (Nsight Compute 2025.3).
NCU_VALUES = (
    "0",
    "2645",
    "python3.12",
    "127.0.0.1",
    "attention_wmma",
    "1",
    "7",
    "(128, 1, 1)",
    "(8, 8, 2)",
    "0",
    "9.0",
    "10,880",
    "3.17",
    "1,024",
    "16",
    "129",
    "97.40",
    "24.39",
    "6.32",
    "18.94",
    "6.23",
    "0.75",
    "1.5",
    "1.0",
    "2.25",
    "0.5",
)


def csv(*rows: tuple[str, ...]) -> str:
    return "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows) + "\n"


NCU_LOG = (
    "==PROF== Connected to process 2645 (/usr/bin/python3.12)\n"
    "==PROF== Disconnected from process 2645\n" + csv(NCU_NAMES, NCU_UNITS, NCU_VALUES)
)


def test_counters_become_named_fields():
    (profile,) = parse_ncu(NCU_LOG)
    assert profile.entry == "attention_wmma" and profile.duration_us == pytest.approx(10.88)
    assert (
        profile.sm_throughput_percent,
        profile.dram_throughput_percent,
        profile.occupancy_percent,
    ) == (
        18.94,
        3.17,
        6.23,
    )
    assert (profile.registers, profile.shared_bank_conflicts, profile.l2_hit_percent) == (
        129,
        1040,
        97.4,
    )
    assert (profile.tensor_pipe_percent, profile.issue_slots_percent) == (6.32, 24.39)
    assert profile.stalls == (
        ("short_scoreboard", 2.25),
        ("long_scoreboard", 1.5),
        ("barrier", 0.75),
    )


def test_a_counter_that_the_gpu_lacks_is_none_and_every_launch_is_kept():
    short = [number for number, name in enumerate(NCU_NAMES) if "tensor" not in name]
    rows = [
        tuple(row[number] for number in short)
        for row in (NCU_NAMES, NCU_UNITS, NCU_VALUES, NCU_VALUES)
    ]
    profiles = parse_ncu(csv(*rows))
    assert (
        len(profiles) == 2
        and profiles[0].tensor_pipe_percent is None
        and profiles[0].registers == 129
    )


@pytest.mark.parametrize(
    ("log", "code"),
    [
        (
            (
                "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access "
                "NVIDIA GPU Performance Counters on the "
                "target device 0."
            ),
            "counters_not_permitted",
        ),
        ("==ERROR== Profiling is not supported on device 0.", "profiling_unsupported"),
        ("==WARNING== No kernels were profiled.", "nothing_profiled"),
        ("==ERROR== The application returned an error code (1).", "nothing_profiled"),
        ("", "nothing_profiled"),
    ],
)
def test_a_log_without_counters_is_one_sentence(log, code):
    with pytest.raises(UsageError) as refused:
        parse_ncu(log)
    assert refused.value.code == code and "\n" not in str(refused.value)


def test_the_launches_of_one_warm_pass_are_profiled(tmp_path):
    command = ncu_command(
        "python", tmp_path / "d.py", tmp_path, tmp_path / "log", ["split", "combine"], "mission"
    )
    pairs = dict(itertools.pairwise(command))
    assert (
        pairs["--kernel-name"] == "regex:^(split|combine)$"
        and pairs["--launch-skip"] == pairs["--launch-count"] == "2"
    )


MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at attention(const __half *, float)+0x70 in /tmp/cupy/5e1f.cu:12
=========     by thread (64,0,0) in block (3,0,0)
=========     Access at 0x7f3c2e000400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f3c2e000000 of size 1,024 bytes
=========
the program's own line
========= Program hit cudaErrorLaunchFailure (error 719) due to \
"unspecified launch failure" on CUDA API call to cudaStreamSynchronize.
=========
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at attention+0xb0 in /tmp/5e1f.cu:20
=========     and Read access at attention+0x1b0 in /tmp/5e1f.cu:25 [64 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
INITCHECK = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 2 bytes
=========     at attention(const __half *)+0x130
=========     by thread (0,0,0) in block (0,0,0)
========= ERROR SUMMARY: 1 error
"""


def test_reports_become_findings_with_lines_of_the_source():
    first, second = parse_sanitizer(MEMCHECK)
    assert (first.kind, first.entry, first.source_line) == ("out_of_bounds", "attention", 12)
    assert (
        first.sentence
        == "Invalid __global__ write of size 4 bytes by thread (64,0,0) in block (3,0,0)"
    )
    assert second.kind == "error" and second.source_line is None and "719" in second.sentence
    (race,) = parse_sanitizer(RACECHECK)
    assert (race.kind, race.entry, race.source_line, race.other_source_line) == (
        "race",
        "attention",
        20,
        25,
    )
    (finding,) = parse_sanitizer(INITCHECK)
    assert (finding.kind, finding.entry, finding.source_line) == (
        "uninitialised",
        "attention",
        None,
    )


def test_a_clean_log_has_no_findings_and_an_unfinished_one_is_refused():
    assert parse_sanitizer("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n") == ()
    with pytest.raises(UsageError, match="did not finish: Error: No attachable process"):
        parse_sanitizer(
            "========= COMPUTE-SANITIZER\n"
            "========= Error: No attachable process found. timed out.\n"
        )


def test_a_tool_runs_while_nobody_else_has_its_gpu():
    class Gpu:
        number, held = 3, []

        @contextmanager
        def alone(self):
            self.held.append("taken")
            yield
            self.held.append("given back")

    gpu = Gpu()
    assert (
        run_tool(["sh", "-c", "echo first; echo on GPU $CUDA_VISIBLE_DEVICES"], gpu) == "on GPU 3"
    )
    assert gpu.held == ["taken", "given back"]
