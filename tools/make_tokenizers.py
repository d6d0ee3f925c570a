"""Tiny tokenizers, and what the Python reference makes of tricky texts with them. Run by make_fixtures.py.

Each directory under the fixtures has the tokenizer's files and `golden.json`:
[{"text": ..., "pair": ... or null, "ids": [...], "types": [...], "tokens": [...]}]
"""

import collections
import json
import math
import shutil

import tokenizers as tk
import transformers as tf

CORPUS = [
    "the film is a gorgeous , witty and moving story of a young woman and her father .",
    "The plot is thin, but the actors are not; they make it work, and work well!",
    "who wrote it ? it was written by a young man from the north of the country .",
    "not a good film, not a bad one: a film that is there when you need it.",
    "It's what they'd call a classic, isn't it? I'm sure we'll see, and you've seen it.",
    "in 1994 the company sold 12,000 copies at $3.50 each (about 42,000 dollars).",
    "unaffordable, unbelievable, unforgettable: working, worked, worker, works.",
    "to be or not to be, that is the question; whether it is nobler in the mind to suffer.",
    "Café, naïve, résumé, Zürich. 東京は日本の首都です。 good morning 🙂",
] * 3

TEXTS = [
    ("", None),
    (" ", None),
    ("the film is good", None),
    ("  The  FILM,\tis\ngood!!  ", None),
    ("Café naïve RÉSUMÉ Zürich ÅNGSTRÖM İstanbul ß", None),
    ("cafe\u0301 (combining) \u1e9b\u0323 ﬁne", None),
    ("東京は日本の首都です", None),
    ("日本film한국어 ελληνικά Привет", None),
    ("hello🙂🙂 👩‍👩‍👧‍👦 flag🇫🇷", None),
    ("it's won't they'LL I'm you've 'quoted' \"double\" a--b c...d", None),
    ("$3.50, 12,000 (42%) a@b.c #tag x=y+z |~`^", None),
    ("unaffordableunbelievableunforgettableworkedworkerworks", None),
    ("x" * 150, None),
    ("zero\u200bwidth non\u00a0breaking soft\u00adhyphen \ufeffbom nul\u0000here \ufffd", None),
    ("tab\tnew\r\nline\u2028sep\u3000wide ", None),
    ("[MASK] and <mask> and [SEP] and </s> <|endoftext|> [ MASK ]", None),
    ("a [MASK]b <mask> c", None),
    ("who wrote it ?", "the film was written by a young woman ."),
    ("", "only the second"),
    ("only the first", ""),
    ("the " * 60 + "end", "a long pair " * 20),
]


def train_wordpiece(vocab, specials, lowercase):
    """Letters, a few endings and the commonest words. (The library's own trainer breaks ties differently each run.)"""
    normalise, split = tk.normalizers.BertNormalizer(lowercase=lowercase), tk.pre_tokenizers.BertPreTokenizer()
    count = collections.Counter(w for line in CORPUS for w, _ in split.pre_tokenize_str(normalise.normalize_str(line)))
    words = specials + sorted({c for w in count for c in w})
    words += sorted({"##" + c for w in count for c in w[1:]} - {"##" + c for c in "0123456789"})
    words += ["##ing", "##ed", "##er", "##able", "##or", "##ay", "un", "work", "##it", "##rench"]
    words += [w for w, _ in sorted(count.items(), key=lambda kv: (-kv[1], kv[0])) if w not in words]
    words += [f"[unused{i}]" for i in range(vocab)]
    return words[:vocab]


