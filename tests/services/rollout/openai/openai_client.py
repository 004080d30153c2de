"""OpenAI's own client against a rollout: openai_client.py URL TOKEN MODEL, which answers a line of
JSON for the test to judge. Every call has a deadline."""

import json
import sys

import openai

url, token, model = sys.argv[1:4]
client = openai.OpenAI(base_url=url + "/v1", api_key=token, timeout=60, max_retries=0)
out = {}


def failure(call):
    """What a call that must fail fails with."""
    try:
        call()
    except openai.APIStatusError as error:
        body = error.body if isinstance(error.body, dict) else {}
        return {"kind": type(error).__name__, "code": error.status_code, "param": body.get("param"),
                "reason": body.get("code"), "message": body.get("message")}
    return {"kind": "none"}


models = client.models.list()
out["models"] = [one.id for one in models.data]
out["model"] = client.models.retrieve(model).id

prompt = "Once upon a time"
greedy = dict(model=model, prompt=prompt, max_tokens=24, temperature=0)
raw = client.completions.with_raw_response.create(**greedy, extra_body={"return_token_ids": True})
out["version_header"] = raw.headers["x-tandem-policy-version"]
whole = raw.parse()
out["greedy"] = whole.model_dump()

pieces, usage, finish = [], None, None
stream = client.completions.create(**greedy, stream=True, stream_options={"include_usage": True})
for event in stream:
    if event.usage is not None:
        usage = event.usage.model_dump()
    for choice in event.choices:
        pieces.append(choice.text)
        finish = choice.finish_reason or finish
out["stream"] = {"text": "".join(pieces), "num_events": len(pieces), "usage": usage, "finish": finish}

samples = client.completions.create(model=model, prompt=[prompt, "The dog"], max_tokens=8, n=3,
                                    temperature=1, top_p=0.9, seed=7, user="me",
                                    extra_body={"top_k": 40, "ignore_eos": True})
again = client.completions.create(model=model, prompt=[prompt, "The dog"], max_tokens=8, n=3,
                                  temperature=1, top_p=0.9, seed=7, user="me",
                                  extra_body={"top_k": 40, "ignore_eos": True})
out["samples"] = [[choice.index, choice.text] for choice in samples.choices]
out["samples_again"] = [[choice.index, choice.text] for choice in again.choices]
out["samples_usage"] = samples.usage.model_dump()

ids = whole.choices[0].model_extra["prompt_token_ids"]
out["from_ids"] = client.completions.create(
    **{**greedy, "prompt": ids}).choices[0].text
out["from_id_lists"] = [choice.text for choice in client.completions.create(
    **{**greedy, "prompt": [ids, ids]}).choices]

word = whole.choices[0].text.split()[3]
stopped = client.completions.create(**greedy, stop=[word])
out["stop"] = {"word": word, "text": stopped.choices[0].text,
               "finish": stopped.choices[0].finish_reason}
held = "".join(event.choices[0].text for event in
               client.completions.create(**greedy, stop=word, stream=True))
out["stop_streamed"] = held

scored = client.completions.create(**greedy, logprobs=3).choices[0]
out["logprobs"] = scored.logprobs.model_dump()
echoed = client.completions.create(model=model, prompt=ids + whole.choices[0].model_extra["token_ids"],
                                   max_tokens=0, echo=True, logprobs=1, temperature=0)
out["echo"] = {"text": echoed.choices[0].text, "usage": echoed.usage.model_dump(),
               "logprobs": echoed.choices[0].logprobs.model_dump()}

out["errors"] = {
    "temperature": failure(lambda: client.completions.create(**{**greedy, "temperature": -1})),
    "type": failure(lambda: client.completions.create(**{**greedy, "max_tokens": "many"})),
    "unknown": failure(lambda: client.completions.create(**greedy, extra_body={"temprature": 1})),
    "unsupported": failure(lambda: client.completions.create(**greedy, suffix="x")),
    "top_logprobs": failure(lambda: client.completions.create(**greedy, logprobs=21)),
    "model": failure(lambda: client.completions.create(**{**greedy, "model": "another"})),
    "too_long": failure(lambda: client.completions.create(**{**greedy, "prompt": [5] * 5000})),
    "penalty": failure(lambda: client.completions.create(**greedy, presence_penalty=3)),
    "bad_id": failure(lambda: client.completions.create(**{**greedy, "prompt": [10**12]})),
    "too_large": failure(lambda: client.completions.create(**{**greedy, "prompt": "a" * (17 << 20)})),
    "no_template": failure(lambda: client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "hello"}])),
    "token": failure(lambda: client.with_options(api_key="wrong").models.list()),
}
print(json.dumps(out))
