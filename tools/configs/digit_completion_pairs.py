"""Pairs for direct preference optimisation out of the digit task: the right continuation of a sequence
is preferred to one with a digit of it changed.

usage: python3 tools/configs/digit_completion_pairs.py ../shared/data/tasks/digit-completion/train.jsonl > runs/digit_pairs.jsonl
"""
import json
import random
import sys

generator = random.Random(0)
with open(sys.argv[1]) as rows:
    for row in map(json.loads, rows):
        digits = row["answer"].split(",")
        place = generator.randrange(len(digits))
        digits[place] = str(generator.choice([d for d in range(10) if str(d) != digits[place]]))
        print(json.dumps({"prompt": row["prompt"], "chosen": row["answer"], "rejected": ",".join(digits)}))
