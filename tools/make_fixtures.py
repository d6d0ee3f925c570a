#!/usr/bin/env python3
"""Makes the golden fixtures: tiny random models of every family and head, with the answers of the Python reference.

    python3 tools/make_fixtures.py                 # everything except the real model
    python3 tools/make_fixtures.py --only bert     # directories whose name starts with "bert"
    python3 tools/make_fixtures.py --minilm DIR --sst2 DIR

Needs torch, transformers and tokenizers. Each directory is a Hugging Face model directory plus `golden.json`:

    sequences    [{"ids": [...], "types": [...]}]   types are absent where the family has none
    outputs      one flat list per sequence: the head's raw numbers, rows x width
    width        numbers per row of `outputs`
    hidden       one flat list per sequence: the last hidden state (after the final norm), tokens x hidden size
    texts        only where the directory has a tokenizer: [{"text", "pair"?, "ids", "types"?, "outputs"?}]
    generations  only gpt2-causal*: [{"prompt": ids, "continuation": ids}], greedy

Every sequence is run alone, so no number here has seen padding. Weights are drawn so that everything matters:
the library's own initialisation (zero biases, unit norms, tiny weights) would hide most mistakes.
Every fixture is also run in f64; one whose f32 answer is not well determined is refused.
"""

import argparse
import json
import math
import pathlib
import shutil
import sys
import zlib

import numpy as np
import torch
import transformers as tf
from safetensors.torch import load_file, save_file

import make_tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "crates/engine/tests/fixtures"
VOCAB = 67
RESERVED = 5  # ids below are special tokens (padding shifts positions in some families), so random ids start here
LENGTHS = [1, 2, 7, 13]

torch.set_num_threads(1)
torch.set_grad_enabled(False)
tf.logging.set_verbosity_error()
tf.logging.disable_progress_bar()


# ---------------------------------------------------------------------------------------------- weights


def randomise(model, generator, gain):
    """Random weights whose effect can be seen everywhere: matrices keep the signal's size times `gain`."""
    seen = set()
    for name, p in model.named_parameters():
        if p.data_ptr() in seen:
            continue
        seen.add(p.data_ptr())
        z = torch.randn(p.shape, generator=generator)
        lower = name.lower()
        if "norm" in lower or "ln_" in lower:
            z = 1 + 0.3 * z if name.endswith("weight") else 0.3 * z
        elif p.dim() == 1:
            z = 0.3 * z
        elif any(t in lower for t in ("embeddings.weight", "embedding.weight", "_embed", "relative_attention_bias", "wte.", "wpe.")):
            z = 0.7 * z
        elif "_bias" in lower:  # XLNet's r_w_bias and friends
            z = 0.5 * z
        else:
            z = z * (gain / math.sqrt(fan_in(name, p)))
        p.data.copy_(z)


def fan_in(name, p):
    """Inputs of a matrix: the first axis for Conv1D (GPT-2) and XLNet's q/k/v/r, else the last."""
    first = any(t in name for t in ("c_attn.", "c_proj.", "c_fc.", "rel_attn.q", "rel_attn.k", "rel_attn.v", "rel_attn.r"))
    return p.shape[0] if first else p.shape[-1]


# ---------------------------------------------------------------------------------------------- running


def arguments(family, sequence, config):
    ids = torch.tensor([sequence["ids"]])
    kwargs = {"input_ids": ids}
    if family == "xlnet" or "types" in sequence:
        # XLNet drops the whole segment term when it gets no types; its tokenizer always gives them.
        kwargs["token_type_ids"] = torch.tensor([sequence.get("types", [0] * len(sequence["ids"]))])
    return kwargs


def base_of(model):
    return model if model.base_model is model else model.base_model


def run(model, family, sequence):
    """(outputs [rows, width], last hidden state [tokens, hidden])."""
    caught = {}

    def catch(_module, _args, out):
        caught["hidden"] = out[0] if isinstance(out, tuple) else out.last_hidden_state

    hook = base_of(model).register_forward_hook(catch)
    out = model(**arguments(family, sequence, model.config))
    hook.remove()
    hidden = caught["hidden"][0]
    if "start_logits" in out:
        rows = torch.stack([out.start_logits[0], out.end_logits[0]], dim=-1)
    elif "logits" in out:
        rows = out.logits[0]
    else:
        rows = hidden
    return rows.reshape(-1, rows.shape[-1]), hidden


