#!/bin/sh
# fetch.sh fetches NVIDIA's MPS programs and driver libraries from Debian non-free, once, and prints the directory.
#
#   fetch.sh 535|550|555     fetch that driver branch if it is not in the cache, print its directory
#   fetch.sh ptxas           NVIDIA's assembler, CUDA 12.4's: 87 MB to fetch, 30 MB to keep
#   fetch.sh cuda.h          the header of its driver API: 930 MB to fetch, 1 MB to keep
#   fetch.sh WHICH kept      only if it is in the cache
#
# The licences of NVIDIA's driver and toolkit do not let us carry these files, so they are fetched when a test or the demo
# runs and live in a cache outside the repository. The host's own apt and dpkg are read, never changed; root is
# not needed.
#
# In a branch's directory: usr/bin/nvidia-cuda-mps-control, usr/sbin/nvidia-cuda-mps-server, the driver libraries in
# usr/lib/x86_64-linux-gnu/nvidia/current, usr/lib/nvidia/current/nvidia-smi. In all of them VERSION,
# the full version.
#
# Environment:
#   GPUSLOT_CACHE   where it is kept (default: ${XDG_CACHE_HOME:-$HOME/.cache}/gpuslot)
#   MIRROR          Debian mirror (default: the one in apt's own configuration)
set -eu

say() { echo "driver $branch: $*" >&2; }
# What could not be had is remembered for ten minutes: a test run asks many times.
die() { say "$*"; [ -z "${failed-}" ] || echo "$*" >"$failed"; exit 1; }

branch=${1-}
packages="nvidia-cuda-mps libcuda1 libnvidia-ml1 nvidia-smi" need=usr/bin/nvidia-cuda-mps-control
case $branch in
  535) suites="bookworm" ;;
  550) suites="trixie forky sid" ;;
  555) suites="experimental" ;;
  ptxas) suites="trixie forky sid" packages=nvidia-cuda-toolkit need=usr/bin/ptxas ;;
  cuda.h) suites="trixie forky sid" packages=nvidia-cuda-dev need=usr/include/cuda.h ;;
  *) say "no such branch; there are 535, 550 and 555"; exit 2 ;;
esac

here=$(cd "$(dirname "$0")" && pwd)
cache=${GPUSLOT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gpuslot}
# The recipe is this file: change it and everything is fetched anew.
key=$(sha256sum <"$here/fetch.sh" | cut -c1-12)
dest=$cache/driver-$branch-$key
[ ! -e "$dest/VERSION" ] || { echo "$dest"; exit 0; }
[ "${2-}" != kept ] || die "not in the cache; make campaign fetches it"

[ "$(uname -m)" = x86_64 ] || die "the packages are for x86_64 only; this machine is $(uname -m)"
command -v apt-get >/dev/null || die "no apt-get here: run fetch.sh on a Debian machine and set GPUSLOT_CACHE to a copy of its cache"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || die "no $keyring: install debian-archive-keyring"

mkdir -p "$cache"
exec 9>"$cache/driver-$branch-$key.lock"
flock -n 9 || { say "waiting for another fetch"; flock 9; }
[ ! -e "$dest/VERSION" ] || { echo "$dest"; exit 0; }
failed=$cache/driver-$branch-$key.failed
if [ -n "$(find "$failed" -mmin -10 2>/dev/null)" ]; then
  say "$(cat "$failed") (a try less than ten minutes ago; remove $failed to try again now)"; exit 1
fi
rm -f "$failed"

tmp=$(mktemp -d "$cache/.driver-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM HUP

# apt with a state of its own. The host's hooks clean its caches: they are not for us.
cat >"$tmp/apt.conf" <<'X'
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
X
papt() { # papt STATE ARGUMENTS…
  s=$tmp/$1; shift
  mkdir -p "$s/lists/partial" "$s/cache/archives/partial"; : >>"$s/status"
  apt-get -qq -c "$tmp/apt.conf" -o Dir::State="$s" -o Dir::State::status="$s/status" -o Dir::Cache="$s/cache" \
    -o APT::Sandbox::User=root -o APT::Architecture=amd64 -o Acquire::Languages=none \
    -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 "$@"
}

. /etc/os-release
if [ -z "${MIRROR-}" ]; then
  [ "${ID-}" = debian ] || die "this is not Debian: set MIRROR to a Debian mirror"
  mirror() { "$@" indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
    "Codename: ${VERSION_CODENAME-}" 'Component: main' | head -n1; }
  MIRROR=$(mirror apt-get)
  if [ -z "$MIRROR" ]; then
    # apt names its targets only once it has fetched their lists: fetch them, but not into the host's state.
    papt host update >&2 || die "apt-get update does not work here: set MIRROR to a Debian mirror"
    MIRROR=$(mirror papt host)
  fi
  [ -n "$MIRROR" ] || die "no Debian mirror in apt's configuration: set MIRROR to one"
fi

for suite in $suites; do
  s=$tmp/$suite; mkdir -p "$s/dl"
  echo "deb [signed-by=$keyring] $MIRROR $suite non-free" >"$s/sources.list"
  from() { papt "$suite" -o Dir::Etc::sourcelist="$s/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::Etc::preferencesparts=/dev/null -o Dir::Etc::preferences=/dev/null "$@"; }
  from update >&2 || continue
  # shellcheck disable=SC2086 # a list of words
  (cd "$s/dl" && from download $packages) >&2 || continue
  version=$(dpkg-deb -f "$s/dl/${packages%% *}"_*.deb Version)
  version=${version#*:}; version=${version%-*}
  case $branch.$version in
    ptxas.* | cuda.h.*) ;;
    "$branch.$branch".*) ;;
    *) say "$suite now has $version"; continue ;;
  esac
  mkdir -m 755 "$tmp/root"
  for deb in "$s"/dl/*.deb; do
    case $branch in # the rest of the toolkit is large
      ptxas | cuda.h) dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$tmp/root" "./$need" ;;
      *) dpkg-deb -x "$deb" "$tmp/root" ;;
    esac
  done
  chmod 755 "$tmp/root"
  [ -s "$tmp/root/$need" ] || die "${packages%% *} of $suite has no $need"
  echo "$version" >"$tmp/root/VERSION"
  rm -rf "$dest"
  mv "$tmp/root" "$dest"
  say "fetched $version from Debian $suite non-free"
  echo "$dest"
  exit 0
done
case $branch in ptxas | cuda.h) die "Debian ($suites) does not offer $packages here and now" ;; esac
die "Debian ($suites) does not offer driver $branch here and now"
