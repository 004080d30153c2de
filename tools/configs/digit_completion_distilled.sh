#!/usr/bin/env bash
# How many steps a small model needs for 0.95 of its teacher's reward on the digit task: distilled
# on-policy (digit_completion_distilled.yaml), and with GRPO alone, from the same warm-up. The warm-up
# leaves the student far from the teacher: GRPO then has little to reward, and learns best at its usual
# learning rate (a third of the distillation's, which it does not bear). Figures:
# tools/tandem/bench/README.md.
#
#   tools/configs/digit_completion_distilled.sh [STEPS] [SEED]      from the repository; by default 200 and 0
#
# The last line on stdout is {"teacher_reward", "target", "distilled", "grpo"}: of the latter two,
# the first evaluated step that reaches the target, and [step, reward] of every evaluation.
set -euo pipefail
steps=${1:-200}
seed=${2:-0}
configs=tools/configs
source=../shared/data/models/digit-completion
tandem=${TANDEM_BIN:-build/bin}/tandem

warm_up() {  # NAME LAYERS STEPS
  python3 $configs/digit_completion_layers.py $source "$2" "runs/digit_$1_model"
  "$tandem" sft --local --config $configs/digit_completion_sft.yaml --quiet \
    --set "model.path=runs/digit_$1_model" --set model.random_init=true --set trainer.ranks=1 \
    --set rollout.val_kwargs.n=4 \
    --set "seed=$seed" --set "trainer.total_steps=$3" --set "trainer.test_freq=$3" --set "run_dir=runs/digit_$1" >/dev/null
}

learn() {  # RUN_DIR CONFIG...
  local run_dir=$1
  shift
  "$tandem" train --local --quiet "$@" --set model.path=runs/digit_student/model --set trainer.ranks=1 \
    --set data.train_batch_size=64 --set rollout.n=4 --set rollout.val_kwargs.n=4 \
    --set "seed=$seed" --set "trainer.total_steps=$steps" --set trainer.test_freq=20 \
    --set "run_dir=$run_dir" >/dev/null
}

warm_up teacher 6 800
warm_up student 2 100
learn runs/digit_grpo --config $configs/digit_completion.yaml
learn runs/digit_distilled --config $configs/digit_completion.yaml \
  --config $configs/digit_completion_distilled.yaml

python3 - <<'PYTHON'
import json

def curve(run):
    with open(f"runs/{run}/metrics.jsonl") as lines:
        rows = [json.loads(line) for line in lines]
    name = next(name for row in rows for name in row if name.startswith("val-core/"))
    return [[row["training/global_step"], round(row[name], 4)] for row in rows if name in row]

teacher = curve("digit_teacher")[-1][1]
out = {"teacher_reward": teacher, "target": round(0.95 * teacher, 4)}
for key, run in [("distilled", "digit_distilled"), ("grpo", "digit_grpo")]:
    points = curve(run)
    reached = next((step for step, reward in points if reward >= 0.95 * teacher), None)
    out[key] = {"steps": reached, "curve": points}
print(json.dumps(out))
PYTHON
