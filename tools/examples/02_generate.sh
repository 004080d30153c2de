#!/bin/sh
# One generation: 02_generate.sh ROLLOUT PROMPT. Prints a JSON object for each completion.
set -eu
exec tandem generate --endpoint "$1" --prompt "$2" --n 2 --max-tokens 16 --seed 1 --json
