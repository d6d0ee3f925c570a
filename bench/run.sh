#!/usr/bin/env bash
# Times Sparing against its rivals: installs them, makes the models, runs everything interleaved, prints the ratios.
#   bench/run.sh [--venv DIR] [options of peers.py; --help lists them]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=$here/.venv
if [[ ${1:-} == --venv ]]; then
    venv=$2
    shift 2
fi
if [[ ! -x $venv/bin/python ]]; then
    python3 -m venv "$venv"
fi
# Asking pip costs seconds each time, so a copy of the list says what is already there.
if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$venv/installed.txt"
fi
exec "$venv/bin/python" "$here/peers.py" "$@"