def numbers(t):
    return [float(f"{x:.7g}") for x in t.float().flatten().tolist()]


def determined(name, f32, f64):
    """Refuses a fixture whose f32 answer depends on the order of summation."""
    worst = ((f32.double() - f64).abs() / f64.abs().clamp(min=1)).max().item()
    if not worst < 2e-5:
        raise SystemExit(f"{name}: f32 and f64 differ by {worst:.1e}; choose a smaller gain")
    return worst


# ---------------------------------------------------------------------------------------------- sequences


def random_ids(rng, n, vocab, first=RESERVED):
    return [int(x) for x in rng.integers(first, vocab, n)]


def make_sequences(rng, family, head, lengths, vocab, types):
    sequences = []
    for n in lengths:
        ids = random_ids(rng, n, vocab)
        if family == "longformer" and head == "answer":
            # The reference wants exactly three separators (id 2) and gives global attention to what precedes the first.
            question = max(1, n // 4)
            ids[question] = ids[question + 1] = ids[-1] = 2
            ids[0] = 0
        s = {"ids": ids}
        if types == 3:  # XLNet: the tokenizer gives the final [CLS] a segment of its own
            cut = n // 2
            s["types"] = ([0] * cut + [1] * (n - cut))[: n - 1] + [2]
        elif types == 2 and n > 1:
            cut = max(1, n // 3)
            s["types"] = [0] * cut + [1] * (n - cut)
        elif types == 2:
            s["types"] = [1]
        sequences.append(s)
    if types == 2:  # one without types: they count as zeros
        sequences.append({"ids": random_ids(rng, 5, vocab)})
        if family == "longformer" and head == "answer":
            sequences[-1]["ids"] = [0, 9, 2, 2, 7, 2]
    return sequences


# ---------------------------------------------------------------------------------------------- writing


def write_weights(model, directory, dtype=torch.float32, shards=1, rename=None, extra=None):
    model.save_pretrained(directory)
    path = directory / "model.safetensors"
    tensors = {k: v.to(dtype) if v.is_floating_point() else v for k, v in load_file(path).items()}
    if rename:
        tensors = {rename(k): v for k, v in tensors.items()}
    tensors.update(extra or {})
    if shards == 1:
        save_file(tensors, path, metadata={"format": "pt"})
    else:
        path.unlink()
        names, where, size = sorted(tensors), {}, 0
        for i in range(shards):
            part = {k: tensors[k] for k in names[i::shards]}
            file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
            save_file(part, directory / file, metadata={"format": "pt"})
            where.update({k: file for k in part})
            size += sum(v.numel() * v.element_size() for v in part.values())
        index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(where.items()))}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    generation = directory / "generation_config.json"
    if generation.exists():
        generation.unlink()


def edit_config(directory, edit):
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config.pop("transformers_version", None)
    edit(config)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def write_golden(directory, golden):
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'), ensure_ascii=True)}" for k, v in golden.items())
    (directory / "golden.json").write_text("{" + lines + "}\n")


