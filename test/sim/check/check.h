/* check.h: the checks of the monitoring calls: one program, a check by name. It is a client of the simulated NVML as
 * any other, and turns the state by its own hand in between. check NAME ends 0, 1 (failed) or 77 (needs root). */
#ifndef GPUSLOT_SIM_CHECK_H
#define GPUSLOT_SIM_CHECK_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <stddef.h>

#include "../nvml/models.h"
#include "../state/state.h"

struct check {
	const char *name;
	const char *evidence; /* where the behaviour is known from */
	void (*run)(void);
};

/* One list for each file, ended by a check without name. */
extern const struct check memory_checks[], process_checks[], utilisation_checks[], accounting_checks[], energy_checks[],
	health_checks[], gpm_checks[], event_checks[], fault_checks[];

#define CHECK(what) expect((what), #what, __FILE__, __LINE__)
#define GIVES(code, call) gives((code), (call), #call, __FILE__, __LINE__)
#define OK(call) GIVES(NVML_SUCCESS, call)
#define EQUAL(want, got) equal((unsigned long long)(want), (unsigned long long)(got), #got, __FILE__, __LINE__)

void expect(int holds, const char *text, const char *file, int line);
void gives(nvmlReturn_t want, nvmlReturn_t got, const char *text, const char *file, int line);
void equal(unsigned long long want, unsigned long long got, const char *text, const char *file, int line);

/* node makes a node of these models (one string, words apart) and initialises NVML; device is its GPU's handle. */
void node(const char *driver, const char *models);
nvmlDevice_t device(unsigned index);
void need_root(void);
void unprivileged(void (*body)(void)); /* body runs as nobody */

/* worker is a real process that holds a device; end kills it and waits. */
pid_t worker(uint32_t kind, uint32_t gpu, uint32_t gi, uint32_t ci, unsigned mib, unsigned load);
void end(pid_t pid);

/* edit opens the state for changes with all time before booked, done closes it. */
struct sim_node *edit(void);
struct sim_process *of(struct sim_node *n, pid_t pid);
void done(struct sim_node *n);
void later(int64_t us); /* the clock of the node jumps */

/* mig switches MIG on; instance makes a GPU instance with one compute instance and gives its device. */
void mig(unsigned gpu);
nvmlDevice_t instance(unsigned gpu, unsigned profile, unsigned start, unsigned *gi);
void destroy(nvmlDevice_t mig_device);

#endif
