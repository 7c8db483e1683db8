#!/usr/bin/env bash
# Runs every fuzz target of the project for the given time each.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-5s}
count=0
while IFS=: read -r file name; do
  printf 'fuzz %-32s %s\n' "$name" "$(dirname "$file")"
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "./$(dirname "$file")" >/tmp/gpuslot-fuzz.$$ 2>&1 || {
    cat /tmp/gpuslot-fuzz.$$
    rm -f /tmp/gpuslot-fuzz.$$
    exit 1
  }
  count=$((count + 1))
done < <(git grep -oE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | sed 's/:func /:/')
rm -f /tmp/gpuslot-fuzz.$$
echo "$count fuzz targets, $time each"
test "$count" -gt 0
