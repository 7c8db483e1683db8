#!/bin/bash
# simulated.sh OUT: the folder that is copied to a GPU machine, made and run whole as there, on the simulated node.
set -uo pipefail
out=${1:?simulated.sh OUT}
cd "$(dirname "$0")/../.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir" # jobs have accounts of their own
test/gpu/bundle.sh "$dir/gpu" || exit 1
sim=$(go run ./test/sim/ctl/build) && cp -r "$sim/lib" "$sim/bin" "$dir/" || exit 1
export GPUSLOT_SIM_STATE=$dir/state LD_LIBRARY_PATH=$dir/lib PATH=$dir/bin:$PATH
echo '{"driver": "550.163.01", "gpus": [{"model": "H100-80"}]}' >"$dir/node.json"
simgpu make "$dir/node.json" || exit 1
chmod 666 "$dir/state" 2>/dev/null
status=0
for part in truth node "sharing-mix -seconds 0.3" "sharing-compute -seconds 0.3" "sharing-memory -seconds 0.3" report; do
	set -- $part
	"$dir/gpu/run.sh" "$1" "$out" "${@:2}" || status=1
done
exit $status
