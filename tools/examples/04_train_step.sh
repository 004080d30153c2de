#!/bin/sh
# One training step: 04_train_step.sh TRAINER CONFIG, with the trainer's own configuration. Writes four
# samples of one prompt with their rewards to a file and trains on them, as the trainer's first step.
# `tandem replay` also takes the files of run_dir/rollouts.
set -eu
samples=$(mktemp)
trap 'rm -f "$samples"' EXIT
cat > "$samples" <<END
{"group": 0, "prompt_ids": [3, 12, 4, 13], "response_ids": [5, 6, 0], "rewards": 1.0}
{"group": 0, "prompt_ids": [3, 12, 4, 13], "response_ids": [7, 8, 0], "rewards": 0.0}
{"group": 0, "prompt_ids": [3, 12, 4, 13], "response_ids": [9, 3, 0], "rewards": 0.0}
{"group": 0, "prompt_ids": [3, 12, 4, 13], "response_ids": [5, 5, 0], "rewards": 0.5}
END
tandem replay --config "$2" --set "trainer.endpoint=$1" --set trainer.total_steps=1 --input "$samples"
