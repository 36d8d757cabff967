#!/usr/bin/env bash
# Installs everything greenfast needs: .venv with the package and its wheels (CuPy too where there is a GPU) and a C++
# compiler. --test adds what the tests need: pytest, ruff, mypy and a browser (none with GREENFAST_NO_BROWSER=1).
# Safe to repeat: without changes it takes a moment.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

with_tests=no
[ "${1:-}" = "--test" ] && with_tests=yes

# Runs a command as root; fails where that would ask for a password.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"; else return 1; fi
}
install_package() {
    command -v apt-get >/dev/null || return 1
    as_root true || return 1
    say "installing $*"
    as_root apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq "$@" >/dev/null
}

find_python() {
    for name in "${PYTHON:-}" python3.14 python3.13 python3.12 python3.11 python3; do
        [ -n "$name" ] && command -v "$name" >/dev/null || continue
        "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' && { echo "$name"; return; }
    done
    return 1
}

if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c '' 2>/dev/null; then
    python=$(find_python) || die "greenfast needs Python 3.11 or newer: install it, or set PYTHON to it"
    say "creating .venv with $("$python" --version)"
    rm -rf .venv
    new_pip() { "$@" install --quiet --disable-pip-version-check --no-compile --upgrade pip 2>/dev/null; }
    # The pip that comes with Python 3.11 takes twice the processor time of a new one for all wheels, and ensurepip takes
    # three seconds to compile it.
    { "$python" -m venv --without-pip .venv 2>/dev/null && new_pip "$python" -m pip --python .venv/bin/python; } || {
        rm -rf .venv
        "$python" -m venv .venv >/dev/null 2>&1 || {
            rm -rf .venv
            install_package python3-venv && "$python" -m venv .venv
        } || die "$python cannot create a virtual environment: install the package python3-venv"
        new_pip .venv/bin/python -m pip || true
    }
fi

gpu=""
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    gpu="cuda13"
    if nvidia-smi | grep -q 'CUDA Version: *12\.'; then gpu="cuda12"; fi     # a driver before R580
fi
sum="$(sha256sum pyproject.toml | cut -c1-64)"
with_test="test${gpu:+,$gpu}"
extra="$gpu"
[ "$with_tests" = yes ] && extra="$with_test"
if ! { [ -f .venv/.greenfast ] && grep -qxF -e "$sum[$extra] $PWD" -e "$sum[$with_test] $PWD" .venv/.greenfast; }; then
    say "installing wheels (about 200 MB on a first run)"
    # pip would compile 5,900 modules. Those that the service imports are compiled by importing them; others when needed.
    # -qq shows errors, and not setuptools' 2,300 lines of warnings.
    .venv/bin/python -m pip install -qq --disable-pip-version-check --no-compile --editable ".${extra:+[$extra]}" || die "pip could not install greenfast; its message is above"
    env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -P -c 'import greenfast.app.cli.main, greenfast.app.service.server, greenfast.app.service.worker, greenfast.search.strategies' \
        || die "the installed greenfast cannot be imported; the message is above"
    echo "$sum[$extra] $PWD" > .venv/.greenfast
fi

if ! command -v "${GREENFAST_CXX:-g++}" >/dev/null && ! command -v clang++ >/dev/null; then
    install_package g++ || die "the emulator needs a C++ compiler: install g++ (Debian: apt-get install g++)"
fi

if [ "$with_tests" = yes ] && [ "${GREENFAST_NO_BROWSER:-}" != 1 ]; then
    if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
        install_package chromium || say "no browser, so tests/browser will fail: install chromium, or set GREENFAST_NO_BROWSER=1 to skip these tests"
    fi
fi
