"""A conversation with a tool by OpenAI's own client: openai_tools.py URL MODEL, which answers a line
of JSON."""

import json
import sys

import openai

url, model = sys.argv[1:3]
client = openai.OpenAI(base_url=url + "/v1", api_key="none", timeout=60, max_retries=0)
tools = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
messages = [{"role": "user", "content": "weather?"}]
asked = dict(model=model, tools=tools, temperature=0)

first = client.chat.completions.create(messages=messages, **asked).choices[0]
out = {"first": first.model_dump()}

# What an agent program does with a stream.
content, calls, finish = "", {}, None
for event in client.chat.completions.create(messages=messages, stream=True, **asked):
    choice = event.choices[0]
    content += choice.delta.content or ""
    finish = choice.finish_reason or finish
    for part in choice.delta.tool_calls or []:
        call = calls.setdefault(part.index, {"id": part.id, "name": part.function.name, "arguments": ""})
        call["arguments"] += part.function.arguments or ""
out["streamed"] = {"content": content, "finish": finish,
                   "calls": [{k: c[k] for k in ("name", "arguments")} for c in calls.values()],
                   "has_ids": all(c["id"] for c in calls.values())}

messages.append(first.message.model_dump(exclude_none=True))
for call in first.message.tool_calls:
    messages.append({"role": "tool", "tool_call_id": call.id,
                     "content": "sunny in " + json.loads(call.function.arguments)["city"]})
out["second"] = client.chat.completions.create(messages=messages, **asked).choices[0].model_dump()

forced = client.chat.completions.create(
    messages=messages[:1], **asked,
    tool_choice={"type": "function", "function": {"name": "get_weather"}}).choices[0]
out["forced"] = forced.model_dump()
print(json.dumps(out))
