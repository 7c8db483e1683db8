#!/usr/bin/env bash
# campaign.sh [PART…] runs what is too long for "make test", all of it or these parts, and
# prints one table at the end: some hours on two cores. What passed is kept in
# dist/campaign until the sources change, so that the same command goes on after a cut
# and tries what failed once more.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${CAMPAIGN_OUT:-dist/campaign}
sources=$({ git rev-parse HEAD; git diff HEAD; } | sha256sum | cut -c1-16)
if [ "$(cat "$out/sources" 2>/dev/null)" != "$sources" ]; then
  rm -rf "$out"
  mkdir -p "$out"
  echo "$sources" >"$out/sources"
fi
only=" $* "
parts=()
bad=0
trap 'table; exit 1' INT TERM

# part NAME FIGURE COMMAND… runs a command unless it passed before. FIGURE finds the lines of
# its output that the table shows. A test that did not run is no test that passed.
part() {
  local name=$1 figure=$2 begin=$SECONDS result=passed
  shift 2
  [[ $only == "  " || $only == *" $name "* ]] || return 0
  parts+=("$name")
  if grep -q '^passed' "$out/$name.result" 2>/dev/null; then return 0; fi
  echo "campaign: $name: $*" >&2
  echo "cut off" >"$out/$name.result"
  if ! "$@" >"$out/$name.log" 2>&1; then
    result=FAILED
  elif grep -qE '^(--- SKIP|testing: warning: no tests to run)' "$out/$name.log"; then
    result="NOT RUN"
  fi
  echo "$result"$'\t'"$((SECONDS - begin)) s"$'\t'"$(grep -oE -- "$figure" "$out/$name.log" | paste -sd ';' | cut -c1-90)" >"$out/$name.result"
}

# table prints a line for each part, and where the output of those that did not pass is.
table() {
  local name result
  trap - INT TERM
  printf '\n%-10s %-8s %8s  %s\n' PART RESULT TIME FIGURE
  for name in "${parts[@]}"; do
    IFS=$'\t' read -r result took figure <"$out/$name.result"
    printf '%-10s %-8s %8s  %s\n' "$name" "$result" "${took:-}" "${figure:-}"
    if [ "$result" != passed ]; then
      bad=1
      echo "           see $out/$name.log"
    fi
  done
}

export GPUSLOT_CAMPAIGN=1
part headers '' go test ./test/gpu/programs -count=1 -timeout 30m -v -run Headers
part truth '' go test ./test/gpu/truth -count=1 -timeout 10m -v -run Simulated
part mig '[0-9]+ changes.*' go test ./test/mig -count=1 -timeout 30m -v -run Campaign
part faults '[0-9]+ injections' go test ./test/faults -count=1 -timeout 60m -parallel 2 -v -run '^TestCampaign$'
part files '' go test ./test/faults -count=1 -timeout 30m -v -run '^TestSavedFiles$'
part power '[0-9]+ power cuts' go test ./test/faults -count=1 -timeout 30m -v -run '^TestPowerCut$'
part agreement 'the pool ran .*' go test ./test/scenes -count=1 -timeout 30m -v -run '^TestSimulationAgreesWithAPool$'
part packages '' go test ./test/packages -count=1 -timeout 60m -v -run '^Test(Fresh|Release)$'
part first '' go test ./test/gpu/harness -count=1 -timeout 60m -v -run '^TestFullLength$'
part gpu 'node took .*' test/gpu/simulated.sh "$out/gpu-results"
part mutants '^all .*' go run ./test/mutants -n "${MUTANTS:-300}"
FUZZDONE=$out/fuzz.done part fuzz '[0-9]+ fuzz targets.*' test/fuzz.sh "${FUZZTIME:-60s}"
table
exit $bad
