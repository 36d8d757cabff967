#!/usr/bin/env bash
# Runs the main job from request to download, with all set-up. Arguments go to scripts/demo.py.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
exec .venv/bin/python scripts/demo.py "$@"