def fixture(
    name,
    config,
    classes,
    head,
    *,
    lengths=None,
    types=0,
    gain=1.4,
    dtype=torch.float32,
    shards=1,
    rename=None,
    extra=None,
    edit=lambda c: None,
    tokenizer=None,
    texts=(),
    generate=False,
    finish=None,
):
    """One directory. `classes` is the reference's class for this head."""
    if not name.startswith(ONLY):
        return
    family = name.split("-")[0]
    directory = OUT / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)

    seed = zlib.crc32(name.encode())
    rng = np.random.default_rng(seed)
    config._attn_implementation = "eager"
    model = classes(config).eval()
    randomise(model, torch.Generator().manual_seed(seed), gain)
    if dtype != torch.float32:
        model.to(dtype).float()  # the answers are those of the rounded weights
    write_weights(model, directory, dtype, shards, rename, extra)
    edit_config(directory, edit)
    double = type(model)(config).double().eval()
    double.load_state_dict(model.state_dict())

    def answer(sequence):
        (rows, hidden), (rows64, hidden64) = run(model, family, sequence), run(double, family, sequence)
        if finish:
            rows, rows64 = finish(rows, hidden), finish(rows64, hidden64)
        return rows, hidden, max(determined(name, rows, rows64), determined(name, hidden, hidden64))

    golden = {"sequences": make_sequences(rng, family, head, lengths or LENGTHS, config.vocab_size, types), "outputs": [], "width": 0, "hidden": []}
    worst, biggest = 0.0, 0.0
    for s in golden["sequences"]:
        rows, hidden, error = answer(s)
        golden["width"] = rows.shape[-1]
        golden["outputs"].append(numbers(rows))
        golden["hidden"].append(numbers(hidden))
        worst, biggest = max(worst, error), max(biggest, rows.abs().max().item())
    if head == "hidden":
        golden["outputs"] = golden["hidden"]
    if tokenizer:
        tokenizer(directory)
        reader = tf.AutoTokenizer.from_pretrained(directory)
        golden["texts"] = []
        for text, pair in texts:
            e = reader(text, pair)
            s = {"ids": e["input_ids"]}
            if "token_type_ids" in e:
                s["types"] = e["token_type_ids"]
            entry = {"text": text, **({"pair": pair} if pair is not None else {}), **s}
            outputs = answer(s)[0]
            if outputs.numel() < 4000:  # vocabulary logits of a long text are many
                entry["outputs"] = numbers(outputs)
            golden["texts"].append(entry)
    if generate:
        golden["generations"] = generations(name, model, rng)
    write_golden(directory, golden)
    size = sum(f.stat().st_size for f in directory.rglob("*") if f.is_file())
    print(f"{name:32} {size / 1024:7.1f} KiB  f32-f64 {worst:.0e}  largest {biggest:.2f}")


def generations(name, model, rng):
    """Greedy continuations, refused where the best two tokens are too close to call."""
    found = []
    for n in (1, 4, 9):
        prompt = random_ids(rng, n, model.config.vocab_size)
        ids, margin = list(prompt), math.inf
        for _ in range(20):
            top = model(input_ids=torch.tensor([ids])).logits[0, -1].topk(2)
            margin = min(margin, (top.values[0] - top.values[1]).item())
            ids.append(top.indices[0].item())
        if margin < 1e-3:
            raise SystemExit(f"{name}: a greedy step is too close to call ({margin:.1e})")
        found.append({"prompt": prompt, "continuation": ids[n:]})
        print(f"{name}: margin {margin:.3f}, distinct tokens {len(set(ids[n:]))}")
    return found


# ---------------------------------------------------------------------------------------------- families


def labels(n, words="zero one two three four five six".split()):
    return {"id2label": {i: words[i] for i in range(n)}, "label2id": {words[i]: i for i in range(n)}}


HEADS = {
    "hidden": {},
    "classify": dict(**labels(3), problem_type="single_label_classification"),
    "multilabel": dict(**labels(5), problem_type="multi_label_classification"),
    "regress": dict(**labels(1), problem_type="regression"),
    "token": labels(4),
    "answer": {},
    "mlm": {},
}


def heads(family, config_of, classes, *, longest, types=0, mlm=True, gain=1.4, layers="num_hidden_layers", edit=lambda c: None):
    """The heads every encoder has, one directory each."""
    for head, switches in HEADS.items():
        if head == "mlm" and not mlm:
            continue
        lengths = [1, 3, 7] if head == "mlm" else [1, 2, 9, longest] if head == "hidden" else LENGTHS
        if family == "longformer":
            lengths = [6, 13, longest] if head == "answer" else [1, 3, 11] if head == "mlm" else [1, 2, 19, longest]
        if head in ("multilabel", "regress"):  # the same head as classify
            lengths = [2, 7]
        if head in ("multilabel", "regress", "mlm", "token") or head == "answer" and family != "longformer":
            switches = {**switches, layers: 1}  # the others try the layers
        class_of = {"hidden": classes[0], "token": classes[2], "answer": classes[3], "mlm": classes[4] if mlm else None}.get(head, classes[1])
        fixture(f"{family}-{head}", config_of(**switches), class_of, head, lengths=lengths, types=types, gain=gain, edit=edit)


