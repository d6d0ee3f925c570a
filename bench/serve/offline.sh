#!/usr/bin/env bash
# Tokens per second of the engine alone on the texts of load.py, in batches of as many tokens as the server makes.
#   offline.sh PATH_TO_SPARING [MODEL] [PRECISION] [BATCH_TOKENS]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sparing=$1 model=${2:-builtin} precision=${3:-int8} batch=${4:-2048}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$here" >"$work/texts.txt" <<'PY'
import sys; sys.path.insert(0, sys.argv[1]); import load
print("\n".join(load.texts(2000)))
PY
python3 - "$sparing" "$model" "$precision" "$batch" "$work/texts.txt" <<'PY'
import json, subprocess, sys, time
sparing, model, precision, batch, file = sys.argv[1:]
command = [sparing, "run", model, "--file", file, "--json", "--precision", precision, "--batch-tokens", batch]
tokens = sum(json.loads(line)["tokens"] for line in subprocess.run(command, capture_output=True, check=True).stdout.splitlines())
one = [sparing, "run", model, "a", "--precision", precision]
times = []
for _ in range(3):
    began = time.perf_counter(); subprocess.run(one, capture_output=True, check=True); start = time.perf_counter() - began
    began = time.perf_counter(); subprocess.run(command, capture_output=True, check=True); times.append(time.perf_counter() - began - start)
print(json.dumps({"tokens": tokens, "tokens_per_second": round(tokens / sorted(times)[1]), "batch_tokens": int(batch), "precision": precision}))
PY
