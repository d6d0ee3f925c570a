#!/usr/bin/env python3
"""Times Sparing against PyTorch, ONNX Runtime, OpenVINO and candle on the same weights and inputs, interleaved in one run.

    bench/run.sh                                        everything (an hour or two)
    bench/run.sh --shapes minilm-l6 --rounds 5          a quick look
    bench/run.sh --accuracy --model DIR --data DIR      SST-2 accuracy of every engine and precision instead of time

See bench/README.md for how to read what it prints.
"""

import argparse
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import time

from engines import CACHE, DEFAULT, ENGINES, HERE, OPTIMIZED, Worker, build, export, idle_burners, is_ours

PRECISIONS = ["f32", "bf16", "int8"]


def say(*words):
    print(*words, file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------------------------- timing


def make_model(shape, output):
    directory = CACHE / f"{shape}-{output}"
    if not (directory / "model.safetensors").exists():
        say(f"making {directory.name}")
        directory.mkdir(parents=True, exist_ok=True)
        with open(directory / "shape.log", "w") as log:
            subprocess.run([sys.executable, HERE / "models.py", "shape", shape, output, directory], check=True, stdout=log, stderr=log)
    return directory


def start(names, model, exports, threads, programs):
    workers = []
    for name in names:
        w = Worker(name, model, exports, threads, programs)
        say(f"  {name}: " + (f"FAILED, {w.failure}" if w.failure else f"loaded in {w.load:.2f} s"))
        workers.append(w)
    return workers


def differences(workers):
    """Largest absolute difference of each engine's outputs to PyTorch f32's, over one input of 128 tokens."""
    ids = [(i * 7919 + 13) % 30000 for i in range(128)]
    found = {w.name: w.outputs(ids) for w in workers if not w.failure}
    right = found.get("torch")
    if right is None:
        return {}
    report = {}
    for name, values in found.items():
        same = values is not None and len(values) == len(right)
        report[name] = max(abs(a - b) for a, b in zip(values, right)) if same else None
    return report


def time_cell(workers, batch, length, options):
    """{engine: [[(wall, cpu)] per round]}. Every round asks every engine, in an order of its own."""
    times = {}
    for w in workers:
        first = w.time(batch, length, 2)  # allocates, compiles, fills caches
        if first:
            again = w.time(batch, length, 1)[0][0]
            times[w.name] = max(1, min(50, round(options.slice * 1e3 / max(again, 1e-3))))
    for name, share in idle_burners([w for w in workers if not w.failure]):
        say(f"  warning: {name} uses {share:.0%} of a core while idle")
    samples = {w.name: [] for w in workers}
    rng = random.Random(0)
    for _ in range(options.rounds):
        alive = [w for w in workers if not w.failure and w.name in times]
        for w in rng.sample(alive, len(alive)):
            time.sleep(options.pause)
            if found := w.time(batch, length, times[w.name]):
                samples[w.name].append(found)
    return {name: rounds for name, rounds in samples.items() if rounds}


def medians(rounds, metric):
    """The median of each round."""
    return [statistics.median(s[metric] for s in r) for r in rounds]


def fastest_rival(samples, precision, metric):
    rivals = [n for n in samples if ENGINES[n][1] == precision and not is_ours(n)]
    return min(rivals, key=lambda n: statistics.median(medians(samples[n], metric)), default=None)


def ratio(samples, ours, theirs, metric):
    """Median over rounds of ours / theirs: what slows both in a round cancels."""
    pairs = zip(medians(samples[ours], metric), medians(samples[theirs], metric))
    return statistics.median(a / b for a, b in pairs)


def benchmark(options, names, programs):
    results = []
    for shape in options.shapes:
        for output in options.outputs:
            model = make_model(shape, output)
            export(names, model, model)
            for threads in options.threads:
                say(f"{shape}, {output} output, {threads} thread{'s' * (threads > 1)}")
                workers = start(names, model, model, threads, programs)
                result = {"shape": shape, "output": output, "threads": threads, "difference": differences(workers), "cells": {}}
                for batch, length in options.cells:
                    say(f"  {batch}x{length}")
                    result["cells"][f"{batch}x{length}"] = time_cell(workers, batch, length, options)
                result["load_s"] = {w.name: w.load for w in workers if w.load is not None}
                result["start_s"] = {w.name: w.started for w in workers if w.load is not None}
                result["peak_kib"] = {w.name: w.memory[1] for w in workers}
                result["failed"] = {w.name: w.failure for w in workers if w.failure}
                for w in workers:
                    w.close()
                results.append(result)
    return results


# ---------------------------------------------------------------------------------------------- tables


def table(header, rows):
    line = lambda cells: "| " + " | ".join(cells) + " |"
    return "\n".join([line(header), "|" + "---|" * len(header), *map(line, rows)])


def where(r):
    return f"{r['shape']}, {r['output']} output, {r['threads']} thread{'s' * (r['threads'] > 1)}"


def ratios_table(results, cells, metric):
    """One row per model, output, thread count and precision; one column per cell."""
    rows = []
    for r in results:
        for precision in PRECISIONS:
            row = []
            for c in cells:
                samples = r["cells"][c]
                ours = next((n for n in samples if is_ours(n) and ENGINES[n][1] == precision), None)
                theirs = fastest_rival(samples, precision, metric)
                if not ours or not theirs:
                    row.append("–")
                    continue
                a, b = (statistics.median(medians(samples[n], metric)) for n in (ours, theirs))
                row.append(f"**{ratio(samples, ours, theirs, metric):.2f}** ({a:.1f} / {b:.1f} {ENGINES[theirs][0]})")
            if any(x != "–" for x in row):
                rows.append([r["shape"], r["output"], str(r["threads"]), precision, *row])
    return table(["model", "output", "threads", "precision", *cells], rows) if rows else ""


def times_table(r, cells, metric):
    """Every engine's milliseconds, and in brackets how many times Sparing's at the same precision."""
    rows = []
    for name, (shown, precision, _) in ENGINES.items():
        if name not in r["load_s"] or name in r["failed"]:
            continue
        ours = next((n for n in ENGINES if is_ours(n) and ENGINES[n][1] == precision and n in r["load_s"]), None)
        row = [f"**{shown}**" if is_ours(name) else shown, precision]
        for c in cells:
            samples = r["cells"][c]
            if name not in samples:
                row.append("–")
                continue
            text = f"{statistics.median(medians(samples[name], metric)):.1f}"
            if ours in samples and not is_ours(name):
                text += f" ({ratio(samples, name, ours, metric):.2f}x)"
            row.append(text)
        difference = r["difference"].get(name)
        row += [f"{r['load_s'][name]:.2f}", f"{r['peak_kib'][name] / 1024:.0f}", "–" if difference is None else f"{difference:.1e}"]
        rows.append(row)
    header = ["engine", "precision", *(f"{c} ms" for c in cells), "load s", "peak MiB", "max difference"]
    failed = "".join(f"\n{ENGINES[n][0]} {ENGINES[n][1]} failed: {why.splitlines()[-1]}\n" for n, why in r["failed"].items())
    return table(header, rows) + "\n" + failed


def machine():
    model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
    return f"{model}, {os.cpu_count()} cores"


def versions():
    from importlib.metadata import version

    return ", ".join(f"{p} {version(p)}" for p in ("torch", "transformers", "onnxruntime", "openvino", "nncf"))


def report(results, options):
    cells = [f"{b}x{s}" for b, s in options.cells]
    metric = ["wall", "cpu"].index(options.metric)
    parts = [f"{machine()}. {versions()}.", f"Median {options.metric} milliseconds of {options.rounds} interleaved rounds."]
    if ratios := ratios_table(results, cells, metric):
        parts += ["## Sparing / fastest rival (below 1: Sparing is faster)", ratios]
    for r in results:
        parts += [f"## {where(r)}", times_table(r, cells, metric)]
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------------------------------------- accuracy


def accuracy(options, names, programs):
    """How many SST-2 dev sentences each engine gets right, and how often it says what PyTorch f32 says."""
    model, data = pathlib.Path(options.model), pathlib.Path(options.data)
    exports = CACHE / f"accuracy-{model.name}"
    exports.mkdir(parents=True, exist_ok=True)
    stat = (model / "model.safetensors").stat()
    stamp, now = exports / "source.json", [str(model.resolve()), stat.st_size, stat.st_mtime]
    if not stamp.exists() or json.loads(stamp.read_text()) != now:
        for f in exports.iterdir():
            f.unlink()
        subprocess.run([sys.executable, HERE / "models.py", "sentences", model, data, exports], check=True)
        stamp.write_text(json.dumps(now))
    dev = json.loads((exports / "dev.json").read_text())
    # Compiling once per length would take hours, and gives the same answers.
    names = [n for n in names if "compile" not in n and "fixed" not in n]
    export(names, model, exports, exports / "calibration.json")
    answers, failed = {}, {}
    for name in names:
        say(f"  {name}")
        w = Worker(name, model, exports, options.threads[0], programs)
        found = [w.outputs(ids) for ids in dev["ids"]]
        if w.failure:
            failed[name] = w.failure
            say(f"  {name} FAILED, {w.failure}")
        else:
            answers[name] = found
        w.close()
    label = lambda logits: max(range(len(logits)), key=logits.__getitem__)
    rows, results, right = [], {}, answers.get("torch")
    for name, found in answers.items():
        correct = sum(label(y) == t for y, t in zip(found, dev["labels"]))
        r = {"correct": correct, "total": len(found), "accuracy": correct / len(found)}
        row = [f"**{ENGINES[name][0]}**" if is_ours(name) else ENGINES[name][0], ENGINES[name][1], f"{r['accuracy']:.2%} ({correct}/{len(found)})"]
        if right:
            r["same"] = sum(label(a) == label(b) for a, b in zip(found, right)) / len(found)
            r["mean_difference"] = statistics.fmean(abs(x - y) for a, b in zip(found, right) for x, y in zip(a, b))
            r["max_difference"] = max(abs(x - y) for a, b in zip(found, right) for x, y in zip(a, b))
            row += [f"{r['same']:.2%}", f"{r['mean_difference']:.1e}", f"{r['max_difference']:.1e}"]
        results[name] = r
        rows.append(row)
    header = ["engine", "precision", "SST-2 dev accuracy", "same answer as PyTorch f32", "mean logit difference", "largest"]
    text = f"{model.name}. {machine()}. {versions()}.\n\n" + table(header[: len(rows[0])] if rows else header, rows) + "\n"
    return text, {"accuracy": results, "failed": failed}


# ---------------------------------------------------------------------------------------------- command line


def listed(of):
    return lambda text: [of(x) for x in text.split(",") if x]


def cell(text):
    batch, length = text.split("x")
    return int(batch), int(length)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engines", type=listed(str), default=DEFAULT, metavar="A,B", help="all, or of: " + ", ".join(ENGINES))
    p.add_argument("--shapes", type=listed(str), default=["bert-base", "minilm-l6"], metavar="A,B", help="bert-base, minilm-l6 (default: both)")
    p.add_argument("--outputs", type=listed(str), default=["encoder", "classifier"], metavar="A,B", help="encoder (all rows), classifier (two logits) (default: both)")
    p.add_argument("--cells", type=listed(cell), default=[(1, 128), (8, 128), (1, 512)], metavar="BxS,..", help="batch x length (default: 1x128,8x128,1x512)")
    p.add_argument("--threads", type=listed(int), default=[1, 2], metavar="N,..", help="default: 1,2")
    p.add_argument("--rounds", type=int, default=15, help="rounds per cell (default: 15)")
    p.add_argument("--slice", type=float, default=0.4, help="seconds one engine is asked for in a round (default: 0.4)")
    p.add_argument("--pause", type=float, default=0.05, help="seconds of rest before each (default: 0.05)")
    p.add_argument("--metric", choices=["wall", "cpu"], default="wall", help="cpu for one thread on a machine that is shared (default: wall)")
    p.add_argument("--sparing", type=pathlib.Path, help="a sparing program (default: build it)")
    p.add_argument("--optimized", type=pathlib.Path, help="a directory of `sparing optimize`, timed as sparing-optimized beside the others")
    p.add_argument("--json", type=pathlib.Path, help="write every sample here")
    p.add_argument("--markdown", type=pathlib.Path, help="write the tables here too")
    p.add_argument("--accuracy", action="store_true", help="SST-2 accuracy instead of time")
    p.add_argument("--model", help="with --accuracy: a BERT classifier's directory")
    p.add_argument("--data", help="with --accuracy: directory of dev.tsv and train.tsv")
    options = p.parse_args()
    if options.engines == ["all"]:
        options.engines = [n for n in ENGINES if n != OPTIMIZED or options.optimized]
    if unknown := [n for n in options.engines if n not in ENGINES]:
        p.error(f"no such engine: {', '.join(unknown)}")
    if (OPTIMIZED in options.engines) != (options.optimized is not None):
        p.error(f"--optimized DIR and the engine {OPTIMIZED} go together")
    if options.accuracy and not (options.model and options.data):
        p.error("--accuracy needs --model DIR and --data DIR")
    return options


def main():
    options = arguments()
    names = [n for n in ENGINES if n in options.engines]
    programs = build(names, options.sparing, options.optimized)
    if options.accuracy:
        text, results = accuracy(options, names, programs)
    else:
        results = benchmark(options, names, programs)
        text = report(results, options)
    print(text)
    if options.markdown:
        options.markdown.write_text(text)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "versions": versions(), "results": results}) + "\n")


if __name__ == "__main__":
    main()
