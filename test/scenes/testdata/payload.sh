#!/bin/sh
# A job that starts containers itself, as HEP payloads do.
inside='[ -S "$CUDA_MPS_PIPE_DIRECTORY/control" ] && echo "CONTROL there"; [ -d /opt/site ] && echo "SITE bound"; [ -d /opt/job ] && echo "JOB bound"; simjob alloc 6000; echo "LARGE $?"'
echo "BIND $APPTAINER_BIND"
apptainer -s exec -B /usr,/run/gpuslot-sim /srv/image /bin/sh -c "$inside"
apptainer -s exec --contain --cleanenv -B /usr,/run/gpuslot-sim /srv/image /bin/sh -c 'simjob alloc 6000; echo "CLEAN $?"' 2>&1 | tail -n 2
# Somebody clears the variables, while a neighbour keeps the MPS server there.
env -u APPTAINER_BIND -u SINGULARITY_BIND apptainer -s exec -B /usr,/run/gpuslot-sim /srv/image /bin/sh -c 'simjob alloc 100; echo "UNBOUND $?"'
