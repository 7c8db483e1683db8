#!/bin/sh
# image.sh builds the root file system that test nodes boot from, once, and prints its path.
#
#   image.sh           build it if it is not in the cache, print the path
#   image.sh --path    print the path only; exit 1 if it is not built yet
#
# The image is an unpacked Debian tree with systemd, D-Bus, HTCondor and the users alice and bob. Nodes
# mount it as the read-only lower layer of an overlay, so one image serves any number of nodes at a time.
#
# Environment:
#   GPUSLOT_CACHE   where images live (default: ${XDG_CACHE_HOME:-$HOME/.cache}/gpuslot)
#   MIRROR          Debian mirror (default: the one in apt's own configuration)
#   NODE_SUITE      force one Debian suite
#   NODE_CONDOR=no  leave HTCondor out: bookworm, whose systemd is EL9's, has none
#   NODE_SYSTEMD    a suite whose systemd replaces the newer one: bookworm has 252
set -eu

# 25.14 is the oldest HTCondor that the facts behind gpuslot were measured on.
CONDOR_MIN=25.14
# The suites that carry it, most settled first. trixie has 23.9.6, whose repeated resource ids are broken;
# bookworm has no HTCondor at all.
SUITES=${NODE_SUITE:-forky sid}
PACKAGES="systemd systemd-sysv dbus procps iproute2"
CONDOR=${NODE_CONDOR:-condor}
SYSTEMD=${NODE_SYSTEMD-}
# openssh is what condor_ssh_to_job and condor_submit -i talk through.
[ "$CONDOR" = no ] || PACKAGES="$PACKAGES $CONDOR openssh-server openssh-client"

