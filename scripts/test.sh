#!/usr/bin/env bash
# The tests, with all set-up. Arguments go to pytest: scripts/test.sh -m 'not slow' tests/unit
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --test
exec .venv/bin/python -m pytest "$@"
