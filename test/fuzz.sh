#!/usr/bin/env bash
# Runs every fuzz target of the project for the given time each.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-5s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz FOLDER NAME. The go command sometimes takes the end of the time for a
# failure of the target: no input failed then, so once more.
fuzz() {
  for _ in 1 2 3; do
    go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "./$1" >"$log" 2>&1 && return
    grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log" || break
  done
  cat "$log"
  return 1
}

count=0
while IFS=: read -r file name; do
  printf 'fuzz %-32s %s\n' "$name" "$(dirname "$file")"
  fuzz "$(dirname "$file")" "$name"
  count=$((count + 1))
done < <(git grep -oE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | sed 's/:func /:/')
echo "$count fuzz targets, $time each"
test "$count" -gt 0
