#!/bin/sh
# fetch470.sh fetches the NVML library of driver 470 from Debian non-free and prints its path. Only its list of symbols
# is wanted, for the variant of the simulated library that an old driver would be; 535 and newer come from test/driver.
# The licence does not let us carry it. The host's apt and dpkg are read, never changed.
#
#   fetch470.sh DIRECTORY    a directory to keep it in
#
# Environment: MIRROR   Debian mirror (default: the one in apt's own configuration)
set -eu
dest=$1
die() { echo "driver 470: $*" >&2; exit 1; }
found() { find "$dest" -name 'libnvidia-ml.so.470.*' -print -quit 2>/dev/null; }
[ -z "$(found)" ] || { found; exit 0; }
[ "$(uname -m)" = x86_64 ] || die "the package is for x86_64 only"
command -v apt-get >/dev/null || die "no apt-get here"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || die "no $keyring: install debian-archive-keyring"
if [ -z "${MIRROR-}" ]; then
  . /etc/os-release
  [ "${ID-}" = debian ] || die "this is not Debian: set MIRROR to a Debian mirror"
  MIRROR=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: ${VERSION_CODENAME-}" 'Component: main' | head -n1)
fi
[ -n "$MIRROR" ] || die "no Debian mirror in apt's configuration: set MIRROR to one"
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM HUP
printf '#clear %s;\n' APT::Update::Pre-Invoke APT::Update::Post-Invoke APT::Update::Post-Invoke-Success DPkg::Post-Invoke >"$tmp/apt.conf"
mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/root" "$dest"; : >"$tmp/status"
echo "deb [signed-by=$keyring] $MIRROR bookworm non-free" >"$tmp/sources.list"
papt() { apt-get -qq -c "$tmp/apt.conf" -o Dir::State="$tmp" -o Dir::State::status="$tmp/status" -o Dir::Cache="$tmp/cache" \
  -o Dir::Etc::sourcelist="$tmp/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
  -o Dir::Etc::preferences=/dev/null -o APT::Sandbox::User=root -o APT::Architecture=amd64 -o Acquire::Languages=none \
  -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 "$@"; }
papt update >&2 || die "Debian's bookworm non-free cannot be had here and now"
(cd "$tmp" && papt download libnvidia-tesla-470-ml1) >&2 || die "Debian does not offer libnvidia-tesla-470-ml1 here and now"
dpkg-deb -x "$tmp"/libnvidia-tesla-470-ml1_*.deb "$tmp/root"
lib=$(find "$tmp/root" -name 'libnvidia-ml.so.470.*' -type f -print -quit)
[ -n "$lib" ] || die "the package holds no libnvidia-ml.so.470"
cp "$lib" "$dest/.new" && mv "$dest/.new" "$dest/$(basename "$lib")"
found
