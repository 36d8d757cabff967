#!/usr/bin/env bash
# Checks formatting, lint and types, with all set-up, and changes nothing. With --fix it formats and applies ruff's safe
# fixes instead.
set -euo pipefail
cd "$(dirname "$0")/.."
GREENFAST_NO_BROWSER=1 scripts/setup.sh --test

if [ "${1:-}" = "--fix" ]; then
    .venv/bin/ruff check --fix --quiet . || true
    .venv/bin/ruff format .
    exit
fi

.venv/bin/ruff format --check --quiet . || {
    .venv/bin/ruff format --check . || true
    echo "lint: run scripts/lint.sh --fix to format these files" >&2
    exit 1
}
.venv/bin/ruff check --quiet .

# mypy does not know that pyproject.toml maps the top-level folders into one package, so it gets a folder of links that
# has the package's layout.
tree=build/lint
rm -rf "$tree/greenfast"
mkdir -p "$tree/greenfast"
for file in greenfast/*; do ln -s "$PWD/$file" "$tree/greenfast/"; done
for part in search db app; do ln -s "$PWD/$part" "$tree/greenfast/$part"; done
cd "$tree"
exec "$OLDPWD/.venv/bin/mypy" --config-file "$OLDPWD/pyproject.toml" --python-executable "$OLDPWD/.venv/bin/python" \
    --cache-dir "$OLDPWD/build/mypy_cache" -p greenfast
