#!/bin/bash
# first.sh [--rest] [--deadline 570s] OUT: everything worth knowing of a machine with a GPU, before one deadline, the most
# telling first. OUT takes results.tgz, written again every 15 s; --rest makes in a later call what an earlier one left.
set -uo pipefail
out='' flags=()
while [ $# -gt 0 ]; do
	case $1 in
	--rest) flags+=(-rest) ;;
	--deadline | --scale | --raw) flags+=("${1#-}" "${2?$1 wants a value}"); shift ;;
	-*) echo "first.sh: there is no $1; first.sh [--rest] [--deadline 570s] OUT" >&2; exit 2 ;;
	*) out=$1 ;;
	esac
	shift
done
exec bash "$(dirname "$0")/run.sh" first "${out:?first.sh [--rest] [--deadline 570s] OUT}" "${flags[@]}"
