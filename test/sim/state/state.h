/* state.h: the state of the simulated node, one file of fixed layout that every process of the node maps.
 *
 * The simulated libnvidia-ml, libcuda, control daemon, servers, jobs and simgpu all see one world through it.
 * Path: $GPUSLOT_SIM_STATE, or SIM_STATE_PATH. There is no daemon: whoever comes first after a process died
 * takes its entries out.
 *
 * Every access stands between sim_read or sim_write and sim_end. A writer works on a spare copy, and one store
 * of the generation makes it the state: kill -9 at any point leaves the last whole state, and the kernel frees
 * the lock (flock belongs to the open file).
 *
 * Words: unit = one memory slice of the MIG grid; load = per cent of the multiprocessors that work; times are
 * microseconds of the simulated clock (sim_now). Append fields, and raise SIM_VERSION with each change. */
#ifndef GPUSLOT_SIM_STATE_H
#define GPUSLOT_SIM_STATE_H

#include <stdint.h>
#include <sys/types.h>

#define SIM_STATE_PATH "/run/gpuslot-sim/state"
#define SIM_MAGIC 0x6d69736c73757067ull /* "gpuslsim" */
#define SIM_VERSION 9u

enum { SIM_GPUS = 16, SIM_GIS = 8, SIM_CIS = 8, SIM_PROCESSES = 1024, SIM_ACCOUNTS = 256, SIM_EVENTS = 64,
	SIM_SAMPLES = 64, SIM_GONE = 32, SIM_FAULTS = 16, SIM_DAEMONS = 24, SIM_SERVERS = 32, SIM_CLIENTS = 128, SIM_PATH = 128,
	SIM_LIMITS = 64, SIM_CGROUP = 256, SIM_PARTITIONS = 64,
	SIM_KEEPERS = 64 };

#define SIM_NONE 0xFFFFFFFFu               /* no GPU instance, no compute instance: NVML's own sentinel */
#define SIM_HANG (-1)                      /* sim_fault.ret: the call does not come back */
#define SIM_UNSET 0xFFFFFFFFFFFFFFFFull    /* a number that was not set */

/* From this branch on MPS does what it did on an H200 with 580.159.04 (docs/hardware): older ones were not run on a GPU. */
enum { SIM_MEASURED = 580 };

/* Work done: load x time, in 1/1000 per cent x microseconds. sm: share of the multiprocessors that worked;
 * kernel: time in which any kernel ran (utilisation as NVML counts it); memory: time in which memory was busy. */
struct sim_busy { uint64_t sm, kernel, memory; };

struct sim_ci {
	uint32_t used, id;
	uint32_t profile;       /* NVML_COMPUTE_INSTANCE_PROFILE_*, which is also its id */
	uint32_t start, size;   /* slices inside the GPU instance */
	char uuid[48];          /* MIG-… */
	uint32_t compute_mode, pad; /* with MIG on the mode belongs to the MIG device */
};

struct sim_gi {
	uint32_t used, id;      /* id: fixed by the span, as the driver's (kmigmgr_ga100.c) */
	uint32_t profile;       /* the driver's profile id (19, 14, …), never NVML's enum */
	uint32_t start, size;   /* units */
	struct sim_ci ci[SIM_CIS];
	struct sim_busy busy;   /* since it was made; sm: times the slices that worked */
};

/* The load of a GPU from a moment on, until the next sample. */
struct sim_sample { uint64_t at; uint32_t gpu_load, memory_load, kernel_load, pad; };

/* corrected, uncorrected: of the device memory (DRAM); the SRAM counters stand beside them. */
struct sim_ecc { uint64_t corrected, uncorrected, sram_corrected, sram_parity, sram_secded; };

