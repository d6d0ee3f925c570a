"""Real clients against a running server: huggingface_hub's InferenceClient and openai. Arguments: classifier and encoder URLs."""
import sys

classifier, encoder = sys.argv[1:]
try:
    from huggingface_hub import InferenceClient
except ImportError:
    print("skipped: huggingface_hub is not installed")
else:
    client = InferenceClient(base_url=classifier)
    best = client.text_classification("a joy from start to end")[0]
    assert best.label == "positive" and best.score > 0.9, best
    vector = InferenceClient(base_url=encoder).feature_extraction("the cat")
    assert vector.shape[-1] == 24, vector.shape
    print("huggingface_hub: fine")
try:
    import openai
except ImportError:
    print("skipped: openai is not installed")
else:
    client = openai.OpenAI(base_url=encoder + "/v1", api_key="none", max_retries=0)
    found = client.embeddings.create(model="any", input=["the cat", "a mat"])
    assert len(found.data) == 2 and len(found.data[0].embedding) == 24 and found.usage.prompt_tokens > 0
    try:
        client.embeddings.create(model="any", input=[])
        raise AssertionError("an empty input must be refused")
    except openai.BadRequestError as error:
        assert "empty" in error.message, error.message
    print("openai: fine")
