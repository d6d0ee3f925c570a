"""Two builds of sparing in turns on a machine that is at something else: what a request takes when threads have to wait for a core.

    python bench/busy.py OLD NEW [--hogs 2] [--rounds 7]

OLD and NEW are programs; --hogs is how many others run beside them and never rest (0: a quiet machine). Who begins changes from round to round. The table
has the median of the rounds' medians, and of their 90th percentiles.
"""

import argparse
import json
import statistics
import subprocess
import sys

BENCH = ["bench", "--shape", "minilm-l6", "--precision", "f32,int8", "--batch", "1", "--length", "16,128", "--threads", "1,2", "--repeats", "15", "-o", "json"]


def measured(program):
    found = json.loads(subprocess.run([program, *BENCH], capture_output=True, text=True, check=True).stdout)
    return {(row["precision"], row["threads"], row["length"]): (row["median_ms"], row["p90_ms"]) for row in found["rows"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs=2, metavar=("OLD", "NEW"))
    parser.add_argument("--hogs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(args.hogs)]
    rounds = [[], []]
    try:
        for number in range(args.rounds):
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                rounds[which].append(measured(args.programs[which]))
    finally:
        for hog in hogs:
            hog.kill()
    print("| precision | threads | tokens | old, ms | new, ms | old / new | old, p90 | new, p90 |\n|---|---|---|---|---|---|---|---|")
    for cell in rounds[0][0]:
        (old, old_p90), (new, new_p90) = ([statistics.median(of[cell][i] for of in which) for i in (0, 1)] for which in rounds)
        precision, threads, length = cell
        print(f"| {precision} | {threads} | {length} | {old:.2f} | {new:.2f} | {old / new:.2f} | {old_p90:.2f} | {new_p90:.2f} |")


if __name__ == "__main__":
    main()