struct sim_gpu {
	char uuid[48], name[96], serial[32], model[32]; /* model: key of the model table (nvml/models.c) */
	uint32_t minor, pci_domain, pci_bus, pci_device, pci_device_id, pci_subsystem_id;
	uint64_t memory_total, memory_reserved;         /* bytes */
	uint32_t mig_current, mig_pending, compute_mode, persistence, accounting;
	uint32_t ecc_current, ecc_pending;
	/* What goes wrong. */
	uint32_t lost;               /* every call: GPU_IS_LOST */
	uint32_t hang;               /* every call waits until this is 0 again */
	uint32_t memory_unavailable; /* memory calls NOT_SUPPORTED, memory of processes not available */
	uint32_t last_xid;
	struct sim_ecc ecc_volatile, ecc_aggregate;
	uint32_t remap_correctable, remap_uncorrectable, remap_pending, remap_failure;
	uint32_t retired_single, retired_double, retired_pending;
	/* Power (mW) follows the load between idle and the limit; SIM_UNSET: not overridden by simgpu. */
	uint64_t power_idle, power_limit, power_limit_default, power_limit_min, power_limit_max, power_set;
	uint64_t temperature_set, clock_sm_set, clock_memory_set, throttle_reasons;
	uint64_t energy_uj, energy_at; /* the integral up to energy_at; it never falls */
	uint32_t samples_next, pad;    /* ring */
	struct sim_sample samples[SIM_SAMPLES];
	struct sim_gi gi[SIM_GIS];
	struct sim_busy busy;
	uint32_t compute_slices;   /* of the whole GPU; 0: 7 */
	uint32_t sram_threshold;   /* SRAM errors are past the threshold of the field diagnosis */
	uint64_t retired_at;       /* when the last page was retired */
	uint64_t temperature_m, temperature_at; /* 1/1000 degree at that time; 0: never asked */
	uint64_t violation_ns[3];  /* time held back by power, by temperature, by the board */
	uint32_t reset_blocked;    /* the driver cannot reset the GPU itself (a guest without reset, nvidia_drm) */
	uint32_t pad_reset;
	uint64_t unlisted;         /* bytes in use by no process that NVML lists */
};

enum sim_kind { SIM_COMPUTE = 1, SIM_MPS_CLIENT, SIM_MPS_SERVER, SIM_GRAPHICS };

/* One process on one device. A process on two devices has two entries. */
struct sim_process {
	uint32_t used;
	int32_t pid;
	uint64_t start;         /* field 22 of /proc/PID/stat: guards against reuse of the number */
	uint32_t uid, kind;
	uint32_t gpu, gi, ci;   /* SIM_NONE without MIG */
	int32_t server;         /* pid of the MPS server of a client, else 0 */
	uint64_t memory, memory_peak, limit; /* bytes; limit: SIM_UNSET without one */
	uint32_t load, memory_load, percentage, pad;
	uint64_t since;         /* when the context came */
	uint64_t busy_at;
	struct sim_busy busy;   /* booked on it up to busy_at: the work of an MPS client is booked on its server */
	char name[64];
};

/* The last utilisation sample of a process that is gone: the driver's buffer keeps it for a while. */
struct sim_gone { uint64_t at; uint32_t gpu; int32_t pid; uint32_t kernel_load, memory_load; };

/* Accounting: what is left of a process that ended, and of one that runs. */
struct sim_account {
	uint32_t used;
	int32_t pid;
	uint32_t gpu, running;
	uint64_t since, ended, memory_peak;
	struct sim_busy busy;      /* as in sim_process */
	uint64_t start;
};

struct sim_event {
	uint64_t sequence, at, type; /* type: nvmlEventType… bits; sequence from 1 */
	uint64_t data;               /* the XID */
	uint32_t gpu, gi, ci, pad;
};

/* A planned failure: calls of that name on that GPU answer ret, `left` times. With SIM_HANG they wait until the
 * fault is taken out. */
struct sim_fault {
	uint32_t used, gpu; /* SIM_NONE: any */
	int32_t ret;
	uint32_t left;      /* SIM_NONE: for ever */
	char call[64];      /* "nvmlDeviceGetMemoryInfo"; a final * stands for any rest */
};

/* MPS: one record for each control daemon, server and client that lives. */
struct sim_mps_daemon {
	uint32_t used;
	int32_t pid;
	uint64_t start;
	uint32_t uid, branch;      /* branch: 535, 550 or 555 */
	uint32_t multiuser, wedged;
	uint32_t percentage;       /* default active thread percentage x 100 */
	uint32_t static_partitioning; /* -S: every client has to name a partition */
	uint64_t limit[SIM_GPUS];  /* default pinned memory limit by its own device index, bytes */
	char pipe[SIM_PATH], log[SIM_PATH], visible[256];
};

struct sim_mps_server {
	uint32_t used;
	int32_t pid;
	uint64_t start;
	int32_t daemon;            /* pid */
	uint32_t uid, state;       /* state: enum sim_server_state */
	uint32_t percentage, fault_gpu;
	uint64_t limit[SIM_GPUS];
	uint64_t since;
	int32_t culprit;           /* pid of the client that the last fault came from */
	uint32_t pad;
};