def bert_config(**k):
    base = dict(vocab_size=VOCAB, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=42, max_position_embeddings=33, type_vocab_size=2)
    return tf.BertConfig(**{**base, **k})


TEXT_VOCAB = 180
BERT_TEXTS = [
    ("a gorgeous , witty film", None),
    ("The plot is thin; the actors are not!", None),
    ("Café, naïve: 東京 🙂", None),
    ("who wrote it ?", "the film was written by a young woman ."),
    ("", None),
]


def bert():
    classes = (tf.BertModel, tf.BertForSequenceClassification, tf.BertForTokenClassification, tf.BertForQuestionAnswering, tf.BertForMaskedLM)
    heads("bert", bert_config, classes, longest=33, types=2)
    # 3 layers of 3 heads of 9: no width is a multiple of anything a vector unit likes.
    fixture("bert-hidden-odd", bert_config(hidden_size=27, num_hidden_layers=3, num_attention_heads=3, intermediate_size=29, hidden_act="relu", layer_norm_eps=1e-5), classes[0], "hidden", types=2)
    fixture("bert-hidden-wide", bert_config(hidden_size=48, num_hidden_layers=1, num_attention_heads=1, intermediate_size=35, hidden_act="gelu_new", vocab_size=30, max_position_embeddings=20), classes[0], "hidden", types=2, lengths=[20])
    fixture("bert-classify-f16", bert_config(**HEADS["classify"]), classes[1], "classify", types=2, dtype=torch.float16)
    fixture("bert-classify-bf16", bert_config(**HEADS["classify"], hidden_act="silu"), classes[1], "classify", types=2, dtype=torch.bfloat16)
    fixture("bert-token-sharded", bert_config(**HEADS["token"], hidden_act="gelu_pytorch_tanh"), classes[2], "token", types=2, shards=3)
    fixture("bert-mlm-untied", bert_config(tie_word_embeddings=False), classes[4], "mlm", types=2, lengths=[1, 6])
    # As old checkpoints have it: prefixed names in a bare encoder, gamma and beta, buffers and another head's tensors.
    fixture(
        "bert-hidden-legacy", bert_config(), classes[0], "hidden", types=2,
        rename=lambda k: "bert." + k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"),
        extra={"bert.embeddings.position_ids": torch.arange(33)[None], "cls.seq_relationship.bias": torch.zeros(2)},
        edit=lambda c: c.pop("architectures"),
    )
    # With a tokenizer, so that text can be run from end to end.
    wordpiece = make_tokenizers.wordpiece_files(TEXT_VOCAB)
    text = dict(types=2, tokenizer=wordpiece, texts=BERT_TEXTS)
    big = dict(vocab_size=TEXT_VOCAB, max_position_embeddings=40)
    fixture("bert-classify-text", bert_config(**big, **HEADS["classify"]), classes[1], "classify", **text)
    fixture("bert-answer-text", bert_config(**big, num_hidden_layers=1), classes[3], "answer", **text)
    masks = [("the [MASK] is good .", None), ("a [MASK] of [MASK] !", None)]
    fixture("bert-mlm-text", bert_config(**big, num_hidden_layers=1), classes[4], "mlm", lengths=[1, 4], types=2, tokenizer=wordpiece, texts=masks)


def distilbert():
    def config(**k):
        return tf.DistilBertConfig(**{**dict(vocab_size=VOCAB, dim=27, n_layers=2, n_heads=3, hidden_dim=42, max_position_embeddings=35), **k})

    classes = (tf.DistilBertModel, tf.DistilBertForSequenceClassification, tf.DistilBertForTokenClassification, tf.DistilBertForQuestionAnswering, tf.DistilBertForMaskedLM)
    heads("distilbert", config, classes, longest=35, layers="n_layers")


def roberta():
    def config(**k):
        return tf.RobertaConfig(**{**dict(vocab_size=VOCAB, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=42, max_position_embeddings=36, type_vocab_size=1, layer_norm_eps=1e-5), **k})

    classes = (tf.RobertaModel, tf.RobertaForSequenceClassification, tf.RobertaForTokenClassification, tf.RobertaForQuestionAnswering, tf.RobertaForMaskedLM)
    heads("roberta", config, classes, longest=34, edit=lambda c: c.pop("problem_type", None) if c["architectures"][0].endswith("SequenceClassification") and len(c["id2label"]) == 1 else None)


