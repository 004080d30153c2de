#!/bin/sh
# One weight update: 03_update_weights.sh TRAINER ROLLOUT. Then compares the live weights, tensor by tensor.
set -eu
tandem sync --trainer "$1" --rollout "$2"
exec tandem sync --trainer "$1" --rollout "$2" --verify
