#!/bin/bash
# bundle.sh DIR: makes the folder that is copied to a GPU machine: the programs, built here, and the sources of the C
# ones, to be compiled there if these do not run. Nothing there needs Go, a toolkit or the network.
set -euo pipefail
into=${1:?bundle.sh DIR}
cd "$(dirname "$0")/../.."
export CGO_CFLAGS="${CGO_CFLAGS:--O2 -Wno-deprecated-declarations}"
mkdir -p "$into/src"
version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
# NVML wants cgo, so gpuslot and gpuslotd need a glibc; it is said below which.
go build -trimpath -ldflags "-s -w -X main.version=$version" -o "$into/" ./cmd/gpuslot ./cmd/gpuslotd
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$version" -o "$into/" ./cmd/gpuslot-condor ./test/gpu/harness
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$into/condor_starter" ./test/faults/starter
cp test/gpu/programs/src/*.[ch] "$into/src/"
cp test/gpu/train.py test/gpu/run.sh "$into/"
"$into/run.sh" compile
echo "$version" >"$into/VERSION"
needs=$(for f in gpuslot gpuslotd gpujob gpusee; do objdump -T "$into/$f"; done | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
echo "$into: $(du -sh "$into" | cut -f1), version $version, needs ${needs/_/ } or newer; run it with $into/run.sh PART OUT"
