#!/usr/bin/env bash
# Checks formatting, lint and types, with all set-up, and changes nothing. With --fix it formats and applies ruff's safe
# fixes instead.
set -euo pipefail
cd "$(dirname "$0")/.."
GREENFAST_NO_BROWSER=1 scripts/setup.sh --test
root="$PWD" bin="$PWD/.venv/bin" failed=0

if [ "${1:-}" = "--fix" ]; then
    "$bin/ruff" check --fix --quiet . || failed=1
    "$bin/ruff" format .
    exit "$failed"
fi

"$bin/ruff" format --check --quiet . || {
    failed=1
    "$bin/ruff" format --check . || true
    echo "lint: run scripts/lint.sh --fix to format these files" >&2
}
"$bin/ruff" check --quiet . || failed=1

# mypy does not know that pyproject.toml maps the top-level folders into one package, so it gets a folder of links that
# has the package's layout.
tree=build/lint
rm -rf "$tree/greenfast"
mkdir -p "$tree/greenfast"
for file in greenfast/*; do ln -s "$root/$file" "$tree/greenfast/"; done
for part in search db app; do ln -s "$root/$part" "$tree/greenfast/$part"; done
cd "$tree"
"$bin/mypy" --config-file "$root/pyproject.toml" --python-executable "$bin/python" \
    --cache-dir "$root/build/mypy_cache" -p greenfast || failed=1
exit "$failed"
