"""The benchmark's models: random weights of two shapes, and the forms the rivals want them in.

A model is a Hugging Face directory; beside its files stand, once asked for,

    model.onnx          f32, dynamic shapes (ONNX Runtime, OpenVINO)
    model_int8.onnx     ONNX Runtime's dynamic quantization
    model_int8.xml      OpenVINO's static quantization by NNCF, calibrated on short sentences

Run as a program it makes one of them in a process of its own, so that the coordinator never loads a framework:

    python3 models.py shape bert-base encoder DIR
    python3 models.py onnx|ort-int8|openvino-int8 MODEL_DIR OUT_DIR [--calibration FILE]
    python3 models.py sentences MODEL_DIR SST2_DIR OUT_DIR
"""

import argparse
import json
import pathlib
import warnings

SHAPES = {
    "bert-base": dict(num_hidden_layers=12, hidden_size=768, num_attention_heads=12, intermediate_size=3072),
    "minilm-l6": dict(num_hidden_layers=6, hidden_size=384, num_attention_heads=12, intermediate_size=1536),
}
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


def make_shape(shape, output, directory):
    """Random weights from seed 0. Encoder and classifier have the same encoder weights."""
    import torch
    import transformers as tf

    torch.manual_seed(0)
    model = tf.BertForSequenceClassification(tf.BertConfig(**SHAPES[shape], num_labels=2))
    if output == "encoder":
        encoder = tf.BertModel(model.config)
        encoder.load_state_dict(model.bert.state_dict())
        model = encoder
    model.save_pretrained(directory)


def load(directory, **k):
    """The model as published, in f32, and whether it classifies."""
    import torch
    import transformers as tf

    config = json.loads((pathlib.Path(directory) / "config.json").read_text())
    classifies = config["architectures"][0].endswith("SequenceClassification")
    kind = tf.BertForSequenceClassification if classifies else tf.BertModel
    return kind.from_pretrained(directory, dtype=torch.float32, **k).eval(), classifies


def export_onnx(directory, out):
    import torch

    model, classifies = load(directory, attn_implementation="eager")

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, token_type_ids):
            y = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
            return y.logits if classifies else y.last_hidden_state

    ids = torch.randint(1, 30000, (2, 16))
    example = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    axes = {k: {0: "batch", 1: "length"} for k in INPUTS}
    axes["y"] = {0: "batch"} if classifies else {0: "batch", 1: "length"}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Wrapped(), example, str(out / "model.onnx"), input_names=INPUTS, output_names=["y"], dynamo=False, opset_version=17, dynamic_axes=axes
        )


def ort_int8(out):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(str(out / "model.onnx"), str(out / "model_int8.onnx"), weight_type=QuantType.QInt8)


def openvino_int8(out, calibration):
    """NNCF's post-training quantization with its Transformer preset, on sentences like those of SST-2."""
    import nncf
    import numpy as np
    import openvino as ov

    if calibration:
        sentences = json.loads(pathlib.Path(calibration).read_text())
    else:
        rng = np.random.default_rng(0)
        sentences = [[101, *rng.integers(1000, 30000, n).tolist(), 102] for n in rng.integers(4, 60, 300)]

    def feed(ids):
        a = np.array([ids], dtype=np.int64)
        return dict(zip(INPUTS, (a, np.ones_like(a), np.zeros_like(a))))

    model = ov.Core().read_model(str(out / "model.onnx"))
    quantized = nncf.quantize(
        model,
        nncf.Dataset(sentences, feed),
        model_type=nncf.ModelType.TRANSFORMER,
        preset=nncf.QuantizationPreset.MIXED,
        subset_size=len(sentences),
    )
    ov.save_model(quantized, str(out / "model_int8.xml"), compress_to_fp16=False)


def sentences(model, data, out):
    """SST-2 as token ids: dev with its labels, and 300 training sentences to calibrate on."""
    import csv
    import random

    import transformers as tf

    tokenizer = tf.AutoTokenizer.from_pretrained(model)

    def read(name):
        with open(pathlib.Path(data) / name, newline="") as f:
            return list(csv.reader(f, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]

    dev = read("dev.tsv")
    ids = [tokenizer(s)["input_ids"] for s, _ in dev]
    (out / "dev.json").write_text(json.dumps({"ids": ids, "labels": [int(label) for _, label in dev]}))
    some = random.Random(0).sample(read("train.tsv"), 300)
    (out / "calibration.json").write_text(json.dumps([tokenizer(row[0])["input_ids"] for row in some]))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["shape", "onnx", "ort-int8", "openvino-int8", "sentences"])
    p.add_argument("rest", nargs="+")
    p.add_argument("--calibration", help="JSON list of token id lists")
    a = p.parse_args()
    out = pathlib.Path(a.rest[-1])
    out.mkdir(parents=True, exist_ok=True)
    if a.what == "shape":
        make_shape(*a.rest)
    elif a.what == "sentences":
        sentences(*a.rest[:2], out)
    elif a.what == "onnx":
        export_onnx(a.rest[0], out)
    elif a.what == "ort-int8":
        ort_int8(out)
    else:
        openvino_int8(out, a.calibration)


if __name__ == "__main__":
    main()
