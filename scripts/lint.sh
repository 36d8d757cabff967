#!/usr/bin/env bash
# Formatting, lint and types, with all set-up; changes nothing. `scripts/lint.sh --fix` formats and applies safe fixes.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --test

if [ "${1:-}" = "--fix" ]; then
    .venv/bin/ruff check --fix --quiet . || true
    .venv/bin/ruff format .
    exit
fi

.venv/bin/ruff format --check --quiet . || { .venv/bin/ruff format --check .; echo "lint: scripts/lint.sh --fix formats them" >&2; exit 1; }
.venv/bin/ruff check --quiet .

# mypy does not know that the top-level folders are parts of one package, so it is shown a tree of links in which they are.
tree=build/lint
rm -rf "$tree/greenfast"
mkdir -p "$tree/greenfast"
for file in greenfast/*; do ln -s "$PWD/$file" "$tree/greenfast/"; done
for part in search db app; do ln -s "$PWD/$part" "$tree/greenfast/$part"; done
cd "$tree"
exec "$OLDPWD/.venv/bin/mypy" --config-file "$OLDPWD/pyproject.toml" --python-executable "$OLDPWD/.venv/bin/python" \
    --cache-dir "$OLDPWD/build/mypy_cache" -p greenfast
