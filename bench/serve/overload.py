#!/usr/bin/env python3
"""Twice the load that a running server can bear, between two looks at how fast it is alone.

    overload.py --url http://127.0.0.1:3000 --seconds 60 --pid PID

What it can bear is what two clients get that send one text after the other. Prints one JSON object. Fails if a request was
answered neither 200 nor 429, if accepted requests took more than 3 times (at the 99th percentile) what they take alone, or if
memory (of --pid) grew by more than 64 MiB. On a machine that others use as well repeat it: only ratios mean something.
"""
import argparse, json, sys

import load


def main():
    parser = load.arguments(__doc__)
    parser.add_argument("--alone", type=float, default=10, help="seconds of every look at how fast it is alone")
    parser.add_argument("--pid", type=int)
    args = parser.parse_args()

    def run(**more):
        return load.measure(argparse.Namespace(**{**vars(args), "rate": None, "clients": 1, **more}))

    def memory():
        if not args.pid:
            return 0
        with open(f"/proc/{args.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024

    before = run(seconds=args.alone)
    bears = run(seconds=args.alone, clients=2)["requests_per_second"]
    small = memory()
    over = run(rate=2 * bears)
    grown = memory() - small
    after = run(seconds=args.alone)
    ratio = over["p99_ms"] / ((before["p99_ms"] + after["p99_ms"]) / 2)
    print(json.dumps({
        "alone_p99_ms": [before["p99_ms"], after["p99_ms"]], "alone_tokens_per_second": [before["tokens_per_second"], after["tokens_per_second"]],
        "bears_per_second": bears, "overload": over, "p99_ratio": round(ratio, 2), "grown_mib": round(grown, 1),
    }))
    if set(over["statuses"]) - {200, 429} or ratio > 3 or grown > 64:
        sys.exit("the server does not bear it")


if __name__ == "__main__":
    main()
