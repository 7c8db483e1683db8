#!/bin/sh
# Before the files go. dpkg says "remove", rpm 0; anything else is no removal.
# Everything that gpuslot did to the node is undone here. With jobs on shared GPUs
# that is refused, because their MPS servers would end: drain the node, or
#   GPUSLOT_FORCE_REMOVE=1 apt-get remove gpuslot
set -eu
case ${1-} in
  remove | 0) ;;
  *) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
force=${GPUSLOT_FORCE_REMOVE:+--force}
active=$(systemctl is-active gpuslotd.service || :)
# From here on the hook sends back every job that comes for a GPU.
systemctl stop gpuslotd.socket gpuslotd.service
if ! gpuslotd --release --log-level warn $force && [ -z "$force" ]; then
  if [ "$active" = active ]; then systemctl start gpuslotd.socket gpuslotd.service; fi
  echo "gpuslot: not removed. Drain the node (condor_drain) and remove it then. GPUSLOT_FORCE_REMOVE=1 removes it now and ends the jobs on shared GPUs" >&2
  exit 1
fi
systemctl stop 'gpuslot-mps@*.service' 'gpuslot-mps-dir@*.service'
systemctl -q disable gpuslotd.service gpuslotd.socket
