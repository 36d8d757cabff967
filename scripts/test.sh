#!/usr/bin/env bash
# The tests, with all set-up. Arguments go to pytest: scripts/test.sh -m 'not slow' tests/unit
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --test
# Two processes halve the wait of a two-core machine. Where a GPU is, one: two never time on it at once.
processes=2
command -v nvidia-smi >/dev/null && processes=0
exec .venv/bin/python -m pytest -n "${GREENFAST_TEST_PROCESSES:-$processes}" --dist worksteal "$@"
