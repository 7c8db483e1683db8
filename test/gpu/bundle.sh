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
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$version" -o "$into/" ./cmd/gpuslot-condor ./test/gpu/harness ./test/gpu/first
CGO_ENABLED=0 go test -c -trimpath -ldflags "-s -w" -o "$into/mps.test" ./mps
go test -c -trimpath -tags gpu -ldflags "-s -w" -o "$into/nvml.test" ./gpu/nvml
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$into/condor_starter" ./test/faults/starter
cp test/gpu/programs/src/*.[ch] "$into/src/"
cp test/gpu/train.py test/gpu/run.sh test/gpu/first.sh "$into/"
"$into/run.sh" compile
echo "$version" >"$into/VERSION"
needs=$(for f in gpuslot gpuslotd gpujob gpusee nvml.test; do objdump -T "$into/$f"; done | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
newest=$(printf '%s\n' "$needs" GLIBC_2.34 | sort -V | tail -1)
[ "$newest" = GLIBC_2.34 ] || { echo "bundle.sh: the programs need ${needs/_/ }; build where glibc is 2.34 or older (Debian 12 and its gcc do)" >&2; exit 1; }
tar -C "$(dirname "$into")" --sort=name --owner=0 --group=0 -czf "$into.tgz" "$(basename "$into")"
size=$(stat -c %s "$into.tgz")
[ "$size" -le 30000000 ] || {
	echo "bundle.sh: $into.tgz has $((size / 1000000)) MB, more than the 30 that travel" >&2
	exit 1
}
cat <<END
version $version, needs ${needs/_/ } or newer; $into, packed $into.tgz: $((size / 1000000)) MB

carry   $into.tgz
run     tar xzf $(basename "$into").tgz && bash $(basename "$into")/first.sh OUT           (ends within 570 s; OUT/results.tgz comes home)
        bash $(basename "$into")/first.sh --rest OUT                         (a second and a third time, as the last line says)
home    make gpu-results RESULTS=results.tgz

END
"$into/first" -table