def albert():
    def config(**k):
        return tf.AlbertConfig(**{**dict(vocab_size=VOCAB, embedding_size=14, hidden_size=30, num_hidden_layers=3, num_attention_heads=3, intermediate_size=42, max_position_embeddings=33), **k})

    classes = (tf.AlbertModel, tf.AlbertForSequenceClassification, tf.AlbertForTokenClassification, tf.AlbertForQuestionAnswering, tf.AlbertForMaskedLM)
    heads("albert", config, classes, longest=33, types=2)
    fixture("albert-hidden-groups", config(num_hidden_layers=5, num_hidden_groups=2), classes[0], "hidden", types=2)
    fixture("albert-hidden-inner", config(num_hidden_layers=2, inner_group_num=2, hidden_act="gelu", hidden_size=20, num_attention_heads=2), classes[0], "hidden", types=2)


def mpnet_config(**k):
    return tf.MPNetConfig(**{**dict(vocab_size=VOCAB, hidden_size=25, num_hidden_layers=2, num_attention_heads=5, intermediate_size=42, max_position_embeddings=40, layer_norm_eps=1e-5), **k})


def mpnet():
    classes = (tf.MPNetModel, tf.MPNetForSequenceClassification, tf.MPNetForTokenClassification, tf.MPNetForQuestionAnswering, tf.MPNetForMaskedLM)
    heads("mpnet", mpnet_config, classes, longest=38)
    # Long enough to reach the last distance bucket.
    fixture("mpnet-classify-long", mpnet_config(max_position_embeddings=152, hidden_size=20, **HEADS["classify"]), classes[1], "classify", lengths=[150])


def electra():
    def config(**k):
        return tf.ElectraConfig(**{**dict(vocab_size=VOCAB, embedding_size=20, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=42, max_position_embeddings=33), **k})

    classes = (tf.ElectraModel, tf.ElectraForSequenceClassification, tf.ElectraForTokenClassification, tf.ElectraForQuestionAnswering, tf.ElectraForMaskedLM)
    heads("electra", config, classes, longest=33, types=2)
    fixture("electra-classify-equal", config(embedding_size=24, num_hidden_layers=1, **HEADS["classify"]), classes[1], "classify", types=2)


def mobilebert():
    def config(**k):
        base = dict(vocab_size=VOCAB, embedding_size=12, hidden_size=32, intra_bottleneck_size=18, num_hidden_layers=2, num_attention_heads=2, intermediate_size=22, max_position_embeddings=33, num_feedforward_networks=3)
        return tf.MobileBertConfig(**{**base, **k})

    classes = (tf.MobileBertModel, tf.MobileBertForSequenceClassification, tf.MobileBertForTokenClassification, tf.MobileBertForQuestionAnswering, tf.MobileBertForMaskedLM)
    heads("mobilebert", config, classes, longest=33, types=2, gain=0.8)
    other = dict(normalization_type="layer_norm", hidden_act="gelu")
    fixture("mobilebert-hidden-split", config(key_query_shared_bottleneck=False, intra_bottleneck_size=32, num_hidden_layers=1, **other), classes[0], "hidden", types=2)
    fixture("mobilebert-hidden-inner", config(use_bottleneck_attention=True, **other), classes[0], "hidden", types=2)
    fixture("mobilebert-classify-inner", config(use_bottleneck_attention=True, key_query_shared_bottleneck=False, num_feedforward_networks=1, classifier_activation=False, **HEADS["classify"]), classes[1], "classify", types=2, gain=0.8)
    fixture("mobilebert-hidden-plain", config(use_bottleneck=False, trigram_input=False, hidden_size=24, embedding_size=24, num_feedforward_networks=2, **other), classes[0], "hidden", types=2)


