#!/bin/bash
# A pilot: a whole HTCondor of the job's own account, with the packaged snippet, which runs two payloads.
set -u
here=$PWD/inner
mkdir -p "$here"/{log,spool,execute,lock,run}
cat >inner.conf <<X
RELEASE_DIR = /usr
LOCAL_DIR = $here
LOG = $here/log
SPOOL = $here/spool
EXECUTE = $here/execute
LOCK = $here/lock
RUN = $here/run
LIB = /usr/lib/condor
LIBEXEC = /usr/libexec/condor
SBIN = /usr/sbin
BIN = /usr/bin
CONDOR_HOST = 127.0.0.1
COLLECTOR_HOST = 127.0.0.1:19618
NETWORK_INTERFACE = 127.0.0.1
FULL_HOSTNAME = pilot.test
USE_SHARED_PORT = false
use ROLE: CentralManager, Submit, Execute
use POLICY: ALWAYS_RUN_JOBS
SEC_CLIENT_AUTHENTICATION_METHODS = FS
SEC_DEFAULT_AUTHENTICATION_METHODS = FS
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_DAEMON = *
ALLOW_NEGOTIATOR = *
NEGOTIATOR_INTERVAL = 1
NEGOTIATOR_MIN_INTERVAL = 1
NEGOTIATOR_CYCLE_DELAY = 0
SCHEDD_INTERVAL = 2
SCHEDD_MIN_INTERVAL = 1
NUM_CPUS = 1
MEMORY = 200
RUNBENCHMARKS = false
ENABLE_KERNEL_TUNING = false
FILETRANSFER_PLUGINS = /usr/libexec/condor/curl_plugin
include : $PWD/gpuslot-pilot.conf
X
export CONDOR_CONFIG=$PWD/inner.conf
condor_master -f &
master=$!
for _ in $(seq 100); do condor_status -af Name 2>/dev/null | grep -q slot && break; sleep 0.3; done
echo "OFFERS $(condor_status -af GPUs VRAM AssignedGPUs)"
cat >payload.sh <<'X'
#!/bin/sh
env | grep -E '^(CUDA_|GPUSLOT_)' | sed 's/^/PAYLOAD /'
simjob alloc 1000; echo "SMALL $?"
simjob alloc 6000; echo "LARGE $?"
gpuslot here | sed 's/^/HERE /'
X
chmod +x payload.sh
submit() { # submit VRAM NAME
  printf '%s\n' executable=payload.sh "output=$2.out" "error=$2.err" "log=$2.log" request_cpus=1 request_memory=50 \
    request_disk=1M should_transfer_files=yes request_gpus=1 "request_vram=$1" queue | condor_submit -terse - >/dev/null
}
submit 9000 large
submit 2048 small
timeout 60 condor_wait small.log >/dev/null
cat small.out small.err
echo "LEFT $(condor_q -af RequestVRAM JobStatus)"
kill "$master"
wait "$master"
