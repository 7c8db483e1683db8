#!/usr/bin/env bash
# busy.sh COMMAND… runs a command beside three busy loops, which end with it.
set -uo pipefail
loops=()
for _ in 1 2 3; do
  (while :; do :; done) &
  loops+=($!)
done
trap 'kill "${loops[@]}" 2>/dev/null; wait "${loops[@]}" 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"$@"