/* A static partition of the multiprocessors of one GPU, of a daemon that was started with -S. */
struct sim_partition {
	uint32_t used, gpu;
	int32_t daemon;            /* pid */
	uint32_t first, chunks, sm;
	char id[40], name[64];     /* id: what stands behind the / of CUDA_MPS_SM_PARTITION; name: v3 */
};

enum sim_server_state { SIM_SERVER_INITIALIZING = 1, SIM_SERVER_ACTIVE, SIM_SERVER_FAULT };

struct sim_mps_client {
	uint32_t used;
	int32_t pid;
	uint64_t start;
	int32_t server;            /* pid */
	uint32_t uid, context;     /* context: client's context number, as terminate_client wants it */
	uint32_t percentage, priority;
	uint32_t gpu, gi, ci;
	uint32_t partition;        /* place in sim_node.partition, from 1; 0: none */
	int32_t error;             /* CUDA error that its next call meets (terminated, server fault), 0: none */
	uint64_t limit[SIM_GPUS];
	uint64_t since;
};

/* The memory limit of a cgroup on one GPU (R615). A cgroup that is gone takes its own limits along, but what they added
 * to its ancestors stays there. */
struct sim_limit {
	uint32_t used, gpu;
	uint64_t soft, hard; /* bytes; hard SIM_UNSET: none */
	uint64_t inode;      /* of the directory: a new one of that name has no limit */
	char path[SIM_CGROUP];
};

/* A process that has /dev/nvidia-uvm of another one open. When that ends, its memory stays in use until this one ends, and NVML
 * lists nobody for it (seen with driver 580 on an H200). */
struct sim_keeper {
	uint32_t used, gpu;        /* gpu: of the memory that it keeps */
	int32_t pid, of;
	uint64_t start, of_start;
	uint64_t memory;           /* bytes; 0 while the other one lives */
};

/* How the driver counts memory by cgroup: with the kernel's dmem controller, itself, or not at all. */
enum sim_accounting { SIM_DMEM, SIM_MISC, SIM_NO_ACCOUNTING };

struct sim_node {
	char driver[32];           /* "550.163.01" */
	uint32_t branch, cuda;     /* 550; 12040 */
	uint32_t gpu_count;
	uint32_t driver_missing;   /* nvmlInit: DRIVER_NOT_LOADED */
	int64_t clock_offset;      /* microseconds added to the real clock */
	uint64_t event_sequence;   /* of the newest event; 0: none yet */
	uint64_t random;           /* source of UUIDs */
	struct sim_gpu gpu[SIM_GPUS];
	struct sim_process process[SIM_PROCESSES];
	struct sim_account account[SIM_ACCOUNTS]; /* ring: the oldest ended one goes first */
	struct sim_event event[SIM_EVENTS];       /* event[sequence % SIM_EVENTS] */
	struct sim_fault fault[SIM_FAULTS];
	struct sim_mps_daemon mps_daemon[SIM_DAEMONS];
	struct sim_mps_server mps_server[SIM_SERVERS];
	struct sim_mps_client mps_client[SIM_CLIENTS];
	struct sim_gone gone[SIM_GONE]; /* ring */
	uint32_t gone_next;
	uint32_t mps_lists;        /* enum sim_mps_lists: in which lists MPS clients stand */
	uint32_t stray_samples;    /* GetProcessUtilization also gives pid 0 and utilisation 0xFFFFFFFF */
	uint32_t accounting;       /* enum sim_accounting */
	char cgroup_root[SIM_PATH]; /* where cgroup v2 is mounted; "": /sys/fs/cgroup */
	struct sim_limit limit[SIM_LIMITS];
	struct sim_partition partition[SIM_PARTITIONS];
	struct sim_keeper keeper[SIM_KEEPERS];
};

/* Seen in the field: both ("M+C" in nvidia-smi), or one alone. */
enum sim_mps_lists { SIM_LIST_BOTH, SIM_LIST_MPS, SIM_LIST_COMPUTE };

/* Access. A thread that holds the state must not ask for it again (also not through libcuda calling NVML).
 * sim_read and sim_write return NULL with errno when there is no state. Dead processes are out of what they show. */
const struct sim_node *sim_read(void);
struct sim_node *sim_write(void);
void sim_end(void);   /* after sim_write: commits */
void sim_abort(void); /* after sim_write: as if nothing had been written */

/* sim_create makes the node, or replaces the contents of one that is there. 0, or -1 with errno. */
int sim_create(const struct sim_node *node);
const char *sim_path(void);
void sim_close(void); /* unmaps; the next access opens again */

