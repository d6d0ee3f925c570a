"""windows.py DIR TEXT...: token ids and logits of Python's Longformer for each text, as JSON; fails if a weight is missing or left over."""

import json
import sys

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, LongformerForSequenceClassification

directory, *texts = sys.argv[1:]
model, loading = AutoModelForSequenceClassification.from_pretrained(directory, output_loading_info=True)
assert isinstance(model, LongformerForSequenceClassification), type(model)
assert not any(loading.values()), loading
tokenizer = AutoTokenizer.from_pretrained(directory)
assert tokenizer.model_max_length == model.config.max_position_embeddings - 1 - model.config.pad_token_id
model.eval()
answers = []
with torch.no_grad():
    for text in texts:
        batch = tokenizer(text, return_tensors="pt")
        answers.append((batch["input_ids"][0].tolist(), model(**batch).logits[0].tolist()))
print(json.dumps(answers))
