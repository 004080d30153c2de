"""Addition problems, parted so that no problem is both trained and tested on.

usage: make_problems.py FOLDER   writes {"prompt": "17+25=", "answer": "42"} into
  train.jsonl, test.jsonl   right answers; GRPO is rewarded on the first and measured on the second
  warmup.jsonl              train.jsonl's problems as a careless teacher answers them: every other carry
                            from the units to the tens is forgotten ("17+25=32")
"""
import json
import pathlib
import random
import sys

LARGEST = 99
NUM_TEST = 256
FORGOTTEN = 0.5


def careless(a, b):
    carries = a % 10 + b % 10 >= 10
    return a + b - 10 if carries and draw.random() < FORGOTTEN else a + b


def write(name, part, answer):
    lines = [json.dumps({"prompt": f"{a}+{b}=", "answer": str(answer(a, b))}) for a, b in part]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
draw = random.Random(0)
problems = [(a, b) for a in range(LARGEST + 1) for b in range(LARGEST + 1)]
draw.shuffle(problems)
test, train = problems[:NUM_TEST], problems[NUM_TEST:]
write("test", test, lambda a, b: a + b)
write("train", train, lambda a, b: a + b)
write("warmup", train, careless)
