#!/bin/sh
# Checks whether a process serves: 01_health.sh HOST:PORT [NAME]. Exits 1 if not.
set -eu
exec tandem health --endpoint "$1" --service "${2:-}"
