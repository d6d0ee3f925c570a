"""The tables of docs/results/ma-bert.md from the results of study.sh.

    python bench/ma-bert/table.py OUT/results [MORE/results…] [--svg curves.svg]
    python bench/ma-bert/table.py bench/ma-bert/results.csv        all runs that were made, each student beside its own teacher

Scores are those of saved directories, run by the engine; where several seeds are there, their median and how many. The picture has the mean over
tasks of score against updates, of the first folder's runs.
"""

import csv
import json
import math
import statistics
import sys
from pathlib import Path

TASKS = ["cola", "mrpc", "rte", "sst2", "stsb", "imdb"]
KINDS = {"ma": "matrix arithmetic only", "shared": "the same, one softmax network for all layers", "linear": "the same, 64 keys and values", "alone": "without a teacher"}


def score(metrics):
    return 100 * metrics[0]["value"]


def read(folders):
    runs = {}
    for folder in folders:
        for file in sorted(Path(folder).glob("*.json")):
            run = {**json.loads(file.read_text()), "folder": str(folder)}
            runs.setdefault((run["kind"], run["task"]), []).append(run)
    return runs


def scores(runs):
    """Of the seeds that are finished."""
    return [score(run["student"]["saved"]) for run in runs if run.get("finished") and run["student"].get("saved")]


def cell(runs):
    done = scores(runs)
    if not done:
        return None, "failed" if any(run.get("failed") for run in runs) else "-"
    median = statistics.median(done)
    return median, f"{median:.1f}" + (f" ({len(done)})" if len(done) > 1 else "")


def spread(runs):
    done = scores(runs)
    return f"{min(done):.1f}, {max(done):.1f}" if len(done) > 1 else ""


def known_tasks(runs):
    """Those with a student, in the table's order."""
    return [task for task in TASKS if any((kind, task) in runs for kind in KINDS)]


def teachers(runs, task):
    """The scores of a task's teachers: each stands beside every student that learned from it."""
    found = {}
    for (_, of), those in runs.items():
        for run in those:
            if of == task and run.get("teacher"):
                found[run["folder"], run["seed"]] = score(run["teacher"]["metrics"])
    return list(found.values())


def teacher(runs, task):
    return statistics.median(teachers(runs, task))


def tables(runs):
    tasks = known_tasks(runs)
    print("| | " + " | ".join(tasks) + " | mean |")
    print("|---" * (len(tasks) + 2) + "|")
    medians = [teacher(runs, task) for task in tasks]
    print("| teacher | " + " | ".join(f"{x:.1f}" for x in medians) + f" | {statistics.mean(medians):.1f} |")
    found = [teachers(runs, task) for task in tasks]
    if any(len(set(of)) > 1 for of in found):
        print("| lowest and highest seed | " + " | ".join(f"{min(of):.1f}, {max(of):.1f}" for of in found) + " | |")
    for kind, name in KINDS.items():
        cells = [cell(runs.get((kind, task), [])) for task in tasks]
        if all(value is None for value, _ in cells):
            continue
        known = [value for value, _ in cells if value is not None]
        of = "" if len(known) == len(tasks) else f" of {len(known)}"
        print(f"| {name} | " + " | ".join(text for _, text in cells) + f" | {statistics.mean(known):.1f}{of} |")
        spreads = [spread(runs.get((kind, task), [])) for task in tasks]
        if any(spreads):
            print("| lowest and highest seed | " + " | ".join(spreads) + " | |")


def pooled(file):
    """Medians of several runs, whose teachers differ: what counts is how far students are from their own."""
    found = {}
    for row in csv.DictReader(open(file, newline="")):
        found.setdefault(row["kind"], {}).setdefault(row["task"], []).append((float(row["student"]), float(row["teacher"])))
    print("| | seeds | " + " | ".join(TASKS) + " | mean | to its own teacher |")
    print("|---" * (len(TASKS) + 4) + "|")
    for kind, name in {"teacher": "teacher", **KINDS, "three": "matrix arithmetic only, three layers"}.items():
        medians = [statistics.median(student for student, _ in found[kind][task]) for task in TASKS]
        apart = [statistics.median(student - teacher for student, teacher in found[kind][task]) for task in TASKS]
        seeds = sorted({len(found[kind][task]) for task in TASKS})
        print(f"| {name} | {' to '.join(map(str, seeds[:1] + seeds[1:][-1:]))} | " + " | ".join(f"{x:.1f}" for x in medians) + f" | {statistics.mean(medians):.1f} | {statistics.mean(apart):+.1f} |")
        print("| | | " + " | ".join(f"{x:+.1f}" for x in apart) + " | | |")


