"""Fine-tunes a model on a GLUE task with PyTorch and transformers, as `sparing train finetune` does it.

    python bench/training/reference.py MODEL --task rte --data glue --epochs 10 --lr 1e-4 --seed 0,1,2,3,4

The same examples, batch size, learning rate and its curve, weight decay and its exceptions, clipping, dropout and number
of epochs; the dev set is scored after each epoch and the best one counts, as there. Prints one JSON object. With
`--epochs 0` a model is scored as it is: so one that Sparing has trained can be checked with transformers.
"""

import argparse
import csv
import json
import math
import random
import statistics
import time
from pathlib import Path

FOLDERS = {"cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "rte": "RTE", "wnli": "WNLI", "qqp": "QQP"}


def read(task, data, part):
    """Texts, second texts (or None) and labels."""
    path = Path(data) / FOLDERS[task] / f"{part}.tsv"
    rows = list(csv.reader(path.open(encoding="utf-8"), delimiter="\t", quoting=csv.QUOTE_NONE))
    header = rows[0]
    if task == "cola":
        return [r[3] for r in rows], None, [int(r[1]) for r in rows]
    rows = rows[1:]
    if task == "sst2":
        return [r[0] for r in rows], None, [int(r[1]) for r in rows]
    if task == "mrpc":
        return [r[3] for r in rows], [r[4] for r in rows], [int(r[0]) for r in rows]
    if task == "stsb":
        return [r[7] for r in rows], [r[8] for r in rows], [float(r[9]) for r in rows]
    if task == "qqp":
        at = [header.index(n) for n in ("question1", "question2", "is_duplicate")]
        return [r[at[0]] for r in rows], [r[at[1]] for r in rows], [int(r[at[2]]) for r in rows]
    names = {"entailment": 0, "not_entailment": 1}
    return [r[1] for r in rows], [r[2] for r in rows], [names[r[3]] if r[3] in names else int(r[3]) for r in rows]


def score(task, predicted, wanted):
    """The task's headline: Matthews correlation, Pearson correlation or accuracy."""
    if task == "stsb":
        mp, mw = statistics.fmean(predicted), statistics.fmean(wanted)
        cov = sum((p - mp) * (w - mw) for p, w in zip(predicted, wanted))
        return cov / math.sqrt(sum((p - mp) ** 2 for p in predicted) * sum((w - mw) ** 2 for w in wanted))
    if task == "cola":
        count = lambda p, w: sum(a == p and b == w for a, b in zip(predicted, wanted))
        tp, tn, fp, fn = count(1, 1), count(0, 0), count(1, 0), count(0, 1)
        root = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
        return (tp * tn - fp * fn) / root if root else 0.0
    return sum(p == w for p, w in zip(predicted, wanted)) / len(wanted)


def train(args, seed, parts):
    import torch
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(seed)
    order = random.Random(seed)
    regression = args.task == "stsb"
    labels = {} if args.epochs == 0 else {"num_labels": 1 if regression else 2}
    model = AutoModelForSequenceClassification.from_pretrained(args.model, **labels).to(args.device).float()
    plain, decayed = [], []
    for name, parameter in model.named_parameters():
        (plain if parameter.dim() < 2 or name.endswith("bias") else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr)
    (texts, labels), (dev_texts, dev_labels) = parts
    total = max(1, math.ceil(len(labels) / args.batch) * args.epochs)
    warmup = max(1, round(0.1 * total))
    rate = lambda s: s / warmup if s < warmup else max(0.0, (total - s) / max(1, total - warmup))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)

    def batch(encoded, chosen):
        longest = max(len(encoded[i][0]) for i in chosen)
        pad = lambda row: row + [0] * (longest - len(row))
        tensor = lambda rows: torch.tensor([pad(r) for r in rows]).to(args.device)
        return {
            "input_ids": tensor([encoded[i][0] for i in chosen]),
            "token_type_ids": tensor([encoded[i][1] for i in chosen]),
            "attention_mask": tensor([[1] * len(encoded[i][0]) for i in chosen]),
        }

    def evaluate():
        model.eval()
        found = [0.0] * len(dev_labels)
        by_length = sorted(range(len(dev_labels)), key=lambda i: len(dev_texts[i][0]))
        with torch.no_grad():
            for at in range(0, len(by_length), 128):
                chosen = by_length[at:at + 128]
                logits = model(**batch(dev_texts, chosen)).logits.float().cpu()
                answers = logits[:, 0].tolist() if regression else logits.argmax(1).tolist()
                for i, answer in zip(chosen, answers):
                    found[i] = answer
        model.train()
        return score(args.task, found, dev_labels)

    if args.epochs == 0:
        return evaluate()
    best = -math.inf
    model.train()
    for _ in range(args.epochs):
        examples = list(range(len(labels)))
        order.shuffle(examples)
        # Alike lengths together among 32 batches, as Sparing does it.
        batches = []
        for at in range(0, len(examples), args.batch * 32):
            group = sorted(examples[at:at + args.batch * 32], key=lambda i: len(texts[i][0]))
            batches += [group[i:i + args.batch] for i in range(0, len(group), args.batch)]
        order.shuffle(batches)
        for chosen in batches:
            dtype = torch.float if regression else torch.long
            wanted = torch.tensor([labels[i] for i in chosen], dtype=dtype).to(args.device)
            with torch.autocast(args.device, torch.bfloat16, enabled=args.bf16):
                loss = model(**batch(texts, chosen), labels=wanted).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
        best = max(best, evaluate())
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--task", choices=FOLDERS, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--bf16", action="store_true")
    args = parser.parse_args()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    parts = []
    for part in ("train", "dev"):
        first, second, labels = read(args.task, args.data, part)
        kwargs = dict(truncation=True, max_length=args.max_tokens)
        encoded = tokenizer(first, second, **kwargs) if second else tokenizer(first, **kwargs)
        parts.append((list(zip(encoded["input_ids"], encoded["token_type_ids"])), labels))
    start = time.perf_counter()
    scores = [train(args, int(seed), parts) for seed in args.seed.split(",")]
    print(json.dumps({
        "task": args.task, "scores": scores, "mean": statistics.fmean(scores),
        "spread": statistics.stdev(scores) if len(scores) > 1 else None, "seconds": time.perf_counter() - start,
    }))


if __name__ == "__main__":
    main()
