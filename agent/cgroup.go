package agent

// This file and its neighbours cgroup_*.go hold the VRAM of a job on a shared
// GPU to its budget by the driver itself (R615 on): a limit on the cgroup that
// the job's processes are in, set as soon as the first of them is seen, cleared
// before HTCondor removes the cgroup, and repaired where it went first.
