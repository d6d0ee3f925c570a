"""One training update, PyTorch beside Sparing, taking turns.

    python bench/training/step.py --sparing target/release/sparing --device cuda --bf16

A worker of each engine is started and warmed up; then rounds of updates alternate, and the ratio of the medians is
printed. PyTorch runs eagerly: transformers' BERT with a classifier, its default (fused) attention, AdamW (fused on a GPU),
bf16 by autocast. Both have dropout 0.1 and clip the gradients' norm at 1.
"""

import argparse
import json
import statistics
import subprocess
import time

SHAPES = {
    "minilm-l6": dict(num_hidden_layers=6, hidden_size=384, num_attention_heads=12, intermediate_size=1536),
    "bert-base": dict(num_hidden_layers=12, hidden_size=768, num_attention_heads=12, intermediate_size=3072),
}


class PyTorch:
    def __init__(self, args):
        import torch
        from transformers import BertConfig, BertForSequenceClassification

        self.torch, self.args = torch, args
        torch.manual_seed(0)
        self.model = BertForSequenceClassification(BertConfig(**SHAPES[args.shape])).to(args.device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=args.device == "cuda")
        ids = torch.arange(args.batch * args.length).mul(7919).add(13).remainder(30000)
        self.ids = ids.view(args.batch, args.length).to(args.device)
        self.labels = torch.arange(args.batch).remainder(2).to(args.device)

    def update(self):
        torch = self.torch
        with torch.autocast(self.args.device, torch.bfloat16, enabled=self.args.bf16):
            loss = self.model(input_ids=self.ids, labels=self.labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def wait(self):
        if self.args.device == "cuda":
            self.torch.cuda.synchronize()

    def round(self):
        self.wait()
        start = time.perf_counter()
        for _ in range(self.args.updates):
            self.update()
        self.wait()
        return (time.perf_counter() - start) / self.args.updates * 1e3


class Sparing:
    def __init__(self, args):
        command = [args.sparing, "train", "bench", "--shape", args.shape, "--batch", args.batch, "--length", args.length]
        command += ["--device", args.device, "--updates", args.updates, "--warmup", args.warmup, "--worker"]
        command += ["--bf16"] if args.bf16 else []
        command = [str(c) for c in command]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        start = time.perf_counter()
        assert self.process.stdout.readline().strip() == "READY", "sparing did not start"
        self.warm_up = time.perf_counter() - start

    def round(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sparing", default="target/release/sparing")
    parser.add_argument("--shape", choices=SHAPES, default="bert-base")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--tf32", action="store_true", help="let PyTorch round f32 products to tf32")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    if args.tf32:
        import torch

        torch.set_float32_matmul_precision("high")
    sparing, pytorch = Sparing(args), PyTorch(args)
    engines = {"sparing": sparing, "pytorch": pytorch}
    times = {name: [] for name in engines}
    for engine in engines.values():
        engine.round()
    for number in range(args.rounds):
        order = list(engines) if number % 2 == 0 else list(engines)[::-1]
        for name in order:
            times[name].append(engines[name].round())
    medians = {name: statistics.median(t) for name, t in times.items()}
    print(json.dumps({
        "shape": args.shape, "batch": args.batch, "length": args.length, "device": args.device,
        "precision": "bf16" if args.bf16 else ("tf32 (PyTorch), f32" if args.tf32 else "f32"),
        "ms": medians, "pytorch / sparing": medians["pytorch"] / medians["sparing"], "sparing warm-up s": sparing.warm_up,
    }, indent=1))


if __name__ == "__main__":
    main()
