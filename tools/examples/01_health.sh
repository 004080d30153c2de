#!/bin/sh
# Asks a process whether it serves: 01_health.sh HOST:PORT [NAME]. Exits 1 where it does not.
set -eu
exec tandem health --endpoint "$1" --service "${2:-}"
