#!/bin/sh
# After the files are in place. dpkg says "configure OLD-VERSION", rpm 1 at an
# installation and more at an upgrade.
set -eu
case ${1-} in
  configure) [ -n "${2-}" ] && upgrade=yes || upgrade= ;;
  1) upgrade= ;;
  [2-9]*) upgrade=yes ;;
  *) exit 0 ;; # dpkg's abort-…: nothing was changed
esac
systemd-sysusers gpuslot.conf
systemd-tmpfiles --create gpuslot.conf
if command -v semodule >/dev/null && [ -e /usr/share/selinux/packages/gpuslot.cil ]; then
  semodule -i /usr/share/selinux/packages/gpuslot.cil || echo "gpuslot: the SELinux contexts of /run/gpuslot were not loaded; look for denials with: gpuslot doctor" >&2
  restorecon -R /run/gpuslot 2>/dev/null || :
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if [ -z "$upgrade" ]; then
  systemctl preset gpuslotd.service gpuslotd.socket
  exit 0
fi
# Control daemons and jobs continue. A job that starts during the restart waits at the socket.
systemctl try-restart gpuslotd.service ||
  echo "gpuslot: gpuslotd does not start, and its GPUs close within a minute; look at: journalctl -u gpuslotd" >&2
