"""Addition problems, parted so that no problem is both trained and tested on.

usage: make_problems.py FOLDER   writes train.jsonl and test.jsonl: {"prompt": "12+34=", "answer": "46"}
"""
import json
import pathlib
import random
import sys

LARGEST = 99
NUM_TEST = 256

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
problems = [(a, b) for a in range(LARGEST + 1) for b in range(LARGEST + 1)]
random.Random(0).shuffle(problems)
for name, part in (("test", problems[:NUM_TEST]), ("train", problems[NUM_TEST:])):
    lines = [json.dumps({"prompt": f"{a}+{b}=", "answer": str(a + b)}) for a, b in part]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
