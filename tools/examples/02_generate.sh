#!/bin/sh
# One generation: 02_generate.sh ROLLOUT PROMPT. Prints one JSON object per completion.
set -eu
exec tandem generate --endpoint "$1" --prompt "$2" --n 2 --max-tokens 16 --seed 1 --json
