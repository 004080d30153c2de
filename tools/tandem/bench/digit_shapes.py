"""Trains the digit task with small models of several architectures, each from random weights: a
supervised warm-up, then GRPO. Prints a table: reward of the held-out rows at temperature 1 after the
warm-up, and after the last step of GRPO, over seeds. The shapes are tools/configs/digit_shapes.

usage, from the repository:
  python3 tools/tandem/bench/digit_shapes.py [--seeds 3] [--out runs/digit_shapes]
      [--shapes qwen2,gemma2,qwen3_moe,deepseek_v2] [--steps 200] [--set KEY=VALUE ...]

A run whose folder in --out is complete is not repeated. The warm-up is the same for all seeds; --set
is for both.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

class Shape:
    """warm_up_steps: as many as it takes to learn most of the task."""

    def __init__(self, warm_up_steps, settings=()):
        self.warm_up_steps = warm_up_steps
        self.settings = list(settings)


EXPERT_PARALLEL = ["trainer.mesh_shape=[2]", "trainer.mesh_dim_names=[ep]"]
SHAPES = {
    "qwen2": Shape(200),
    "gemma2": Shape(200),
    "qwen3_moe": Shape(200, EXPERT_PARALLEL),
    "deepseek_v2": Shape(400, EXPERT_PARALLEL),
}


def run(arguments, command, config, settings, run_dir):
    """Runs unless the run's folder has a trained model. Returns the lines of its metrics."""
    if not (run_dir / "model").is_dir():
        line = [arguments.tandem, command, "--local", "--quiet", "--config", config]
        for setting in settings + [f"run_dir={run_dir}"]:
            line += ["--set", setting]
        print("running", run_dir, file=sys.stderr, flush=True)
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    with open(run_dir / "metrics.jsonl") as lines:
        return [json.loads(line) for line in lines]


def random_model(arguments, shape):
    """Returns a folder with the shape's config.json and the digit task's tokenizer."""
    folder = arguments.out / shape / "start"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ["generation_config.json", "tokenizer.json", "tokenizer_config.json"]:
        shutil.copyfile(arguments.tokenizer / name, folder / name)
    shutil.copyfile(arguments.configs / "digit_shapes" / f"{shape}.json", folder / "config.json")
    return folder


def warm_up(arguments, shape):
    steps = SHAPES[shape].warm_up_steps
    settings = SHAPES[shape].settings + arguments.set + [
        f"model.path={random_model(arguments, shape)}", "model.random_init=true",
        f"trainer.total_steps={steps}", f"trainer.test_freq={steps}"]
    return run(arguments, "sft", arguments.configs / "digit_completion_sft.yaml", settings,
               arguments.out / shape / "warm_up")


def reinforce(arguments, shape, seed):
    settings = SHAPES[shape].settings + arguments.set + [
        f"model.path={arguments.out / shape / 'warm_up' / 'model'}",
        f"trainer.total_steps={arguments.steps}", f"seed={seed}"]
    return run(arguments, "train", arguments.configs / "digit_completion.yaml", settings,
               arguments.out / shape / str(seed))


def accuracies(metrics):
    return [value for row in metrics for key, value in row.items() if key.startswith("val-core/")]


def load_of(metrics):
    """The mean over the steps of the largest load of an expert, over the mean load."""
    loads = [row["experts/largest_load"] for row in metrics if "experts/largest_load" in row]
    return f"{statistics.mean(loads):.2f}" if loads else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default="build/bin/tandem")
    parser.add_argument("--configs", type=pathlib.Path, default="tools/configs")
    parser.add_argument("--tokenizer", type=pathlib.Path,
                        default="../shared/data/models/digit-completion")
    parser.add_argument("--out", type=pathlib.Path, default="runs/digit_shapes")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    chosen = arguments.shapes.split(",")
    unknown = [name for name in chosen if name not in SHAPES]
    if unknown:
        parser.error(f"unknown shapes {unknown}; known: {', '.join(SHAPES)}")

    print("| shape | after the warm-up | after GRPO: mean (least to largest) | largest load |")
    print("|---|---|---|---|")
    for shape in chosen:
        warm = accuracies(warm_up(arguments, shape))[-1]
        runs = [reinforce(arguments, shape, seed) for seed in range(arguments.seeds)]
        last = [accuracies(metrics)[-1] for metrics in runs]
        load = load_of([row for metrics in runs for row in metrics])
        print(f"| {shape} | {warm:.3f} | {statistics.mean(last):.3f} "
              f"({min(last):.3f} to {max(last):.3f}) | {load} |", flush=True)


if __name__ == "__main__":
    main()
