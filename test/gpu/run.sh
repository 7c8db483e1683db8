#!/bin/bash
# run.sh PART OUT [ARGUMENT…]: one part of the harness on this machine's GPU, unattended, in less than eight minutes.
# What it finds goes below OUT, everything else into a directory that is gone afterwards: the folder may be read-only, and
# where a copy lost its modes, "bash run.sh" does. run.sh compile only compiles gpujob and gpusee, into the folder.
# run.sh search ROOT prints the control program that is found below ROOT.
set -uo pipefail
began=$(date +%s)
here=$(cd "$(dirname "$0")" && pwd) || exit 1
die() { echo "run.sh: $*" >&2; exit 1; }

compile() { # DIRECTORY
	local cc
	for cc in gcc cc clang; do command -v "$cc" >/dev/null && break; done
	"$cc" -std=gnu11 -O2 -o "$1/gpujob" "$here"/src/{gpujob,driver,kernels}.c -ldl && "$cc" -std=gnu11 -O2 -o "$1/gpusee" "$here/src/gpusee.c" -ldl
}

# The control program below ROOT, the empty text for all of the machine. Not in caches and temporary directories: they may
# hold simulated ones, and drivers of other branches for tests.
search() { # ROOT
	timeout 20 find "$1/" \( -path "$1/proc" -o -path "$1/sys" -o -path "$1/tmp" -o -path "$1/var/tmp" \
		-o -name .cache -o -name 'gpuslot*' \) -prune \
		-o -name nvidia-cuda-mps-control -type f -print -quit 2>/dev/null
}

case ${1-} in
compile) compile "$here"; exit ;;
search) search "${2-}"; exit ;;
esac
part=${1:?run.sh PART OUT} out=${2:?run.sh PART OUT}
shift 2
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
# A place where programs may run.
for base in "${TMPDIR:-/tmp}" /tmp /var/tmp "$out"; do
	work=$(mktemp -d "$base/gpuslot-run-XXXXXX" 2>/dev/null) || continue
	trap 'rm -rf "$work"' EXIT
	for f in harness first gpuslot gpuslotd gpuslot-condor condor_starter gpujob gpusee nvml.test mps.test train.py; do
		cp "$here/$f" "$work/" && chmod 755 "$work/$f" || die "the folder $here is not whole: make gpu-bundle"
	done
	"$work/harness" -h >/dev/null 2>&1 && break
	rm -rf "$work"; work=
done
[ -n "$work" ] || die "no program of the folder runs in ${TMPDIR:-/tmp}, /tmp, /var/tmp or $out: is it for x86-64?"
# Built against a newer glibc than this machine's? Then here.
if ! "$work/gpujob" help >/dev/null 2>&1; then compile "$work" || die "gpujob does not run here, and there is no compiler"; fi
"$work/gpuslot" --version || die "gpuslot does not run here: build it on a machine with a glibc as old as $(ldd --version 2>&1 | head -n1)"

# Drivers are not always where programs look.
export PATH=$PATH:/usr/sbin:/sbin:/usr/local/nvidia/bin:/usr/lib/nvidia/current:/opt/nvidia/bin
if ! command -v nvidia-cuda-mps-control >/dev/null && (: <>/dev/nvidiactl) 2>/dev/null; then
	found=$(search '')
	[ -z "$found" ] || PATH=$PATH:${found%/*}
fi
known=$(ldconfig -p 2>/dev/null)
for dir in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib64/nvidia /usr/lib/x86_64-linux-gnu/nvidia/current; do
	if [ -e "$dir/libcuda.so.1" ] && [[ $known != *libcuda.so.1* ]]; then
		export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir
	fi
done
# What the driver compiles for the kernels is not to stay in anybody's home; all accounts may write there.
export CUDA_CACHE_PATH=$work/cache
mkdir -m 1777 "$CUDA_CACHE_PATH" && chmod 1777 "$CUDA_CACHE_PATH" && chmod 711 "$work"
[ "$part" = first ] || {
	date -u; uname -r; nproc; ldd --version | head -n1; cat /proc/driver/nvidia/version
	command -v nvidia-smi nvidia-cuda-mps-control nvidia-cuda-mps-server nvcc python3
	ldconfig -p | grep -E 'lib(cuda|nvidia-ml)\.so'
	ls -l /dev/nvidia*; df -h /dev/shm; grep cgroup /proc/self/mounts; env | grep -E '^(CUDA|NVIDIA|LD_LIBRARY)'
	timeout 20 nvidia-smi; timeout 20 nvidia-smi -q -d COMPUTE,ECC,CLOCK,POWER,PERFORMANCE
} >"$out/machine.txt" 2>&1

if [ "$part" = first ]; then
	"$work/first" -programs "$work" -bundle "$here" -began "$began" -out "$out" "$@" &
else # the harness ends what it started when it is told to; only then is it killed
	timeout --foreground --signal=TERM --kill-after=40 470 "$work/harness" -out "$out" "$@" "$part" &
fi
pid=$!
trap 'kill -TERM "$pid" 2>/dev/null' INT TERM HUP
wait "$pid"; status=$?
while kill -0 "$pid" 2>/dev/null; do wait "$pid"; status=$?; done # a signal ends a wait
exit "$status"