def longformer():
    def config(**k):
        base = dict(vocab_size=VOCAB, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=44, max_position_embeddings=47, type_vocab_size=1, layer_norm_eps=1e-5, sep_token_id=2)
        base = {**base, **k}
        return tf.LongformerConfig(**{"attention_window": [4, 8][: base["num_hidden_layers"]], **base})

    classes = (tf.LongformerModel, tf.LongformerForSequenceClassification, tf.LongformerForTokenClassification, tf.LongformerForQuestionAnswering, tf.LongformerForMaskedLM)
    heads("longformer", config, classes, longest=45)
    fixture("longformer-hidden-one", config(attention_window=6), classes[0], "hidden", lengths=[5, 6, 7, 31])


def xlnet():
    def config(**k):
        return tf.XLNetConfig(**{**dict(vocab_size=VOCAB, d_model=24, n_layer=2, n_head=2, d_inner=44), **k})

    classes = (tf.XLNetModel, tf.XLNetForSequenceClassification, tf.XLNetForTokenClassification, tf.XLNetForQuestionAnsweringSimple)
    heads("xlnet", config, classes, longest=37, types=3, mlm=False, layers="n_layer")
    fixture("xlnet-hidden-clamp", config(clamp_len=5, d_model=30, n_head=5, ff_activation="relu", layer_norm_eps=1e-5), classes[0], "hidden", types=3, lengths=[4, 17])
    fixture("xlnet-hidden-zero", config(), classes[0], "hidden", types=0)
    fixture("xlnet-classify-first", config(summary_type="first", summary_activation="relu", **HEADS["classify"]), classes[1], "classify", types=3)
    fixture("xlnet-classify-mean", config(summary_type="mean", summary_use_proj=False, **HEADS["classify"]), classes[1], "classify", types=3)
    fixture("xlnet-causal", config(), tf.XLNetLMHeadModel, "causal", types=3, lengths=[1, 3, 7])
    fixture("xlnet-causal-uni", config(attn_type="uni"), tf.XLNetLMHeadModel, "causal", types=3, lengths=[1, 3, 7])


def gpt2():
    def config(**k):
        base = dict(vocab_size=VOCAB, n_positions=40, n_embd=26, n_layer=2, n_head=2, n_inner=42, bos_token_id=0, eos_token_id=0)
        return tf.GPT2Config(**{**base, **k})

    classes = (tf.GPT2Model, tf.GPT2ForSequenceClassification, tf.GPT2ForTokenClassification, tf.GPT2ForQuestionAnswering)
    heads("gpt2", config, classes, longest=40, mlm=False, layers="n_layer")
    fixture("gpt2-hidden-inverse", config(scale_attn_by_inverse_layer_idx=True, n_layer=3, n_embd=20, n_inner=None), classes[0], "hidden")
    fixture("gpt2-hidden-unscaled", config(scale_attn_weights=False, activation_function="relu", n_embd=24), classes[0], "hidden", gain=1.0)
    fixture("gpt2-causal", config(), tf.GPT2LMHeadModel, "causal", lengths=[1, 3, 12], gain=3.0, generate=True)
    fixture("gpt2-causal-untied", config(tie_word_embeddings=False), tf.GPT2LMHeadModel, "causal", lengths=[1, 6], generate=True)
    # As the hub's own GPT-2 has it: no "transformer." prefix, causal masks stored as tensors.
    masks = {f"h.{i}.attn.bias": torch.tril(torch.ones(1, 1, 8, 8)) for i in range(2)}
    fixture("gpt2-causal-hub", config(), tf.GPT2LMHeadModel, "causal", lengths=[2, 6], rename=lambda k: k.removeprefix("transformer."), extra=masks)
    texts = [("The film is good", None), ("a Café \n\n 東京 🙂!", None), (" I'm here, they'll see.", None)]
    fixture(
        "gpt2-causal-text", config(vocab_size=320, n_embd=24, bos_token_id=319, eos_token_id=319), tf.GPT2LMHeadModel, "causal",
        lengths=[2], tokenizer=make_tokenizers.gpt2_files(320), texts=texts, gain=2.2, generate=True,
    )


# ---------------------------------------------------------------------------------------------- sentence embeddings


def pool(mode, normalise):
    def finish(_rows, hidden):
        row = hidden[0] if mode == "cls" else hidden.amax(0) if mode == "max" else hidden.mean(0)
        row = row[None]
        return torch.nn.functional.normalize(row, dim=1) if normalise else row

    return finish


