#!/bin/sh
# After the files are gone. dpkg says "remove", then perhaps "purge"; rpm 0.
set -eu
case ${1-} in
  remove | 0)
    rm -rf /run/gpuslot
    if command -v semodule >/dev/null && semodule -l 2>/dev/null | grep -q '^gpuslot\b'; then semodule -r gpuslot || :; fi
    [ -d /run/systemd/system ] || exit 0
    systemctl daemon-reload
    systemctl stop systemd-journald@gpuslot.service systemd-journald@gpuslot.socket systemd-journald-varlink@gpuslot.socket 2>/dev/null || :
    # The running startd still has our GPU ids, slots and hook. It reads its
    # configuration again when its present jobs have ended.
    # A startd that is starting accepts no command for some seconds.
    if systemctl -q is-active condor.service; then
      for wait in 2 4 8 end; do
        said=$(condor_restart -peaceful -startd 2>&1) && break
        if [ $wait = end ]; then
          echo "gpuslot: $said" >&2
          echo "gpuslot: the startd still offers the GPUs as gpuslot did; run: condor_restart -peaceful -startd" >&2
        else
          sleep $wait
        fi
      done
    fi
    ;;
  purge)
    rm -rf /var/lib/gpuslot /run/gpuslot
    rm -rf /var/log/journal/*.gpuslot /run/log/journal/*.gpuslot
    if command -v userdel >/dev/null && getent passwd gpuslot-verify >/dev/null; then userdel gpuslot-verify; fi
    ;;
esac
