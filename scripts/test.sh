#!/usr/bin/env bash
# The tests, with all set-up. Arguments go to pytest: scripts/test.sh tests/unit
# GREENFAST_SLOW_TESTS=1 adds those that take long: a compiler's crash, candidates that attack a service, 2^31 elements.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --test
# Three processes keep a two-core machine busy: while one waits, for a lease or a browser, the others compute. Where a GPU
# is, one: two never time on it at once.
processes=3
command -v nvidia-smi >/dev/null && processes=0
chosen="not slow"
[ "${GREENFAST_SLOW_TESTS:-}" = 1 ] && chosen=""
exec .venv/bin/python -m pytest -n "${GREENFAST_TEST_PROCESSES:-$processes}" --dist worksteal -m "$chosen" "$@"
