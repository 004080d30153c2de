"""Tasks of reasoning-gym, which makes problems without end and judges answers to them.

    python3 tools/examples/09_reasoning_gym.py chain_sum 2000 1 > train.jsonl     # task, rows, seed
    python3 tools/examples/09_reasoning_gym.py chain_sum 200 2 > test.jsonl
    tandem train --local --config run.yaml --set data.train_files=[train.jsonl] \
        --set data.test_files=[test.jsonl] --set reward.path=tools/examples/09_reasoning_gym.py

Needs the package reasoning-gym, also in the run's interpreter (reward.python). An answer is what stands
between <answer> and </answer>, or all of the completion.
"""

import json
import sys

import reasoning_gym
from reasoning_gym.utils import extract_answer


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """The task's own score, from 0 to 1: many give a part of it to answers that are nearly right."""
    answer = extract_answer(solution_str, tag_name="answer") or solution_str.strip()
    return float(reasoning_gym.get_score_answer_fn(data_source)(answer, extra_info["entry"]))


def main():
    task, rows, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for entry in reasoning_gym.create_dataset(task, size=rows, seed=seed):
        print(json.dumps({"prompt": entry["question"] + "\n", "answer": entry["answer"],
                          "data_source": task, "extra_info": {"entry": entry}}, default=str))


if __name__ == "__main__":
    main()
