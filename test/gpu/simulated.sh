#!/bin/bash
# simulated.sh OUT: the folder that is copied to a GPU machine, made and run whole as there, on the simulated node, which
# takes as long as a driver for servers and contexts. The folder must be as it was afterwards.
set -uo pipefail
out=${1:?simulated.sh OUT}
cd "$(dirname "$0")/../.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir" # jobs have accounts of their own
test/gpu/bundle.sh "$dir/gpu" || exit 1
sim=$(go run ./test/sim/ctl/build) && cp -r "$sim/lib" "$sim/bin" "$dir/" || exit 1
export GPUSLOT_SIM_STATE=$dir/state LD_LIBRARY_PATH=$dir/lib PATH=$dir/bin:$PATH
export GPUSLOT_SIM_MPS_START_MS=${GPUSLOT_SIM_MPS_START_MS:-1500} GPUSLOT_SIM_CONTEXT_MS=${GPUSLOT_SIM_CONTEXT_MS:-400}
echo '{"driver": "580.159.04", "gpus": [{"model": "H100-80"}]}' >"$dir/node.json"
simgpu make "$dir/node.json" || exit 1
chmod 666 "$dir/state" 2>/dev/null
before=$(find "$dir/gpu" -printf '%P %m %s %T@\n' | sort)
status=0
for part in truth node "sharing-mix -seconds 0.3 -repeats 2" "sharing-compute -seconds 0.3 -repeats 1" "sharing-memory -seconds 0.3 -repeats 1" report; do
	set -- $part
	bash "$dir/gpu/run.sh" "$1" "$out" "${@:2}" || status=1
done
[ "$before" = "$(find "$dir/gpu" -printf '%P %m %s %T@\n' | sort)" ] || { echo "simulated.sh: the folder was written to" >&2; status=1; }
exit $status
