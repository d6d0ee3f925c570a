"""One epoch of fine-tuning on the CPU, PyTorch beside Sparing, taking turns.

    python bench/training/cpu.py MODEL --data glue --sparing target/release/sparing

Both fine-tune MODEL on the same task with the same batch size, dropout, clipping, optimizer and cut of long texts, in f32 (--bf16:
products in bf16, PyTorch's by autocast) on all cores. Both sort alike lengths together among 32 shuffled batches. `sparing train finetune` runs as it is and is stopped
(SIGSTOP) after every few updates, which its log shows, while PyTorch does as many: whatever else the machine does hits both.
Prints the seconds that each took for its updates and per thousand real tokens (the shuffles differ, and so may the lengths
of a few batches), start, tokenizer and scoring left out, and the ratio.
"""

import argparse
import json
import math
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reference import read


class Sparing:
    """`sparing train finetune`, let run for some updates at a time."""

    def __init__(self, args):
        self.folder = tempfile.TemporaryDirectory()
        out = Path(self.folder.name) / "out"
        command = [args.sparing, "train", "finetune", args.model, "--task", args.task, "--data", args.data, "--out", out]
        command += ["--batch", args.batch, "--max-tokens", args.max_tokens, "--epochs", 1, "--lr", args.lr, "--seed", 0]
        command += ["--bf16"] if args.bf16 else []
        command = [str(c) for c in command]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.log = Path(f"{out}.work") / "seed-0" / "train.jsonl"
        self.done = self.tokens = 0
        self.until(1)
        self.process.send_signal(signal.SIGSTOP)

    def until(self, updates):
        """Waits until so many updates are done."""
        while self.done < updates:
            time.sleep(0.002)
            assert self.process.poll() is None, "sparing stopped"
            if self.log.exists():
                lines = self.log.read_bytes().split(b"\n")[:-1]
                self.done, self.tokens = len(lines), json.loads(lines[-1])["tokens"] if lines else 0

    def run(self, updates):
        start, before = time.perf_counter(), self.tokens
        self.process.send_signal(signal.SIGCONT)
        self.until(self.done + updates)
        self.process.send_signal(signal.SIGSTOP)
        return time.perf_counter() - start, self.tokens - before

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


class PyTorch:
    """transformers' model and PyTorch's AdamW, a generator of updates."""

    def __init__(self, args):
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self.torch, self.args = torch, args
        torch.manual_seed(0)
        first, second, self.labels = read(args.task, args.data, "train")
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        kwargs = dict(truncation=True, max_length=args.max_tokens)
        self.encoded = tokenizer(first, second, **kwargs) if second else tokenizer(first, **kwargs)
        self.model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=2).float().train()
        plain, decayed = [], []
        for name, parameter in self.model.named_parameters():
            (plain if parameter.dim() < 2 or name.endswith("bias") else decayed).append(parameter)
        groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=args.lr, fused=args.fused)
        self.batches = self.make_batches()
        self.total = len(self.batches)
        self.run(1)

    def make_batches(self):
        order, size = random.Random(0), self.args.batch
        examples = list(range(len(self.labels)))
        order.shuffle(examples)
        batches = []
        for at in range(0, len(examples), size * 32):
            group = sorted(examples[at:at + size * 32], key=lambda i: len(self.encoded["input_ids"][i]))
            batches += [group[i:i + size] for i in range(0, len(group), size)]
        order.shuffle(batches)
        return batches

    def update(self, chosen):
        torch = self.torch
        longest = max(len(self.encoded["input_ids"][i]) for i in chosen)
        pad = lambda key: torch.tensor([self.encoded[key][i] + [0] * (longest - len(self.encoded[key][i])) for i in chosen])
        inputs = {key: pad(key) for key in ("input_ids", "token_type_ids", "attention_mask")}
        with torch.autocast("cpu", torch.bfloat16, enabled=self.args.bf16):
            loss = self.model(**inputs, labels=torch.tensor([self.labels[i] for i in chosen])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss.item()

    def run(self, updates):
        start, tokens = time.perf_counter(), 0
        for _ in range(updates):
            chosen = self.batches.pop()
            self.update(chosen)
            tokens += sum(len(self.encoded["input_ids"][i]) for i in chosen)
        return time.perf_counter() - start, tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--task", default="rte")
    parser.add_argument("--data", required=True)
    parser.add_argument("--sparing", default="target/release/sparing")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--updates", type=int, help="stop after so many updates instead of an epoch")
    parser.add_argument("--turn", type=int, default=3, help="updates before the other has its turn")
    parser.add_argument("--bf16", action="store_true", help="multiply in bf16, both")
    parser.add_argument("--fused", action="store_true", help="PyTorch's fused AdamW")
    args = parser.parse_args()
    pytorch, sparing = PyTorch(args), Sparing(args)
    engines = {"pytorch": pytorch, "sparing": sparing}
    turns = {name: [] for name in engines}
    # The first update warms up; the last is left out, for the scoring that follows it.
    left = min(pytorch.total - 2, args.updates or pytorch.total)
    count = math.ceil(left / args.turn)
    for number in range(count):
        print(f"\rturn {number + 1} of {count}", end="", file=sys.stderr)
        for name in list(engines)[:: 1 if number % 2 else -1]:
            turns[name].append(engines[name].run(min(args.turn, left - number * args.turn)))
    sparing.end()
    seconds = {name: sum(s for s, _ in each) for name, each in turns.items()}
    pace = {name: seconds[name] / sum(t for _, t in each) * 1e3 for name, each in turns.items()}
    paces = {name: [s / t * 1e3 for s, t in each] for name, each in turns.items()}
    ratios = [p / s for p, s in zip(paces["pytorch"], paces["sparing"])]
    print(json.dumps({
        "task": args.task, "updates": left, "batch": args.batch, "bf16": args.bf16, "seconds": seconds,
        "seconds per thousand tokens": pace,
        "least of the turns": {name: min(each) for name, each in paces.items()},
        "pytorch / sparing": pace["pytorch"] / pace["sparing"],
        "pytorch / sparing, median of turns": statistics.median(ratios),
        "torch": pytorch.torch.__version__, "threads": pytorch.torch.get_num_threads(),
    }, indent=1))


if __name__ == "__main__":
    main()
