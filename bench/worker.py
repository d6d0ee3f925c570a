"""One rival in one process, driven by the line protocol described in bench/README.md.

    python3 worker.py ENGINE MODEL_DIR EXPORT_DIR THREADS

MODEL_DIR is the Hugging Face directory, EXPORT_DIR holds what models.py made of it (often the same).
Whether the encoder's rows or the classifier's logits come out is a matter of which model the directory holds.
"""

import gc
import os
import sys
import time
from types import SimpleNamespace

import numpy as np

INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


def feed(ids):
    """[batch, length] ids to the three inputs of BERT. No padding anywhere, so the mask is all ones."""
    a = np.asarray(ids, dtype=np.int64)
    return a, np.ones_like(a), np.zeros_like(a)


def torch_engine(variant, model_dir, _exports, threads):
    import torch
    import transformers

    import models

    transformers.BertModel, transformers.BertForSequenceClassification  # imported here, so as not to count as loading

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)

    def load():
        model, classifies = models.load(model_dir, attn_implementation="sdpa")
        if "bf16" in variant:
            model = model.to(torch.bfloat16)
        call = model
        if "compile" in variant:
            import torch._inductor.config as inductor

            inductor.freezing = True  # weights become constants and are packed ahead, as the others do
            # One program per shape: the best it can do.
            torch._dynamo.config.cache_size_limit = 64
            call = torch.compile(model, dynamic=False)
        guard = torch.no_grad if "compile" in variant else torch.inference_mode

        def prepare(ids):
            # No padding means no mask: PyTorch then takes its fastest attention.
            a, _, types = feed(ids)
            return dict(input_ids=torch.from_numpy(a), token_type_ids=torch.from_numpy(types))

        def run(x):
            with guard():
                y = call(**x)
                return y.logits if classifies else y.last_hidden_state

        return prepare, run, lambda y: y.float().numpy()

    return load


def onnxruntime_engine(variant, _model, exports, threads):
    import onnxruntime as ort

    def load():
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        # Spin while a run lasts, sleep between runs: full speed, and no harm to whoever is timed next.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        file = "model_int8.onnx" if "int8" in variant else "model.onnx"
        session = ort.InferenceSession(f"{exports}/{file}", options, providers=["CPUExecutionProvider"])
        wanted = {i.name for i in session.get_inputs()}

        def prepare(ids):
            return {k: v for k, v in zip(INPUTS, feed(ids)) if k in wanted}

        return prepare, lambda x: session.run(None, x)[0], np.asarray

    return load


def openvino_engine(variant, _model, exports, threads):
    import openvino as ov

    def load():
        core = ov.Core()
        file = "model_int8.xml" if "int8" in variant else "model.onnx"
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "INFERENCE_PRECISION_HINT": "bf16" if "bf16" in variant else "f32",
        }
        network = core.read_model(f"{exports}/{file}")

        def compile(network):
            compiled = core.compile_model(network, "CPU", settings)
            wanted = {n for i in compiled.inputs for n in i.names}
            return compiled.create_infer_request(), wanted

        any_shape = None if "fixed" in variant else compile(network)

        def prepare(ids):
            values = dict(zip(INPUTS, feed(ids)))
            request, wanted = any_shape or compile(reshaped(network, values))
            return request, {k: v for k, v in values.items() if k in wanted}

        def reshaped(network, values):
            """The network for this one shape and no other."""
            copy = network.clone()
            copy.reshape({i: list(values[n].shape) for i in copy.inputs for n in i.names if n in values})
            return copy

        def run(x):
            request, values = x
            return request.infer(values, share_inputs=True, share_outputs=True)

        return prepare, run, lambda y: np.array(y[0], dtype=np.float32)

    return load


ENGINES = {"torch": torch_engine, "onnxruntime": onnxruntime_engine, "openvino": openvino_engine}


def memory():
    """`rss hwm` in KiB."""
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return f"{status['VmRSS'].split()[0]} {status['VmHWM'].split()[0]}"


def main():
    engine, model_dir, exports, threads = sys.argv[1:5]
    # Whatever a framework prints must not mix with the answers.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    family = engine.split("-")[0]
    load = ENGINES[family](engine, model_dir, exports, int(threads))
    start = time.perf_counter()
    e = SimpleNamespace(**dict(zip(("prepare", "run", "numbers"), load())))
    print(f"READY {time.perf_counter() - start:.3f}", file=out)
    prepared = {}
    for line in sys.stdin:
        words = line.split()
        if len(words) < 2:
            break
        if words[0] == "ids":
            y = e.numbers(e.run(e.prepare([[int(w) for w in words[1:]]])))
            answers = [f"{v:.7g}" for v in y.ravel()]
        else:
            batch, length, times = map(int, words)
            if (batch, length) not in prepared:
                ids = ((np.arange(batch * length) * 7919 + 13) % 30000).reshape(batch, length)
                prepared[batch, length] = e.prepare(ids)
            x, answers = prepared[batch, length], []
            gc.disable()
            for _ in range(times):
                cpu, wall = time.process_time(), time.perf_counter()
                e.run(x)
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                answers.append(f"{wall * 1e3:.4f}:{cpu * 1e3:.4f}")
            gc.enable()
        print(" ".join(answers), "|", memory(), file=out)


if __name__ == "__main__":
    main()