def train_bpe(vocab, specials):
    t = tk.Tokenizer(tk.models.BPE())
    t.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tk.trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=specials, initial_alphabet=sorted(tk.pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    t.train_from_iterator(CORPUS, trainer)
    model = json.loads(t.to_str())["model"]
    merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
    assert len(model["vocab"]) == vocab
    return model["vocab"], merges


BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def config(directory, **k):
    (directory / "tokenizer_config.json").write_text(json.dumps(k, indent=2) + "\n")


def wordpiece_files(vocab, lowercase=True):
    def write(directory):
        (directory / "vocab.txt").write_text("\n".join(train_wordpiece(vocab, BERT_SPECIALS, lowercase)) + "\n")
        config(directory, do_lower_case=lowercase, tokenizer_class="BertTokenizer", model_max_length=40)

    return write


def mpnet_files(vocab):
    def write(directory):
        words = train_wordpiece(vocab, ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"], True)
        (directory / "vocab.txt").write_text("\n".join(words) + "\n")
        config(directory, do_lower_case=True, tokenizer_class="MPNetTokenizer", model_max_length=38)

    return write


def bpe_write(directory, vocab, merges):
    (directory / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False))
    (directory / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")


def gpt2_files(vocab):
    def write(directory):
        table, merges = train_bpe(vocab - 1, [])
        bpe_write(directory, {**table, "<|endoftext|>": vocab - 1}, merges)
        config(directory, tokenizer_class="GPT2Tokenizer", model_max_length=40)

    return write


def roberta_files(vocab):
    def write(directory):
        table, merges = train_bpe(vocab - 1, ["<s>", "<pad>", "</s>", "<unk>"])
        bpe_write(directory, {**table, "<mask>": vocab - 1}, merges)
        config(directory, tokenizer_class="RobertaTokenizer", model_max_length=512)

    return write


def unigram_files(vocab):
    """A tokenizer.json of the kind ALBERT and XLNet use: nothing in it can be guessed from a vocabulary file."""

    def write(directory):
        normalise = tk.normalizers.Sequence([tk.normalizers.Replace("``", '"'), tk.normalizers.NFKD(), tk.normalizers.StripAccents(), tk.normalizers.Lowercase(), tk.normalizers.Replace(tk.Regex(" {2,}"), " ")])
        count = collections.Counter("▁" + w for line in CORPUS for w in normalise.normalize_str(line).split())
        count.update({piece: 6 for piece in ("ing", "ed", "able", "un", "ou", "th", "▁re")})
        letters = collections.Counter(c for w, n in count.items() for c in w * n)
        best = sorted(count.items(), key=lambda kv: (-kv[1], kv[0]))[: vocab - 5 - len(letters)]
        pieces = [(p, round(math.log(n / 1000), 4)) for p, n in best if len(p) > 1] + [(c, round(math.log(n / 1000) - 6, 4)) for c, n in sorted(letters.items())]
        specials = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
        t = tk.Tokenizer(tk.models.Unigram([(x, 0.0) for x in specials] + pieces, unk_id=1))
        t.add_special_tokens(specials)
        t.normalizer = normalise
        t.pre_tokenizer = tk.pre_tokenizers.Metaspace()
        t.decoder = tk.decoders.Metaspace()
        t.post_processor = tk.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        t.save(str(directory / "tokenizer.json"))
        config(directory, tokenizer_class="PreTrainedTokenizerFast", model_max_length=512)

    return write


def fixtures(out):
    """Writes every tokenizer fixture."""
    kinds = {
        "bert-vocab": (wordpiece_files(220), {"model_type": "bert"}),
        "bert-cased-vocab": (wordpiece_files(220, lowercase=False), {"model_type": "bert"}),
        "mpnet-vocab": (mpnet_files(220), {"model_type": "mpnet"}),
        "gpt2-merges": (gpt2_files(340), {"model_type": "gpt2"}),
        "roberta-merges": (roberta_files(340), {"model_type": "roberta"}),
        "unigram-json": (unigram_files(160), {"model_type": "albert"}),
    }
    for name, (write, model) in kinds.items():
        directory = out / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        write(directory)
        (directory / "config.json").write_text(json.dumps(model) + "\n")
        if name.endswith("json"):
            reader = tf.PreTrainedTokenizerFast(tokenizer_file=str(directory / "tokenizer.json"))
        elif name.startswith("roberta"):
            # RoBERTa was trained with a mask that swallows the space before it; version 5 of the reference forgets to say so.
            reader = tf.AutoTokenizer.from_pretrained(directory, mask_token=tk.AddedToken("<mask>", lstrip=True))
        else:
            reader = tf.AutoTokenizer.from_pretrained(directory)
        golden = []
        for text, pair in TEXTS:
            e = reader._tokenizer.encode(text, pair) if pair is not None else reader._tokenizer.encode(text)
            golden.append({"text": text, "pair": pair, "ids": e.ids, "types": e.type_ids, "tokens": e.tokens})
        (directory / "golden.json").write_text("[\n" + ",\n".join(json.dumps(g, ensure_ascii=True) for g in golden) + "\n]\n")
        print(f"tokenizer {name}: {reader.__class__.__name__}, {len(reader)} tokens")
