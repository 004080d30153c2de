"""An agent of your own, which knows OpenAI's client and nothing of Tandem. A run trains on its calls with

    tandem train --local --config run.yaml --set environment.name=agent --set reward.name=environment \
        --set environment.command="python3 tools/examples/08_agent.py"

The run starts the program for each sample. OPENAI_BASE_URL and OPENAI_API_KEY, which the client reads by
itself, lead to a session on a rollout that records the calls; the row of the data set comes on stdin as
JSON; the reward is the last line. The answers are checked here; without such a line (and with a reward.name
that is not environment) the run's own reward judges the last completion.

Needs the package openai. It solves GSM8K's questions with a calculator for a tool.
"""

import ast
import json
import operator
import re
import sys

import openai

TURNS = 4
TOOLS = [{"type": "function", "function": {
    "name": "calculator", "description": "Computes an expression of + - * / and parentheses.",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}},
                   "required": ["expression"]}}}]
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
             ast.Div: operator.truediv, ast.USub: operator.neg}


def calculate(expression):
    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.operand))
        raise ValueError("only + - * / and parentheses")
    return value(ast.parse(expression, mode="eval").body)


def answer_call(call):
    """The tool's message. A mistake is the model's to learn from, and no reason to stop."""
    try:
        content = f"{calculate(json.loads(call.function.arguments)['expression']):g}"
    except (ArithmeticError, KeyError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        content = f"error: {error}"
    return {"role": "tool", "tool_call_id": call.id, "content": content}


def solve(client, question):
    messages = [{"role": "user", "content": question}]
    for _ in range(TURNS):
        # Any model's name will do, and the run decides the temperature.
        message = client.chat.completions.create(
            model="policy", messages=messages, tools=TOOLS).choices[0].message
        messages.append(message)
        if not message.tool_calls:
            break
        messages += [answer_call(call) for call in message.tool_calls]
    return message.content or ""


def number(text):
    """The last number of a text, as GSM8K writes its answers behind ####."""
    found = re.findall(r"-?[\d,]*\.?\d+", text)
    return float(found[-1].replace(",", "")) if found else None


def main():
    row = json.load(sys.stdin)
    client = openai.OpenAI(timeout=600)
    try:
        said = solve(client, row.get("question") or row["prompt"])
    except openai.BadRequestError as error:
        # The episode's tokens or the context are used up: what was said so far has earned nothing.
        print(error, file=sys.stderr)
        said = ""
    right = number(str(row["answer"]))
    print(json.dumps({"reward": 1.0 if right is not None and number(said) == right else 0.0}))


if __name__ == "__main__":
    main()
