#!/usr/bin/env python3
"""Hyperpartisan news (SemEval 2019 task 4, by article) as tables: one JSON object per line, "text" and "label" (1: hyperpartisan).

    hyperpartisan.py DATA OUT

DATA holds articles-training-byarticle-*.xml and ground-truth-training-byarticle-*.xml. OUT gets hnd-train.jsonl and hnd.jsonl, the test part: a
fifth of the articles, always the same. `sparing study mca` takes a task's name from its file, and the paper calls this one HND.
"""

import hashlib
import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

SEED = 0


def one(folder, pattern):
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{folder}: one {pattern} is expected, {len(found)} are there")
    return xml.parse(found[0]).getroot()


def text(article):
    """Title and all text, white space as single spaces."""
    return " ".join(" ".join([article.get("title", ""), *article.itertext()]).split())


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    data, out = map(Path, sys.argv[1:])
    labels = {a.get("id"): int(a.get("hyperpartisan") == "true") for a in one(data, "ground-truth-training-byarticle-*.xml")}
    articles = {a.get("id"): text(a) for a in one(data, "articles-training-byarticle-*.xml")}
    if labels.keys() != articles.keys():
        sys.exit(f"{data}: articles and labels are not of the same ids")
    # By a hash, which no version of Python changes.
    order = sorted(articles, key=lambda key: hashlib.sha256(f"{SEED} {key}".encode()).digest())
    tests = round(0.2 * len(order))
    out.mkdir(parents=True, exist_ok=True)
    for name, part in [("hnd.jsonl", order[:tests]), ("hnd-train.jsonl", order[tests:])]:
        with open(out / name, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": articles[key], "label": labels[key]}, ensure_ascii=False) + "\n" for key in part)
        print(f"{out / name}: {len(part)} articles, {sum(labels[key] for key in part)} of them hyperpartisan")


main()
