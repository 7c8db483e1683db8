#!/bin/sh
# fetch.sh fetches a program for the tests of pictures from Debian, once, and prints its directory.
#
#   fetch.sh prometheus   usr/bin/prometheus and usr/bin/promtool
#   fetch.sh chromium     chromium-headless-shell with its libraries and fonts, started by ./chromium
#
# They come from the suite that this machine runs, by apt's own configuration, and live in a cache outside the
# repository. The host's own apt and dpkg are read, never changed; root is not needed. VERSION names what was fetched.
#
# Environment:
#   GPUSLOT_CACHE   where it is kept (default: ${XDG_CACHE_HOME:-$HOME/.cache}/gpuslot)
set -eu

say() { echo "$name: $*" >&2; }
# What could not be had is remembered for ten minutes: a test run asks many times.
die() { say "$*"; [ -z "${failed-}" ] || echo "$*" >"$failed"; exit 1; }

name=${1-}
case $name in
  prometheus) package=prometheus ;;
  chromium) package=chromium-headless-shell ;;
  *) say "no such program; there are prometheus and chromium"; exit 2 ;;
esac

here=$(cd "$(dirname "$0")" && pwd)
cache=${GPUSLOT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gpuslot}
[ -r /etc/os-release ] && . /etc/os-release
# The recipe is this file: change it and everything is fetched anew.
key=${VERSION_CODENAME-}-$(sha256sum <"$here/fetch.sh" | cut -c1-12)
dest=$cache/$name-$key
[ ! -e "$dest/VERSION" ] || { echo "$dest"; exit 0; }

[ "${ID-}" = debian ] || die "this is not Debian: run fetch.sh on Debian and set GPUSLOT_CACHE to a copy of its cache"
command -v apt-get >/dev/null || die "no apt-get here: run fetch.sh on a Debian machine and set GPUSLOT_CACHE to a copy of its cache"

mkdir -p "$cache"
exec 9>"$cache/$name-$key.lock"
flock -n 9 || { say "waiting for another fetch"; flock 9; }
[ ! -e "$dest/VERSION" ] || { echo "$dest"; exit 0; }
failed=$cache/$name-$key.failed
if [ -n "$(find "$failed" -mmin -10 2>/dev/null)" ]; then
  say "$(cat "$failed") (a try less than ten minutes ago; remove $failed to try again now)"; exit 1
fi
rm -f "$failed"

tmp=$(mktemp -d "$cache/.$name-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM HUP

# apt with a state of its own. The host's hooks clean its caches: they are not for us.
cat >"$tmp/apt.conf" <<'X'
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
X
mkdir -p "$tmp/state/lists/partial" "$tmp/cache/archives/partial" "$tmp/root"; : >"$tmp/status"
papt() {
  apt-get -qq -c "$tmp/apt.conf" -o Dir::State="$tmp/state" -o Dir::State::status="$tmp/status" -o Dir::Cache="$tmp/cache" \
    -o APT::Sandbox::User=root -o Debug::NoLocking=1 -o Acquire::Languages=none \
    -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 "$@"
}
papt update >&2 || die "apt-get update does not work here"

if [ "$name" = prometheus ]; then
  (cd "$tmp/cache/archives" && papt download "$package") >&2 || die "Debian does not offer $package here and now"
else
  # An empty status: every library comes along, whatever this machine has installed.
  papt install --download-only --no-install-recommends -y "$package" >&2 || die "Debian does not offer $package here and now"
  # The C library must be the one of the machine's own program loader.
  rm -f "$tmp"/cache/archives/libc6_*.deb "$tmp"/cache/archives/libc-bin_*.deb
fi
version=$(dpkg-deb -f "$tmp"/cache/archives/"$package"_*.deb Version)
for deb in "$tmp"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$tmp/root"; done
chmod 755 "$tmp/root"

if [ "$name" = chromium ]; then
  r=$tmp/root
  rm -rf "$r"/usr/share/doc "$r"/usr/share/man "$r"/usr/share/locale "$r"/usr/share/lintian "$r"/usr/share/icons "$r"/usr/share/X11
  cat >"$r/fonts.conf" <<'X'
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
X
  cat >"$r/chromium" <<'X'
#!/bin/sh
root=$(cd "$(dirname "$0")" && pwd)
for d in "$root"/usr/lib/*-linux-gnu "$root"/usr/lib/*-linux-gnu/pulseaudio "$root"/lib/*-linux-gnu; do
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$d
done
export LD_LIBRARY_PATH FONTCONFIG_FILE="$root/fonts.conf"
exec "$root/usr/lib/chromium/chromium-headless-shell" "$@"
X
  chmod 755 "$r/chromium"
  "$r/chromium" --version >&2 || die "the fetched $package does not start here"
fi
echo "$version" >"$tmp/root/VERSION"
rm -rf "$dest"
mv "$tmp/root" "$dest"
say "fetched $version from Debian ${VERSION_CODENAME-}"
echo "$dest"
