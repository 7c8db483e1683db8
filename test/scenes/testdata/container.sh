#!/bin/sh
# A job in a container: what it sees of its part, and whether the limit holds inside.
env | grep -E '^(CUDA_|GPUSLOT_|MINE)' | sed 's/^/ENV /'
[ -S "$CUDA_MPS_PIPE_DIRECTORY/control" ] && echo "CONTROL there"
grep -c " /dev/shm tmpfs\| /dev/shm .* tmpfs" /proc/self/mountinfo | sed 's/^/SHM /'
[ -d /opt/site ] && echo "SITE bound"
simjob alloc 1000; echo "SMALL $?"
simjob alloc 6000; echo "LARGE $?"
/usr/libexec/gpuslot/gpuslot-condor here; echo "HERE $?"