def sentence_transformer(mode, normalise, width, then=lambda d: None):
    """The files sentence-transformers puts around a bare encoder."""

    def write(directory):
        then(directory)
        modules = [("", "Transformer"), ("1_Pooling", "Pooling")] + ([("2_Normalize", "Normalize")] if normalise else [])
        text = [{"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{t}"} for i, (p, t) in enumerate(modules)]
        (directory / "modules.json").write_text(json.dumps(text, indent=2) + "\n")
        pooling = {"word_embedding_dimension": width}
        for key, m in (("cls_token", "cls"), ("mean_tokens", "mean"), ("max_tokens", "max")):
            pooling[f"pooling_mode_{key}"] = m == mode
        pooling["pooling_mode_mean_sqrt_len_tokens"] = False
        (directory / "1_Pooling").mkdir()
        (directory / "1_Pooling/config.json").write_text(json.dumps(pooling, indent=2) + "\n")
        (directory / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 32, "do_lower_case": False}, indent=2) + "\n")

    return write


def embed():
    wordpiece = make_tokenizers.wordpiece_files(TEXT_VOCAB)
    big = dict(vocab_size=TEXT_VOCAB, max_position_embeddings=40)
    for mode, normalise in (("mean", True), ("cls", True), ("max", False)):
        fixture(
            f"bert-embed-{mode}", bert_config(**big, num_hidden_layers=2 if mode == "mean" else 1), tf.BertModel, "embed", types=2,
            tokenizer=sentence_transformer(mode, normalise, 24, wordpiece), texts=BERT_TEXTS, finish=pool(mode, normalise),
        )
    mpnet_wordpiece = make_tokenizers.mpnet_files(TEXT_VOCAB)
    for mode, normalise in (("mean", True), ("cls", False)):
        fixture(
            f"mpnet-embed-{mode}", mpnet_config(vocab_size=TEXT_VOCAB), tf.MPNetModel, "embed",
            tokenizer=sentence_transformer(mode, normalise, 25, mpnet_wordpiece), texts=BERT_TEXTS, finish=pool(mode, normalise),
        )


# ---------------------------------------------------------------------------------------------- the real model


def minilm(model_dir, sst2):
    """Scores SST-2 dev and keeps the first 32 sentences' logits."""
    import csv

    tokenizer = tf.AutoTokenizer.from_pretrained(model_dir)
    model = tf.AutoModelForSequenceClassification.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager").eval()
    with open(pathlib.Path(sst2) / "dev.tsv", newline="") as f:
        rows = list(csv.reader(f, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    right, kept = 0, []
    for sentence, label in rows:
        e = tokenizer(sentence, return_tensors="pt")
        logits = model(**e).logits[0]
        right += int(logits.argmax().item() == int(label))
        if len(kept) < 32:
            kept.append({"sentence": sentence, "label": int(label), "ids": e["input_ids"][0].tolist(), "logits": numbers(logits)})
    print(f"SST-2 dev: {right} of {len(rows)} right")
    text = ",\n".join(json.dumps(k, ensure_ascii=True) for k in kept)
    (OUT / "minilm-sst2.json").write_text(f'{{"right": {right}, "total": {len(rows)}, "sentences": [\n{text}\n]}}\n')


def main():
    global ONLY
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", help="only directories whose name starts with this")
    p.add_argument("--minilm", help="directory of minilm-l6-sst2: write only its golden logits")
    p.add_argument("--sst2", help="directory with SST-2's dev.tsv")
    args = p.parse_args()
    ONLY = args.only
    if args.minilm:
        return minilm(args.minilm, args.sst2)
    make_tokenizers.fixtures(ROOT / "crates/model/tests/fixtures/tokenizers")
    for family in (bert, distilbert, roberta, albert, mpnet, electra, mobilebert, longformer, xlnet, gpt2, embed):
        family()
    total = sum(f.stat().st_size for f in OUT.rglob("*") if f.is_file())
    print(f"all fixtures: {total / 2**20:.2f} MiB")


if __name__ == "__main__":
    sys.exit(main())
