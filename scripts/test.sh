#!/usr/bin/env bash
# Set up and run the tests. Arguments go to pytest: scripts/test.sh tests/unit
# --slow as the first argument runs the slow tests alone: more cases of what the others cover, hostile candidates in a
# service, other Pythons, 2^31 elements. GREENFAST_SLOW_TESTS=1 adds them to the others.
# --cpu-report=FILE writes the processor time of each test.
# GREENFAST_TEST_CACHE=FOLDER keeps compiled programs from run to run; without it every run compiles them anew.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --test
unset PYTHONDONTWRITEBYTECODE  # each of hundreds of processes would compile all of greenfast
# Two processes: each further one spends seven seconds of processor time on collecting the tests. On a machine with a GPU
# everything runs in one process: two must never time on it at once.
processes=2
command -v nvidia-smi >/dev/null && processes=0
selection="not slow"
[ "${GREENFAST_SLOW_TESTS:-}" = 1 ] && selection=""
if [ "${1:-}" = "--slow" ]; then selection="slow"; shift; fi
# A file's tests share one process, so that its services, searches and compiled programs are made once.
exec .venv/bin/python -m pytest -n "${GREENFAST_TEST_PROCESSES:-$processes}" --dist loadfile -m "$selection" "$@"
