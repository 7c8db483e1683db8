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

# A boot id of its own, so that the journals of two nodes differ.
cat /proc/sys/kernel/random/uuid >"$state/tmp/boot_id"
# The mounts are lists for two programs: fifty programs would take a slow machine as long as the boot itself.
{
  echo "proc $root/proc proc nosuid,nodev,noexec"
  # Read-only as in nspawn: systemd-sysctl and systemd-udevd see it and leave the host alone.
  for d in sys acpi bus fs irq sysrq-trigger; do
    [ ! -e "/proc/$d" ] || echo "$root/proc/$d $root/proc/$d none bind,ro,nosuid,nodev,noexec"
  done
  echo "$state/tmp/boot_id $root/proc/sys/kernel/random/boot_id none bind,ro"
  echo "sysfs $root/sys sysfs ro,nosuid,nodev,noexec"
  # A fresh mount, not the host's: on a host with the hybrid tree this is what makes the node a cgroup v2 machine.
  echo "cgroup2 $root/sys/fs/cgroup cgroup2 nosuid,nodev,noexec"
  echo "tmpfs $root/dev tmpfs mode=755,nosuid"
  echo "devpts $root/dev/pts devpts newinstance,ptmxmode=0666,mode=620,gid=5,x-mount.mkdir"
  echo "tmpfs $root/dev/shm tmpfs mode=1777,nosuid,nodev,x-mount.mkdir"
  echo "tmpfs $root/run tmpfs mode=755,nosuid,nodev"
  echo "tmpfs $root/tmp tmpfs mode=1777,nosuid,nodev"
} >"$state/tmp/first"
mount -a -T "$state/tmp/first"

ln -s pts/ptmx "$root/dev/ptmx" # systemd makes the other links
{
  for d in null zero full random urandom tty; do
    : >"$root/dev/$d"
    echo "/dev/$d $root/dev/$d none bind"
  done
  : >"$root/dev/console"
  echo "/dev/null $root/dev/console none bind"
} >"$state/tmp/second"
tab=$(printf '\t')
while IFS=$tab read -r host guest; do
  if [ -d "$host" ]; then [ -d "$root$guest" ] || mkdir -p "$root$guest"
  else [ -d "$root${guest%/*}" ] || mkdir -p "$root${guest%/*}"; [ -e "$root$guest" ] || : >"$root$guest"; fi
done <"$state/binds"
cat "$state/fstab" >>"$state/tmp/second"
mount -a -T "$state/tmp/second"

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
