"""Rollouts of verifiers by both of its clients: verifiers_rollouts.py URL MODEL FOLDER, which answers
a line of JSON. The program of the rollouts is WeatherHarness below. The training client renders its
chats to tokens with the folder's tokenizer and samples them at /inference/v1/generate; the evaluation
client passes them on to /v1/chat/completions."""

import asyncio
import json
import sys

import openai
import verifiers.v1 as vf

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
NUM_ROLLOUTS = 4


class WeatherHarness(vf.Harness[vf.HarnessConfig]):
    NEEDS_CONTAINER = False
    EXECUTES_CODE = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        client = openai.AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0, timeout=60)
        messages = [{"role": "user", "content": data.prompt}]
        for _ in range(3):
            answer = await client.chat.completions.create(
                model=ctx.model, messages=messages, tools=TOOLS, max_tokens=20)
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            messages += [{"role": "tool", "tool_call_id": call.id, "content": "sunny"}
                         for call in message.tool_calls]
        return vf.ProgramResult(0, "", "")


class WeatherTask(vf.Task[vf.TaskData]):
    @vf.reward
    async def told(self, trace) -> float:
        return float("sunny" in (trace.nodes[-1].message.content or ""))


def describe(trace):
    turns = []
    for node in trace.nodes:
        if node.sampled:
            turns.append({
                "content": node.message.content,
                "calls": [[call.name, call.arguments] for call in node.message.tool_calls or []],
                "ids": [token for token, own in zip(node.token_ids, node.mask) if own],
                "logprobs": node.logprobs})
    return {"errors": [str(error) for error in trace.errors], "reward": trace.reward, "turns": turns}


async def play(model, client):
    harness = vf.HarnessConfig(id="null")
    agent = vf.Agent(vf.AgentConfig(
        harness=harness, runtime=vf.SubprocessConfig(), model=model, client=client,
        sampling={"temperature": 0.5, "max_tokens": 20}))
    agent.harness = WeatherHarness(harness)
    async with agent:
        return [describe(trace) for trace in await asyncio.gather(*[
            agent.run(WeatherTask(vf.TaskData(idx=i, prompt="weather?")))
            for i in range(NUM_ROLLOUTS)])]


async def main(url, model, folder):
    endpoint = dict(base_url=url + "/v1", api_key_var="NO_KEY")
    print(json.dumps({
        "train": await play(model, vf.TrainClientConfig(
            **endpoint, renderer_model_name=folder,
            renderer={"name": "default", "tool_parser": "qwen3"})),
        "eval": await play(model, vf.EvalClientConfig(**endpoint))}))


asyncio.run(main(*sys.argv[1:4]))
