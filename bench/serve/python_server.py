#!/usr/bin/env python3
"""The best Python server we could build on ONNX Runtime: FastAPI and uvicorn, batches of what waits, sorted by length so that
little is padded, int8 weights. It answers `/predict` as `sparing serve` does.

    pip install fastapi uvicorn onnxruntime tokenizers
    python3 ../models.py onnx MODEL OUT && python3 ../models.py ort-int8 MODEL OUT
    python_server.py --model MODEL --onnx OUT/model_int8.onnx --port 3001
"""
import argparse, asyncio, json, pathlib, threading

import numpy as np
import onnxruntime as ort
import tokenizers
import uvicorn
from fastapi import FastAPI, Request

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", required=True)
parser.add_argument("--onnx", required=True)
parser.add_argument("--port", type=int, default=3001)
parser.add_argument("--threads", type=int, default=0)
parser.add_argument("--batch-tokens", type=int, default=2048, help="tokens of a batch, padding included")
args = parser.parse_args()

options = ort.SessionOptions()
options.intra_op_num_threads = args.threads
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
# Spin while a run lasts, sleep between runs.
options.add_session_config_entry("session.force_spinning_stop", "1")
session = ort.InferenceSession(args.onnx, options, providers=["CPUExecutionProvider"])
names = [i.name for i in session.get_inputs()]
directory = pathlib.Path(args.model)
tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
tokenizer.no_padding()
tokenizer.enable_truncation(512)
labels = json.loads((directory / "config.json").read_text())["id2label"]
labels = [labels[str(i)] for i in range(len(labels))]
waiting, more, app = [], threading.Condition(), FastAPI()


def compute(items):
    """Runs inputs of about one length together and answers each."""
    longest = max(len(ids) for ids, *_ in items)
    ids = np.zeros((len(items), longest), np.int64)
    mask = np.zeros_like(ids)
    for row, (tokens, *_) in enumerate(items):
        ids[row, :len(tokens)] = tokens
        mask[row, :len(tokens)] = 1
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    logits = session.run(None, {name: feeds[name] for name in names})[0]
    powers = np.exp(logits - logits.max(1, keepdims=True))
    for (_, loop, future), row in zip(items, powers / powers.sum(1, keepdims=True)):
        loop.call_soon_threadsafe(lambda f=future, r=row: f.done() or f.set_result(r))


def dispatch():
    while True:
        with more:
            while not waiting:
                more.wait()
            taken, waiting[:] = waiting[:], []
        taken.sort(key=lambda item: len(item[0]))
        while taken:
            count = 1
            while count < len(taken) and len(taken[count][0]) * (count + 1) <= args.batch_tokens:
                count += 1
            compute(taken[:count])
            taken = taken[count:]


@app.get("/health")
async def health():
    return {}


@app.post("/predict")
async def predict(request: Request):
    text = (await request.json())["inputs"]
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    with more:
        waiting.append((tokenizer.encode(text).ids, loop, future))
        more.notify()
    scores = await future
    order = np.argsort(-scores)
    return [{"score": float(scores[i]), "label": labels[i]} for i in order]


threading.Thread(target=dispatch, daemon=True).start()
uvicorn.run(app, host="127.0.0.1", port=args.port, log_level="warning", access_log=False)