def curves(runs):
    """Mean over tasks of the score (the mean of all seeds that have one) at every evaluation that all of them have, by kind."""
    found, tasks = {}, known_tasks(runs)
    for kind in KINDS:
        by_task = []
        for task in tasks:
            at = {}
            for point in (point for run in runs.get((kind, task), []) for point in run["curve"]):
                # An answer that is no number leaves an evaluation without a score.
                if point["metrics"]:
                    at.setdefault(point["step"], []).append(score(point["metrics"]))
            by_task.append(at)
        steps = sorted(set.intersection(*(set(at) for at in by_task)))
        if steps:
            found[kind] = [(step, statistics.mean(statistics.mean(at[step]) for at in by_task)) for step in steps]
    return found


def extrapolated(points, teacher, times):
    """How far below its teacher a student is after so many times as many updates if the distance goes on as a power of their number: a straight line through
    the logarithms, least squares. A rate that falls to zero makes the end of a curve steeper than more updates would."""
    known = [(math.log(step), math.log(teacher - value)) for step, value in points if value < teacher]
    mx, my = (statistics.mean(axis) for axis in zip(*known))
    slope = sum((x - mx) * (y - my) for x, y in known) / sum((x - mx) ** 2 for x, _ in known)
    return slope, [math.exp(my + slope * (math.log(n * points[-1][0]) - mx)) for n in times]


def picture(found, teacher, file):
    width, height, left, bottom = 640, 320, 56, 44
    last = max(step for points in found.values() for step, _ in points)
    scores = [y for points in found.values() for _, y in points] + [teacher]
    low, high = 5 * (min(scores) // 5), 5 * (max(scores) // 5 + 1)
    x = lambda step: left + (width - left - 150) * step / last
    y = lambda value: height - bottom - (height - bottom - 20) * (value - low) / (high - low)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" role="img">',
             "<title>Mean score of tasks against updates of transfer</title>",
             "<style>text{fill:#333}.grid{stroke:#ccc}@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}}</style>"]
    for value in range(int(low), int(high) + 1, 5):
        parts.append(f'<line class="grid" x1="{left}" x2="{width - 150}" y1="{y(value):.1f}" y2="{y(value):.1f}"/><text x="{left - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value}</text>')
    for step in sorted({step for points in found.values() for step, _ in points}):
        parts.append(f'<text x="{x(step):.1f}" y="{height - bottom + 18}" text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{(left + width - 150) / 2}" y="{height - 6}" text-anchor="middle">updates</text>')
    parts.append(f'<line x1="{left}" x2="{width - 150}" y1="{y(teacher):.1f}" y2="{y(teacher):.1f}" stroke="#888" stroke-dasharray="5 4"/>')
    colours = ["#1f77b4", "#d95f02", "#1b9e77", "#7570b3"]
    ends = [[y(teacher), "teacher", "#888"]]
    for (kind, points), colour in zip(found.items(), colours):
        line = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        ends.append([y(points[-1][1]), kind, colour])
    # Labels that would lie upon each other move apart.
    ends.sort()
    for before, after in zip(ends, ends[1:]):
        after[0] = max(after[0], before[0] + 14)
    for at, kind, colour in ends:
        parts.append(f'<text x="{width - 144}" y="{at + 4:.1f}" style="fill:{colour}">{kind}</text>')
    Path(file).write_text("\n".join(parts + ["</svg>\n"]))


def main():
    arguments = sys.argv[1:]
    svg = None
    if "--svg" in arguments:
        at = arguments.index("--svg")
        svg = arguments[at + 1]
        del arguments[at:at + 2]
    if arguments and arguments[0].endswith(".csv"):
        return pooled(arguments[0])
    runs = read(arguments)
    tables(runs)
    found = curves(read(arguments[:1]))
    mean = statistics.mean(teacher(runs, task) for task in known_tasks(runs))
    for kind, points in found.items():
        print(f"{kind}: " + ", ".join(f"{step}: {value:.1f}" for step, value in points))
        if len(points) > 3:
            slope, below = extrapolated(points, mean, [1, 2, 5, 10])
            print(f"  below the teacher as updates^{slope:.2f}: now, twice, five and ten times as many: " + ", ".join(f"{value:.1f}" for value in below))
    if svg:
        picture(found, mean, svg)


main()
