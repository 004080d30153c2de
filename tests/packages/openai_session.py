"""A chat with a tool by OpenAI's own client, streamed: openai_session.py URL KEY, which answers a line
of JSON. An agent program keeps what the stream said and sends it back."""

import json
import sys

import openai

url, key = sys.argv[1:3]
client = openai.OpenAI(base_url=url, api_key=key, timeout=60, max_retries=0)
tools = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
messages = [{"role": "user", "content": "weather?"}]
usages = []
for _ in range(3):
    with client.chat.completions.stream(model="gpt-4o", messages=messages, tools=tools,
                                        stream_options={"include_usage": True}) as stream:
        for _event in stream:
            pass
        answer = stream.get_final_completion()
    usages.append(answer.usage.completion_tokens)
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    if not message.tool_calls:
        break
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "sunny"}
                 for call in message.tool_calls]
print(json.dumps({"messages": messages, "usages": usages}))
