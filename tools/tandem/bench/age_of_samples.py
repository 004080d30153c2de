"""Trains the digit task in the modes sync, one_step_off and async over several seeds and prints a
table: accuracy on held-out rows after the last step, and the mean length of the completions that
trained. Samples of the last two modes are older than the policy; the variants show what the default
correction and the default treatment of late groups do.

usage, after the warm start (tandem sft --local --config tools/configs/digit_completion_sft.yaml):
  python3 tools/tandem/bench/age_of_samples.py [--seeds 5] [--out runs/age_of_samples]
      [--variants sync,one_step_off,async] [--set KEY=VALUE ...]

A run whose folder in --out is complete is not repeated.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

UNCORRECTED = "algorithm.rollout_correction.rollout_is=none"
VARIANTS = {
    "sync": ["trainer.mode=sync"],
    "one_step_off": ["trainer.mode=one_step_off"],
    "one_step_off uncorrected": ["trainer.mode=one_step_off", UNCORRECTED],
    "one_step_off bypass": ["trainer.mode=one_step_off",
                            "algorithm.rollout_correction.bypass_mode=true"],
    "async": ["trainer.mode=async"],
    "async uncorrected": ["trainer.mode=async", UNCORRECTED],
    "async drop": ["trainer.mode=async", "trainer.stale_samples=drop"],
    "async drop uncorrected": ["trainer.mode=async", "trainer.stale_samples=drop", UNCORRECTED],
}


def train(arguments, variant, seed):
    run_dir = os.path.join(arguments.out, variant.replace(" ", "_"), str(seed))
    if not os.path.isdir(os.path.join(run_dir, "model")):
        command = [arguments.tandem, "train", "--local", "--config", arguments.config]
        for setting in VARIANTS[variant] + arguments.set + [f"seed={seed}", f"run_dir={run_dir}"]:
            command += ["--set", setting]
        print("running", variant, "seed", seed, file=sys.stderr, flush=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(run_dir, "metrics.jsonl")) as lines:
        return [json.loads(line) for line in lines]


def summary(metrics):
    steps = [row for row in metrics if row["training/global_step"] > 0]
    accuracy = [value for row in metrics for key, value in row.items()
                if key.startswith("val-core/")]
    return {
        "accuracy": accuracy[-1],
        "length": statistics.mean(row["response_length/mean"] for row in steps),
        "staleness": statistics.mean(
            row.get("training/off_policy/trajectory_staleness/mean", 0.0) for row in steps),
        "dropped": sum(row.get("async/dropped_groups", 0) for row in steps),
        "seconds": sum(row["timing_s/step"] for row in steps),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default="build/bin/tandem")
    parser.add_argument("--config", default="tools/configs/digit_completion.yaml")
    parser.add_argument("--out", default="runs/age_of_samples")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    chosen = arguments.variants.split(",")
    unknown = [name for name in chosen if name not in VARIANTS]
    if unknown:
        parser.error(f"unknown variants {unknown}; known: {', '.join(VARIANTS)}")

    print("| variant | accuracy: mean (least to largest) | training length: mean (least to largest) "
          "| staleness | dropped groups | seconds |")
    print("|---|---|---|---|---|---|")
    for variant in chosen:
        runs = [summary(train(arguments, variant, seed)) for seed in range(arguments.seeds)]

        def over(key, digits):
            values = [run[key] for run in runs]
            return (f"{statistics.mean(values):.{digits}f} "
                    f"({min(values):.{digits}f} to {max(values):.{digits}f})")

        def mean(key, digits):
            return f"{statistics.mean(run[key] for run in runs):.{digits}f}"

        print(f"| {variant} | {over('accuracy', 3)} | {over('length', 2)} | {mean('staleness', 2)} "
              f"| {mean('dropped', 0)} | {mean('seconds', 0)} |", flush=True)


if __name__ == "__main__":
    main()
