#!/usr/bin/env bash
# Runs what is too long for "make test" and prints its figures at the end. Three
# quarters of an hour on two cores, and 60 s for each fuzz target, two at a time.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
bad=0

# part NAME COMMAND…
part() {
  local name=$1 begin=$SECONDS
  shift
  echo "campaign: $name: $*" >&2
  if "$@" >"$out/$name" 2>&1; then
    echo "$name: well, $((SECONDS - begin)) s" >>"$out/sum"
  else
    bad=1
    echo "$name: FAILED, $((SECONDS - begin)) s" >>"$out/sum"
    cat "$out/$name"
  fi
}

export GPUSLOT_CAMPAIGN=1
part faults go test ./test/faults -count=1 -timeout 60m -parallel 2 -v -run '^TestCampaign$'
part mig go test ./test/mig -count=1 -timeout 30m -v -run Campaign
part agreement go test ./test/scenes -count=1 -timeout 30m -v -run "^TestSimulationAgreesWithAPool$"
part packages go test ./test/packages -count=1 -timeout 60m -v -run '^TestFresh$'
part headers go test ./test/gpu/programs -count=1 -timeout 30m -v -run Headers
part truth go test ./test/gpu/truth -count=1 -timeout 10m -run Simulated
part first go test ./test/gpu/harness -count=1 -timeout 60m -v -run '^TestFullLength$'
part gpu test/gpu/simulated.sh "$out/gpu-results"
part fuzz test/fuzz.sh "${FUZZTIME:-60s}"

# The tables, without what each injection did.
grep -vE 'injection [0-9]+, |^=== ' "$out/faults" | sed 's/^        //' || true
grep -vE '^=== ' "$out/mig" | tail -60 || true
tail -1 "$out/fuzz"
cat "$out/sum"
exit $bad
