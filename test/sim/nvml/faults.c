/* faults.c: calls that do not come back, and calls that fail as planned. A lost GPU is core.c's: every call says
 * GPU_IS_LOST, old handles and nvmlDeviceGetHandleByIndex too (N10 of the facts). */
#include "sim.h"

#include <time.h>

/* The caller is held, not the lock: other clients go on with other GPUs. A real one sleeps in the kernel and cannot
 * even be killed; this one can, so that tests clean up. */
void sim_hold(const char *call, uint32_t gpu)
{
	for (;;) {
		const struct sim_node *n = sim_read();
		if (!n)
			return;
		int hang = (gpu < n->gpu_count && n->gpu[gpu].hang) || sim_fault_planned(n, call, gpu) == SIM_HANG;
		sim_end();
		if (!hang)
			return;
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	}
}

nvmlReturn_t sim_planned(const char *call, uint32_t gpu)
{
	const struct sim_node *n = sim_read();
	int planned = n ? sim_fault_planned(n, call, gpu) : 0;
	if (n)
		sim_end();
	if (!planned || planned == SIM_HANG)
		return NVML_SUCCESS;
	struct sim_node *w = sim_write(); /* only now, to count down: most calls have nothing planned */
	if (!w)
		return NVML_SUCCESS;
	int ret = sim_fault(w, call, gpu);
	sim_end();
	return ret == SIM_HANG ? NVML_SUCCESS : (nvmlReturn_t)ret;
}
