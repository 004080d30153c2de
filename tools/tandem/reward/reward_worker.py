"""Runs a user's reward function for a driver of tandem, which embeds this program.

    python3 ... FILE [FUNCTION]     with a connected socket as descriptor 0

A message is its length (four bytes, little-endian) and a JSON object. The first one is the worker's:
{"function", "style"}, where style is "completion" (one call scores one completion) or "group" (one call
scores all completions of a prompt), or {"error"}. Then each request of the driver has one answer:
{"rewards"} or {"error"}. The worker ends when the socket does."""

import importlib.util
import inspect
import json
import math
import os
import socket
import sys
import traceback

MODULE = "tandem_reward"
COMPLETION = ("data_source", "solution_str", "ground_truth", "extra_info")
SIGNATURES = ("compute_score(data_source, solution_str, ground_truth, extra_info=None) or "
              "NAME(prompts, completions, **kwargs)")


class Refused(Exception):
    """What the user has to change."""


class Messages:
    def __init__(self, connection):
        self.connection = connection

    def receive(self):
        """The next message; None once the driver has closed the socket."""
        head = self._read(4)
        body = head and self._read(int.from_bytes(head, "little"))
        return None if body is None else json.loads(body)

    def send(self, message):
        body = json.dumps(message).encode()
        self.connection.sendall(len(body).to_bytes(4, "little") + body)

    def _read(self, size):
        parts = bytearray()
        while len(parts) < size:
            part = self.connection.recv(min(size - len(parts), 1 << 20))
            if not part:
                return None
            parts += part
        return bytes(parts)


def take_connection():
    """The driver's socket; descriptor 0 becomes /dev/null, so that the function cannot read from it."""
    connection = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return connection


def explain(error, path):
    """An exception in one line with the user's own file and line, and the traceback below it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [i for i, frame in enumerate(frames) if frame.filename == path]
    shown = frames[own[0]:] if own else []  # without this program's frames
    place = f" at {path}:{frames[own[-1]].lineno}" if own else ""
    if isinstance(error, SyntaxError) and error.filename == path:
        place = f" at {path}:{error.lineno}"
    text = "".join(traceback.format_list(shown) + traceback.format_exception_only(type(error), error))
    return f"{type(error).__name__}{place}: {error}\nTraceback (most recent call last):\n{text.rstrip()}"


def load(path):
    if not os.path.isfile(path):
        raise Refused(f"no file {path}")
    sys.path.insert(0, os.path.dirname(path))  # modules beside the file
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None:
        raise Refused(f"{path}: expected a Python file, NAME.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def style_of(function):
    """"completion", "group", or None where the parameters fit neither."""
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    if "completions" in names:
        return "group"
    return "completion" if "solution_str" in names else None


def find(module, path, name):
    """The function, its name and its style."""
    own = {n: f for n, f in vars(module).items()
           if inspect.isfunction(f) and f.__module__ == MODULE and not n.startswith("_")}
    there = f"; the file has {', '.join(sorted(own))}" if own else "; the file has no function"
    if name:
        function = getattr(module, name, None)
        if not callable(function):
            raise Refused(f"{path}: expected a function {name} (reward.function){there}")
        if style_of(function) is None:
            raise Refused(f"{path}: {name}: expected {SIGNATURES}, "
                          f"found {name}{inspect.signature(function)}")
        return function, name, style_of(function)
    fitting = sorted(n for n, f in own.items() if style_of(f))
    if "compute_score" in fitting:
        fitting = ["compute_score"]
    if not fitting:
        raise Refused(f"{path}: expected {SIGNATURES}{there}")
    if len(fitting) > 1:
        raise Refused(f"{path}: {', '.join(fitting)} can each be the reward; name one in reward.function")
    return own[fitting[0]], fitting[0], style_of(own[fitting[0]])


def look_up(row, key):
    """The value of a key of the row, which dots may separate; None if there is none."""
    if key in row:
        return row[key]
    for part in key.split("."):
        row = row.get(part) if isinstance(row, dict) else None
    return row


def completion_arguments(request):
    row = request["row"]
    nested = row.get("reward_model")
    truth = nested.get("ground_truth") if isinstance(nested, dict) else None
    extra = row.get("extra_info")
    return {"data_source": row.get("data_source", ""), "solution_str": request["completions"][0],
            "ground_truth": request["answer"] if truth is None else truth,
            "extra_info": extra if isinstance(extra, dict) else row}


def group_arguments(request):
    row, texts = request["row"], request["completions"]
    count = len(texts)
    columns = {"answer": request["answer"], **row}
    arguments = {name: [value] * count for name, value in columns.items()
                 if name not in ("prompt", "completion", "completion_ids")}
    prompt = look_up(row, request["prompt_key"])
    is_chat = isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], dict)
    arguments.update(
        prompts=[prompt if is_chat or isinstance(prompt, str) else request["prompt"]] * count,
        completions=[[{"role": "assistant", "content": text}] if is_chat else text for text in texts],
        prompt_ids=[request["prompt_ids"]] * count, completion_ids=request["completion_ids"],
        trainer_state=None)
    return arguments


def accepted(function, arguments):
    """The arguments that the function has parameters for."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind == p.VAR_KEYWORD for p in parameters):
        return arguments
    names = {p.name for p in parameters}
    return {name: value for name, value in arguments.items() if name in names}


def number(value):
    """A reward as JSON has it; None: the reward does not apply to the completion."""
    if isinstance(value, dict):
        if "score" not in value:
            raise Refused(f"returned a dict without \"score\": {shown(value)}")
        value = value["score"]
    if value is None:
        return None
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        out = float(value)
    except (TypeError, ValueError):
        raise Refused(f"returned {shown(value)}; expected a number") from None
    if not math.isfinite(out):
        raise Refused(f"returned {out}; expected a finite number")
    return out


def shown(value):
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "..."


def call(function, style, request):
    arguments = completion_arguments(request) if style == "completion" else group_arguments(request)
    value = function(**accepted(function, arguments))
    if inspect.iscoroutine(value):
        import asyncio
        value = asyncio.run(value)
    if style == "completion":
        return [number(value)]
    values = value.tolist() if hasattr(value, "tolist") else value
    count = len(request["completions"])
    if not isinstance(values, (list, tuple)) or len(values) != count:
        raise Refused(f"returned {shown(value)}; expected a list of {count} numbers, one for each "
                      "completion")
    return [number(v) for v in values]


def answer(path, work):
    """What work() returns, or its error as a message."""
    try:
        return work()
    except Refused as error:
        return {"error": str(error)}
    except BaseException as error:  # SystemExit too: the function must not end the worker quietly
        return {"error": explain(error, path)}


def main():
    path, name = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    messages = Messages(take_connection())
    found = []

    def prepare():
        found.extend(find(load(path), path, name))
        return {"function": found[1], "style": found[2]}

    messages.send(answer(path, prepare))
    while found and (request := messages.receive()) is not None:
        messages.send(answer(path, lambda: {"rewards": call(found[0], found[2], request)}))
    sys.stdout.flush()
    os._exit(0)  # threads of the function must not keep the worker


main()
