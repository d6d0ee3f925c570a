"""How many times fewer tokens GLUE's dev sets have than with every input padded to 128, beside what Monte-Carlo Attention published.

    python bench/padding.py MODEL/tokenizer.json GLUE

Needs the package tokenizers. Any tokenizer of uncased BERT gives the authors' tokens.
"""

import sys
from pathlib import Path

from tokenizers import Tokenizer

PUBLISHED = Path(__file__).parent.parent / "crates/cli/src/commands/study/mca/paper.tsv"
TASKS = {
    "cola": ("CoLA", 3, None),  # has no header
    "sst2": ("SST-2", "sentence", None),
    "mrpc": ("MRPC", "#1 String", "#2 String"),
    "stsb": ("STS-B", "sentence1", "sentence2"),
    "qqp": ("QQP", "question1", "question2"),
    "qnli": ("QNLI", "question", "sentence"),
    "rte": ("RTE", "sentence1", "sentence2"),
    "wnli": ("WNLI", "sentence1", "sentence2"),
}


def lengths(tokenizer, path, first, second):
    rows = [line.rstrip("\n").split("\t") for line in path.open(encoding="utf-8-sig")]
    if isinstance(first, str):
        head, rows = rows[0], rows[1:]
        first, second = head.index(first), head.index(second) if second else None
    columns = [first] if second is None else [first, second]
    return [len(tokenizer.encode(*(row[c] for c in columns)).ids) for row in rows if len(row) > max(columns)]


def published():
    rows = [line.split("\t") for line in PUBLISHED.read_text().splitlines() if line.startswith("1\t")]
    return {row[1]: [float(x) for x in row[6::3]] for row in rows}


def main():
    tokenizer = Tokenizer.from_file(sys.argv[1])
    tokenizer.no_padding()
    tokenizer.enable_truncation(128)
    theirs = published()
    print("| task | inputs | tokens | padding alone | published, α = 0.2 / 0.4 / 0.6 / 1.0 | the same without padding |")
    print("|---|---:|---:|---:|---:|---:|")
    for task, (folder, first, second) in TASKS.items():
        found = lengths(tokenizer, Path(sys.argv[2]) / folder / "dev.tsv", first, second)
        padding = 128 * len(found) / sum(found)
        cells = " / ".join(f"{x:.2f}" for x in theirs[task])
        rest = " / ".join(f"{x / padding:.2f}" for x in theirs[task])
        print(f"| {folder} | {len(found)} | {sum(found) / len(found):.1f} | {padding:.2f}x | {cells}x | {rest}x |")


if __name__ == "__main__":
    main()