say() { echo "node image: $*" >&2; }
die() { say "$*"; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
cache=${GPUSLOT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gpuslot}
# The recipe is this file and the overrides: change one and a new image is built.
key=$( { cat "$here/image.sh"; echo "$SUITES $PACKAGES $SYSTEMD"; } | sha256sum | cut -c1-12)
image=$cache/node-$key

if [ -e "$image/etc/gpuslot-node" ]; then echo "$image"; exit 0; fi
if [ "${1-}" = --path ]; then echo "$image"; exit 1; fi

[ "$(id -u)" = 0 ] || die "building the image needs root: run it once as root, or set GPUSLOT_CACHE to a cache that holds $(basename "$image")"
[ "$(uname -m)" = x86_64 ] || die "the image is built for x86_64 only; this machine is $(uname -m)"
command -v apt-get >/dev/null || die "no apt-get here: build the image on a Debian machine and set GPUSLOT_CACHE to a copy of its cache"

mkdir -p "$cache"
exec 9>"$cache/node-$key.lock"
flock -n 9 || { say "waiting for another build of the same image"; flock 9; }
if [ -e "$image/etc/gpuslot-node" ]; then echo "$image"; exit 0; fi

. /etc/os-release
if [ -z "${MIRROR-}" ]; then
  mirror() { apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
    "Codename: ${VERSION_CODENAME-}" 'Component: main' | head -n1; }
  MIRROR=$(mirror)
  if [ -z "$MIRROR" ]; then
    # apt names its targets only once it has fetched their lists.
    say "apt-get update"
    apt-get -qq update >&2 || die "apt-get update does not work: set MIRROR to a Debian mirror"
    MIRROR=$(mirror)
  fi
fi
[ "${ID-}" = debian ] && [ -n "$MIRROR" ] || [ -n "${MIRROR-}" ] || die "no Debian mirror in apt's configuration: set MIRROR to one"

if ! command -v debootstrap >/dev/null; then
  say "installing debootstrap"
  apt='apt-get -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300'
  DEBIAN_FRONTEND=noninteractive $apt install debootstrap >/dev/null 2>&1 || {
    apt-get -qq update >&2
    DEBIAN_FRONTEND=noninteractive $apt install debootstrap >&2
  } || die "apt-get cannot install debootstrap: install it by hand"
fi

discard() { umount "$1/root/proc" 2>/dev/null || true; rm -rf --one-file-system "$1"; }
# What a killed build left: the lock is ours, so nobody is at work there.
for d in "$cache/.node-$key"-*; do [ ! -d "$d" ] || discard "$d"; done
tmp=$(mktemp -d "$cache/.node-$key-XXXXXX")
root=$tmp/root
finish() { discard "$tmp"; }
trap finish EXIT
trap 'exit 1' INT TERM HUP

# Which suite carries a new enough HTCondor: apt with a root of its own, the host's apt stays as it is.
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
condor_in() { # prints the version of condor in a suite
  a=$tmp/apt-$1; mkdir -p "$a/lists/partial" "$a/cache/archives/partial"; : >"$a/status"
  echo "deb [signed-by=$keyring] $MIRROR $1 main" >"$a/sources.list"
  set -- -o Dir::Etc::sourcelist="$a/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::Etc::preferencesparts=/dev/null -o Dir::State="$a" -o Dir::State::status="$a/status" \
    -o Dir::Cache="$a/cache" -o APT::Sandbox::User=root -o APT::Architecture=amd64 -o Acquire::Languages=none
  apt-get -qq "$@" update >&2 || return 0
  apt-cache "$@" policy condor | awk '/Candidate:/ && $2 != "(none)" {print $2}'
}
suite='' version=''
for s in $SUITES; do
  if [ "$CONDOR" = no ]; then suite=$s version="(none)"; break; fi
  version=$(condor_in "$s")
  say "suite $s has condor ${version:-none}"
  if [ -n "$version" ] && dpkg --compare-versions "$version" ge "$CONDOR_MIN"; then suite=$s; break; fi
done
[ -n "$suite" ] || die "no suite of $SUITES has HTCondor $CONDOR_MIN or later: set NODE_SUITE to one that has"

say "unpacking a minimal Debian $suite (about 20 s)"
# An older debootstrap does not know the newest code names; all of them build as sid does.
debootstrap --variant=minbase --keyring="$keyring" "$suite" "$root" "$MIRROR" \
  /usr/share/debootstrap/scripts/sid >"$tmp/log" 2>&1 || { tail -n 20 "$tmp/log" >&2; die "debootstrap $suite does not work"; }

say "installing systemd and HTCondor $version (about 20 s)"
# policy-rc.d: no daemon may start in the build. The two dpkg settings save time, and go again below.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"; chmod 755 "$root/usr/sbin/policy-rc.d"
cat >"$root/etc/dpkg/dpkg.cfg.d/node-build" <<'X'
force-unsafe-io
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/lintian/*
X
mount -t proc proc "$root/proc"
DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get -qq -y --no-install-recommends install $PACKAGES \
  </dev/null >"$tmp/log" 2>&1 || { tail -n 20 "$tmp/log" >&2; die "apt-get install $PACKAGES does not work in the image"; }
# Packages of another suite, beside those of the image's own.
# A mirror may be a snapshot; whether that is fine, the host's apt says.
borrow() {
  echo "deb [signed-by=$keyring] $MIRROR $1 main" >"$root/etc/apt/sources.list.d/$1.list"
  chroot "$root" apt-get -qq update -o Acquire::Check-Valid-Until="$(apt-config dump --format '%v' Acquire::Check-Valid-Until)" \
    >"$tmp/log" 2>&1 || tail -n 20 "$tmp/log" >&2
}
# An older systemd below a newer HTCondor: the suite of the one has not the other. What
# talks to systemd through libsystemd0 is new and wants a new one; its protocols are old.
replace_systemd() {
  borrow "$SYSTEMD"
  older="systemd systemd-sysv libsystemd-shared"
  DEBIAN_FRONTEND=noninteractive SYSTEMD=$SYSTEMD chroot "$root" sh -ec '
    cd /tmp
    for p; do apt-get -qq download "$p/$SYSTEMD"; done
    rm "/etc/apt/sources.list.d/$SYSTEMD.list"
    dpkg --force-depends --force-downgrade --unpack ./*.deb
    rm ./*.deb
    sed -i "/^Package: systemd\$/,/^\$/s/libsystemd0 (= [^)]*)/libsystemd0/" /var/lib/dpkg/status
    apt-mark hold "$@"
    apt-get -qq -y --no-install-recommends --fix-broken install' sh $older </dev/null >"$tmp/log" 2>&1 ||
    { tail -n 20 "$tmp/log" >&2; die "the systemd of $SYSTEMD cannot be installed"; }
}
[ -z "$SYSTEMD" ] || replace_systemd
# apptainer is in sid only. A node without it is a node all the same: what needs it says so.
add_apptainer() {
  [ "$suite" = sid ] || borrow sid
  DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get -qq -y --no-install-recommends -o APT::Default-Release="$suite" \
    install apptainer </dev/null >"$tmp/log" 2>&1 || { tail -n 20 "$tmp/log" >&2; say "there is no apptainer in sid now: going on without it"; }
  rm -f "$root/etc/apt/sources.list.d/sid.list"
}
[ "$CONDOR" = no ] || add_apptainer
for u in alice bob; do chroot "$root" useradd -m -s /bin/bash "$u"; done
chroot "$root" apt-get clean
umount "$root/proc"

say "slimming"
rm -rf "$root/usr/sbin/policy-rc.d" "$root/etc/dpkg/dpkg.cfg.d/node-build" "$root"/var/lib/apt/lists/* \
  "$root"/var/log/*.log "$root"/var/log/apt "$root"/var/cache/apt/* "$root"/var/cache/debconf/*-old
for d in doc man locale i18n info lintian; do rm -rf "$root/usr/share/$d"; mkdir "$root/usr/share/$d"; done
find "$root/usr/lib/python3" "$root"/usr/lib/python3.* -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# What a node has no use for makes its boot slow or degraded.
unit=$root/etc/systemd/system
for u in getty@ console-getty container-getty@ systemd-logind systemd-timesyncd systemd-resolved systemd-networkd e2scrub_reap ssh; do
  ln -sf /dev/null "$unit/$u.service"; done
for u in apt-daily apt-daily-upgrade dpkg-db-backup e2scrub_all fstrim; do ln -sf /dev/null "$unit/$u.timer"; done
ln -sf /dev/null "$unit/systemd-logind-varlink.socket"
# There is no fstab, kernel command line, getty or disk to make units of. Each generator costs every boot a program.
mkdir -p "$root/etc/systemd/system-generators"
for g in "$root"/usr/lib/systemd/system-generators/*; do
  ln -s /dev/null "$root/etc/systemd/system-generators/${g##*/}"; done
mkdir -p "$root/etc/systemd/journald.conf.d"
printf '[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\n' >"$root/etc/systemd/journald.conf.d/node.conf"
# HTCondor starts when the test has put its files in place, not at boot.
rm -f "$unit"/*.wants/condor.service
: >"$root/etc/machine-id"; rm -f "$root/etc/hostname"; rm -f "$root/etc/resolv.conf"; : >"$root/etc/resolv.conf"

{
  [ "$CONDOR" = no ] || chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' condor
  chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' systemd libc6
  chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' apptainer 2>/dev/null || true
} >"$root/etc/gpuslot-node"
echo "suite $suite" >>"$root/etc/gpuslot-node"
chmod 755 "$root"
# Newer than /usr: systemd then leaves out ldconfig and its other once-per-update work at every boot.
touch "$root/etc/.updated" "$root/var/.updated"
rm -rf --one-file-system "$image"
mv "$root" "$image"
say "built $(basename "$image"): $(tr '\n' ',' <"$image/etc/gpuslot-node" | sed 's/,$//; s/,/, /g'), $(du -sm "$image" | cut -f1) MB"
echo "$image"