uint64_t sim_now(const struct sim_node *n);
uint64_t sim_start_time(pid_t pid); /* field 22 of /proc/PID/stat; 0: gone, or a zombie */

/* Processes. All need sim_write but sim_load. */
struct sim_process *sim_add_process(struct sim_node *n, pid_t pid, uint32_t kind, uint32_t gpu, uint32_t gi, uint32_t ci);
struct sim_process *sim_find_process(struct sim_node *n, pid_t pid, uint32_t gpu, uint32_t gi, uint32_t ci);
void sim_drop_process(struct sim_node *n, struct sim_process *p);
int sim_add_keeper(struct sim_node *n, pid_t pid, pid_t of); /* 0, or -1: the table is full, or one is gone */
/* sim_settle brings energy, busy time and samples up to now: call it BEFORE a load, power or clock changes. */
void sim_settle(struct sim_node *n);
/* sim_sample notes the new load of a GPU: call it AFTER a load changed. */
void sim_sample(struct sim_node *n, uint32_t gpu);

uint32_t sim_load(const struct sim_node *n, uint32_t gpu);        /* per cent of the multiprocessors, at most 100 */
uint32_t sim_memory_load(const struct sim_node *n, uint32_t gpu); /* per cent of the time, at most 100 */
uint32_t sim_kernel_load(const struct sim_node *n, uint32_t gpu); /* per cent of the time with any kernel, at most 100 */
uint32_t sim_process_kernel_load(const struct sim_process *p);    /* the same for one process */
uint32_t sim_temperature(const struct sim_node *n, uint32_t gpu); /* degrees, as of the last sim_settle */
uint64_t sim_power(const struct sim_node *n, uint32_t gpu);       /* mW */
uint64_t sim_memory_used(const struct sim_node *n, uint32_t gpu, uint32_t gi); /* bytes; gi SIM_NONE: all */

/* sim_event puts an event into the ring; type is nvmlEventType…. */
void sim_event(struct sim_node *n, uint32_t gpu, uint32_t gi, uint32_t ci, uint64_t type, uint64_t data);
/* sim_fault is the planned answer to a call, or 0; it counts down, hence sim_write. */
int sim_fault(struct sim_node *n, const char *call, uint32_t gpu);
int sim_fault_planned(const struct sim_node *n, const char *call, uint32_t gpu);

/* Memory by cgroup (cgroup.c). Paths are full ones: a directory below the root. */
const char *sim_cgroup_root(const struct sim_node *n);
int sim_cgroup_of(const struct sim_node *n, pid_t pid, char *path, size_t size); /* 0, or -1: gone, or in none */
const struct sim_limit *sim_cgroup_limit(const struct sim_node *n, uint32_t gpu, const char *path); /* NULL: none */
uint64_t sim_cgroup_used(const struct sim_node *n, uint32_t gpu, const char *path); /* bytes, with what is below it */
/* sim_cgroup_room is what the limits leave to a process; sim_cgroup_total what CUDA shows it as the GPU's memory.
 * SIM_UNSET: no limit. sim_cgroup_over: what its cgroup uses beyond its soft limit; 0: within it, or without one. */
uint64_t sim_cgroup_room(const struct sim_node *n, uint32_t gpu, pid_t pid);
uint64_t sim_cgroup_total(const struct sim_node *n, uint32_t gpu, pid_t pid);
uint64_t sim_cgroup_over(const struct sim_node *n, uint32_t gpu, pid_t pid);
int sim_cgroup_set(struct sim_node *n, uint32_t gpu, const char *path, uint64_t soft, uint64_t hard); /* -1: no room */

/* MPS (mps.c). A fatal fault of one client: the server is in FAULT, every client on that GPU gets the CUDA error.
 * sim_mps_recover makes those servers ACTIVE again whose affected clients are gone. Both need sim_write. */
void sim_mps_fault(struct sim_node *n, int32_t server, int32_t culprit, uint32_t gpu, int32_t error);
void sim_mps_recover(struct sim_node *n);
/* The daemon of a server; NULL: gone. */
const struct sim_mps_daemon *sim_mps_daemon_of(const struct sim_node *n, int32_t server);
/* terminate_client: the work of a client ends at once, so that the process can be killed without harm; every later call
 * of it is error 810. 0: that server has no such client. Needs sim_write. */
int sim_mps_terminate(struct sim_node *n, int32_t server, int32_t client);
/* A client is gone; with work in flight that is a fault for the others. */
void sim_mps_leave(struct sim_node *n, struct sim_mps_client *client);

#endif
