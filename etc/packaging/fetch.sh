#!/bin/sh
# fetch.sh fetches a program from Debian that packages are built or checked with,
# once, and prints the command that runs it.
#
#   fetch.sh gcc-arm64   the cross compiler for arm64, which cgo needs
#   fetch.sh rpm         rpm, which reads and installs what nfpm built
#
# Nothing is installed on the host: apt works with a state of its own, and what
# it fetches is unpacked into a cache outside the repository.
#
# Environment:
#   GPUSLOT_CACHE   where it is kept (default: ${XDG_CACHE_HOME:-$HOME/.cache}/gpuslot)
set -eu

name=${1-}
case $name in
  gcc-arm64) packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross" program=aarch64-linux-gnu-gcc ;;
  rpm) packages=rpm program=rpm ;;
  *) echo "fetch: there are gcc-arm64 and rpm" >&2; exit 2 ;;
esac

say() { echo "$name: $*" >&2; }
die() { say "$*; or install $packages"; exit 1; }

if command -v "$program" >/dev/null; then echo "$program"; exit 0; fi

here=$(cd "$(dirname "$0")" && pwd)
cache=${GPUSLOT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gpuslot}
[ -r /etc/os-release ] && . /etc/os-release
[ "${ID-}" = debian ] && [ "$(uname -m)" = x86_64 ] || die "this fetches on Debian for x86_64 only"
# The recipe is this file and the release: change either and it is fetched again.
key=$( { cat "$here/fetch.sh"; echo "$VERSION_CODENAME"; } | sha256sum | cut -c1-12)
dest=$cache/$name-$key
[ ! -x "$dest/run" ] || { echo "$dest/run"; exit 0; }

mkdir -p "$cache"
exec 9>"$dest.lock"
flock -n 9 || { say "waiting for another fetch"; flock 9; }
[ ! -x "$dest/run" ] || { echo "$dest/run"; exit 0; }

tmp=$(mktemp -d "$cache/.$name-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM HUP

# The host's sources, but a state without any installed package: apt then names
# all that the program needs. The host's hooks clean its caches: not for us.
cat >"$tmp/apt.conf" <<'C'
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
C
mkdir -p "$tmp/state/lists/partial" "$tmp/cache/archives/partial" "$tmp/root"
: >"$tmp/status"
papt() { apt-get -qq -c "$tmp/apt.conf" -o Dir::State="$tmp/state" -o Dir::State::status="$tmp/status" \
  -o Dir::Cache="$tmp/cache" -o APT::Sandbox::User=root -o APT::Architecture=amd64 -o Debug::NoLocking=1 \
  -o Acquire::Languages=none -o APT::Install-Recommends=false "$@"; }
say "fetching $packages of $VERSION_CODENAME"
papt update >&2 || die "apt-get update does not work"
# shellcheck disable=SC2086 # a list of words
papt -y --download-only install $packages >&2 || die "apt-get cannot fetch $packages"
for deb in "$tmp"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$tmp/root"; done

# The program finds its libraries and its configuration by these variables.
cat >"$tmp/root/run" <<W
#!/bin/sh
root=\$(dirname "\$0")
export LD_LIBRARY_PATH="\$root/usr/lib/x86_64-linux-gnu:\$root/lib/x86_64-linux-gnu"
export RPM_CONFIGDIR="\$root/usr/lib/rpm"
exec "\$root/usr/bin/$program" $([ "$name" = rpm ] || echo '--sysroot="$root"') "\$@"
W
chmod 755 "$tmp/root" "$tmp/root/run"
"$tmp/root/run" --version >/dev/null || die "what was fetched does not run"
rm -rf "$dest"
mv "$tmp/root" "$dest"
echo "$dest/run"
