#!/bin/sh
# A site's hook, then gpuslot's: gpuslot decides on the job as the site's hook left it.
ad=$(cat)
site=$(printf '%s\n' "$ad" | /opt/site/hook) || exit
case $site in *HookStatusCode*) printf '%s\n' "$site"; exit 0 ;; esac
case $site in *"Environment = "*) ad=$(printf '%s\n' "$ad" | grep -v '^Environment = ') ;; esac
printf '%s\n' "$site" | grep -v '^Environment = '
printf '%s\n%s\n' "$ad" "$(printf '%s\n' "$site" | grep '^Environment = ')" | /usr/libexec/gpuslot/prepare "$@"
