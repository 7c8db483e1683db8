#!/bin/bash
# run.sh PART OUT [ARGUMENT…]: one part of the harness on this machine's GPU, unattended, in less than eight minutes.
# What it finds goes below OUT. run.sh compile only compiles gpujob and gpusee.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here" || exit 1

compile() {
	local cc
	for cc in gcc cc clang; do command -v "$cc" >/dev/null && break; done
	"$cc" -std=gnu11 -O2 -o gpujob src/gpujob.c src/driver.c src/kernels.c -ldl && "$cc" -std=gnu11 -O2 -o gpusee src/gpusee.c -ldl
}

if [ "${1-}" = compile ]; then compile; exit; fi
part=${1:?run.sh PART OUT} out=${2:?run.sh PART OUT}
shift 2
mkdir -p "$out" || exit 1
# Built against a newer glibc than this machine's? Then here.
if ! ./gpujob help >/dev/null 2>&1; then compile || exit 1; fi
./gpuslot --version || { echo "gpuslot does not run here: build it on a machine with a glibc as old as $(ldd --version | head -n1)" >&2; exit 1; }
{
	date -u; uname -r; ldd --version | head -n1
	command -v nvidia-smi nvidia-cuda-mps-control nvidia-cuda-mps-server nvcc python3
	timeout 20 nvidia-smi; timeout 20 nvidia-smi -q -d COMPUTE,ECC,CLOCK,POWER
} >"$out/machine.txt" 2>&1
# The harness ends what it started when it is told to; only then is it killed.
exec timeout --signal=INT --kill-after=40 470 ./harness -out "$out" "$@" "$part"
