#!/usr/bin/env bash
# fuzz.sh TIME [N] runs every fuzz target of the project for TIME, with one
# worker each; N packages side by side (default: one a processor). A package is
# built once for all of its targets. An input that fails stays in the package's
# testdata/fuzz, where go test takes it from then on. The file FUZZDONE keeps the targets
# that are done: a run after a cut leaves them out.
set -euo pipefail
cd "$(dirname "$0")/.."
export FUZZTIME=${1:-5s}
side=${2:-$(nproc)}
FUZZCACHE=$(go env GOCACHE)/fuzz/$(go list -m) # where go test -fuzz has it, too
FUZZOUT=$(mktemp -d)
FUZZDONE=$(realpath -m "${FUZZDONE:-$FUZZOUT/done}")
export FUZZCACHE FUZZOUT FUZZDONE
trap 'rm -rf "$FUZZOUT"' EXIT

# target FOLDER NAME BINARY. By default each input that reaches new code is made
# small for up to a minute: of 5 s nothing was left, and slow targets saw three
# inputs. Fuzzing sometimes takes the end of its time for a failure of the
# target: no input failed then, so once more.
target() {
  local log=$3.log
  if grep -qsxF "$1 $2" "$FUZZDONE"; then return; fi
  for _ in 1 2 3; do
    if (cd "$1" && exec "$3" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$FUZZTIME" \
      -test.fuzzminimizetime 10x -test.parallel 1 -test.fuzzcachedir "$FUZZCACHE/$1") >"$log" 2>&1; then
      echo "$1 $2" >>"$FUZZDONE"
      echo "fuzz $1 $2: $(grep -o 'execs: [0-9]*' "$log" | tail -1 | tr -dc 0-9) inputs"
      return
    fi
    grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log" || break
  done
  { cat "$log"; echo "fuzz $1 $2: FAILED; once more: go test ./$1 -run '^$2\$'"; } >&2
  return 1
}

# package FOLDER runs all of its targets, also after one has failed.
package() {
  local bin=$FUZZOUT/${1//\//_}.test bad=0 name
  go test -c -fuzz . -o "$bin" "./$1" || { echo "fuzz $1: does not build" >&2; return 1; }
  for name in $(git grep -hoE '^func Fuzz[A-Za-z0-9_]+' -- ":(glob)$1/*_test.go" | cut -d' ' -f2); do
    target "$1" "$name" "$bin" || bad=1
  done
  rm "$bin"
  return $bad
}
export -f target package

# Those with most to do first, so that all end at about the same time.
git grep -cE '^func Fuzz' -- '*_test.go' |
  awk -F: '{ sub("/[^/]*$", "", $1); n[$1] += $2 } END { for (d in n) print n[d], d }' | sort -k1,1nr -k2 >"$FUZZOUT/packages"
test -s "$FUZZOUT/packages"
cut -d' ' -f2 "$FUZZOUT/packages" | xargs -P "$side" -I{} bash -c 'package {}'
awk -v time="$FUZZTIME" '{ n += $1 } END { print n " fuzz targets, " time " each" }' "$FUZZOUT/packages"
