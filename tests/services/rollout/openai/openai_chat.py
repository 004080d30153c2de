"""Chats by OpenAI's own client: openai_chat.py URL MODEL CONTENT, which answers a line of JSON."""

import json
import sys

import openai

url, model, content = sys.argv[1:4]
client = openai.OpenAI(base_url=url + "/v1", api_key="none", timeout=60, max_retries=0)
messages = [{"role": "user", "content": content}]
asked = dict(model=model, messages=messages, temperature=0, max_completion_tokens=12)

whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
parts = client.chat.completions.create(
    **{**asked, "messages": [{"role": "user", "content": [{"type": "text", "text": content}]}]})
roles, pieces, usage = [], [], None
for event in client.chat.completions.create(**asked, stream=True,
                                            stream_options={"include_usage": True}):
    usage = event.usage.model_dump() if event.usage else usage
    for choice in event.choices:
        roles.append(choice.delta.role)
        pieces.append(choice.delta.content or "")
print(json.dumps({
    "text": whole.choices[0].message.content,
    "role": whole.choices[0].message.role,
    "finish": whole.choices[0].finish_reason,
    "fingerprint": whole.system_fingerprint,
    "usage": whole.usage.model_dump(),
    "logprobs": whole.choices[0].logprobs.model_dump(),
    "from_parts": parts.choices[0].message.content,
    "streamed": "".join(pieces),
    "streamed_roles": [role for role in roles if role],
    "streamed_usage": usage,
}))
