#!/bin/sh
# boot.sh STATE IMAGE CGROUP turns this process into the PID 1 of a node: systemd on an overlay of IMAGE.
# keep.sh runs it under "unshare --pid --mount --net --uts --ipc --fork --kill-child"; it is no use by itself.
#
# Why not systemd-nspawn: forky's systemd 262 does boot under bookworm's nspawn 252, but nspawn comes in a
# package that must match the host's systemd to the letter (or apt upgrades the host's systemd on the way),
# wants a systemd-like host (/run on a tmpfs, one cgroup tree), and hides the overlay's upper layer, so files
# could not be put in place before the boot. What follows is what nspawn does, and needs only util-linux.
set -eu
umask 022

if [ "${4-}" != inside ]; then
  # The node's own cgroup becomes the root of the node's tree: enter it first, then unshare the namespace.
  echo 0 >"$3/cgroup.procs"
  exec unshare --cgroup sh "$0" "$1" "$2" "$3" inside
fi

state=$1 image=$2
mount --make-rprivate /
# The upper layer is keep.sh's tmpfs: every node starts pristine, and nothing is left when its namespace dies.
root=$state/tmp/root
# "files" holds what the caller wants in place before the boot; it lies over the image.
mount -t overlay -o "lowerdir=$state/files:$image,upperdir=$state/tmp/upper,workdir=$state/tmp/work" overlay "$root"

mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
# A boot id of its own, so that the journals of two nodes differ.
cat /proc/sys/kernel/random/uuid >"$state/tmp/boot_id"
mount --bind "$state/tmp/boot_id" "$root/proc/sys/kernel/random/boot_id"
# Read-only as in nspawn: systemd-sysctl and systemd-udevd see it and leave the host alone.
for d in sys acpi bus fs irq sysrq-trigger; do
  [ -e "$root/proc/$d" ] || continue
  mount --rbind "$root/proc/$d" "$root/proc/$d"
  mount -o remount,bind,ro,nosuid,nodev,noexec "$root/proc/$d"
done
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
# A fresh mount, not the host's: on a host with the hybrid tree this is what makes the node a cgroup v2 machine.
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$root/sys/fs/cgroup"

mount -t tmpfs -o mode=755,nosuid tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
for d in null zero full random urandom tty; do
  touch "$root/dev/$d"; mount --bind "/dev/$d" "$root/dev/$d"
done
touch "$root/dev/console"; mount --bind /dev/null "$root/dev/console"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"; ln -s fd/1 "$root/dev/stdout"; ln -s fd/2 "$root/dev/stderr"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs "$root/run"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/tmp"

tab=$(printf '\t')
while IFS=$tab read -r mode host guest; do
  if [ -d "$host" ]; then mkdir -p "$root$guest"
  else mkdir -p "$(dirname "$root$guest")"; [ -e "$root$guest" ] || : >"$root$guest"; fi
  mount --bind "$host" "$root$guest"
  [ "$mode" = rw ] || mount -o remount,bind,ro "$root$guest"
done <"$state/binds"

# pivot_root, not chroot: HTCondor's starter unshares the mount namespace, and needs / to be a mount point.
mkdir "$root/.old"
cd "$root"
pivot_root . .old
cd /
umount -l /.old
rmdir /.old
# As on a machine, where systemd does it, and in nspawn: units see what is mounted after their start.
mount --make-rshared /
# The capabilities that nspawn takes away too: all of them reach beyond a namespace.
exec env -i container=gpuslot-node PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin \
  setpriv --bounding-set=-sys_module,-sys_rawio,-sys_time,-sys_pacct,-syslog,-mac_admin,-mac_override,-wake_alarm,-block_suspend,-ipc_lock,-audit_read \
  /usr/lib/systemd/systemd systemd.log_target=journal systemd.show_status=0
