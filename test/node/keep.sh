#!/bin/sh
# keep.sh STATE IMAGE CGROUP holds what survives a reboot of the node, the layer over the image, in a mount
# namespace of its own, and boots until PID 1 ends otherwise than by a reboot.
set -u
state=$1 cgroup=$3
mount --make-rprivate / || exit
mount -t tmpfs -o mode=755 tmpfs "$state/tmp" || exit
mkdir "$state/tmp/upper" "$state/tmp/work" "$state/tmp/root" || exit
while :; do
  # The death of this shell kills unshare, and that of unshare PID 1.
  setpriv --pdeathsig KILL unshare --pid --mount --net --uts --ipc --fork --kill-child sh "$state/boot.sh" "$@"
  # reboot(2): in a PID namespace the kernel ends its init by SIGHUP.
  [ $? -eq 129 ] || exit
  find "$cgroup" -mindepth 1 -depth -type d -exec rmdir {} \; 2>/dev/null
  for c in $(cat "$cgroup/cgroup.subtree_control"); do echo "-$c" >"$cgroup/cgroup.subtree_control"; done
  mkdir -p "$cgroup/exec"
done
