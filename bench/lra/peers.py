#!/usr/bin/env python3
"""Times one attention block, forward, against PyTorch and public re-implementations, in turns on one device.

    pip install torch einops performer-pytorch linformer nystrom-attention local-attention routing-transformer \\
        reformer-pytorch sinkhorn-transformer linear-attention-transformer
    python bench/lra/peers.py SPARING [--length 1024,2048,4096] [--rounds 5] [--device cuda]

A block is the maps to queries, keys and values, attention and the output map, of one sequence, width 512, 8 heads. Every
round times each side of every mechanism once, `sparing bench attention` first; a ratio is the median of the rounds' ratios.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch
from torch import nn

WIDTH, HEADS = 512, 8


class Block(nn.Module):
    """Maps around attention that has none of its own."""

    def __init__(self, attend):
        super().__init__()
        self.inputs, self.output = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.attend = attend

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.inputs(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        return self.output(self.attend(q, k, v).transpose(1, 2).reshape(batch, length, WIDTH))


def full(length):
    return Block(nn.functional.scaled_dot_product_attention)


def local(length):
    from local_attention import LocalAttention

    one = LocalAttention(window_size=64, causal=False, look_backward=0, look_forward=0, dim=WIDTH // HEADS, use_rotary_pos_emb=False)
    return Block(lambda q, k, v: one(*(t.reshape(-1, length, WIDTH // HEADS) for t in (q, k, v))).view(q.shape))


def linformer(length):
    from linformer import LinformerSelfAttention

    return LinformerSelfAttention(WIDTH, length, k=128, heads=HEADS)


def performer(length):
    from performer_pytorch import SelfAttention

    return SelfAttention(WIDTH, heads=HEADS, dim_head=WIDTH // HEADS, nb_features=256)


def nystrom(length):
    from nystrom_attention import NystromAttention

    return NystromAttention(WIDTH, dim_head=WIDTH // HEADS, heads=HEADS, num_landmarks=128, pinv_iterations=6, residual=False)


def reformer(length):
    from reformer_pytorch import LSHSelfAttention

    return LSHSelfAttention(WIDTH, heads=HEADS, bucket_size=64, n_hashes=2)


def sinkhorn(length):
    from sinkhorn_transformer.sinkhorn_transformer import SinkhornSelfAttention

    return SinkhornSelfAttention(WIDTH, 64, length, heads=HEADS)


def routing(length):
    from routing_transformer.routing_transformer import SelfAttention

    module = SelfAttention(WIDTH, 1, length, HEADS, 0, length // 16)
    return lambda x: module(x)[0]


def linear(length):
    from linear_attention_transformer.linear_attention_transformer import SelfAttention

    return SelfAttention(WIDTH, HEADS)


# Ours by name, theirs, and where theirs comes from.
PEERS = {
    "full": (full, "torch, scaled_dot_product_attention"),
    "local": (local, "local-attention"),
    "linformer": (linformer, "linformer"),
    "performer": (performer, "performer-pytorch"),
    "linear": (linear, "linear-attention-transformer"),
    "nystrom": (nystrom, "nystrom-attention"),
    "reformer": (reformer, "reformer-pytorch"),
    "sinkhorn": (sinkhorn, "sinkhorn-transformer"),
    "routing": (routing, "routing-transformer"),
}


def seconds(block, x):
    def ready():
        if x.is_cuda:
            torch.cuda.synchronize()

    ready()
    start = time.perf_counter()
    with torch.inference_mode():
        block(x)
    ready()
    return time.perf_counter() - start


def ours(program, length, device):
    command = [program, "bench", "attention", "--attention", ",".join(PEERS), "--length", str(length), "--repeats", "1"]
    command += ["--device", device, "-o", "json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {row["attention"]: row["milliseconds"] / 1e3 for row in found}


def at_length(program, length, rounds, device):
    x = torch.rand(1, length, WIDTH) * 2 - 1
    blocks = {}
    for name, (make, source) in PEERS.items():
        try:
            block = make(length)
            seconds(block, x)
            blocks[name] = block
        except Exception as e:  # whatever a package of somebody else's does
            print(f"{source}: left out ({type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''})", file=sys.stderr)
    own, other = {name: [] for name in blocks}, {name: [] for name in blocks}
    for _ in range(rounds):
        found = ours(program, length, device)
        for name, block in blocks.items():
            own[name].append(found[name])
            other[name].append(seconds(block, x))
    for name in blocks:
        ratio = statistics.median(b / a for a, b in zip(own[name], other[name]))
        a, b = statistics.median(own[name]), statistics.median(other[name])
        print(f"| {name} | {length} | {1e3 * a:.1f} | {1e3 * b:.1f} | {ratio:.2f}x | {PEERS[name][1]} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--length", default="1024,2048,4096")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    args = parser.parse_args()
    # Whatever is made from here on is made there.
    torch.set_default_device(args.device)
    torch.manual_seed(0)
    torch.set_num_threads(os.cpu_count())
    print("| attention | tokens | Sparing, ms | theirs, ms | theirs / Sparing | theirs |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for length in args.length.split(","):
        at_length(args.program, int(length), args.rounds, args.device)


if __name__ == "__main__":
    main()
