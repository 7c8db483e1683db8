/* monitor.h: what the monitoring files ask of each other. */
#ifndef GPUSLOT_SIM_MONITOR_H
#define GPUSLOT_SIM_MONITOR_H

#include "sim.h"

#include <stddef.h>

/* clocks.c: MHz at that kernel load (per cent). */
unsigned sim_clock(const struct sim_call *c, nvmlClockType_t type, uint32_t load);

/* utilisation.c: one sample for each process that worked after a time. */
unsigned sim_process_samples(const struct sim_call *c, uint64_t seen, nvmlProcessUtilizationInfo_v1_t *out, unsigned room);

/* pmon.c: two places of nvidia-smi's table. */
nvmlReturn_t sim_smi_samples_supported(nvmlDevice_t device, unsigned int *supported);
nvmlReturn_t sim_smi_samples(nvmlDevice_t device, unsigned long long seen, unsigned int *type, unsigned int *count, void *out);

/* health.c: one ECC counter. NOT_SUPPORTED: this GPU does not count there. */
nvmlReturn_t sim_ecc_count(const struct sim_call *c, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
	nvmlMemoryLocation_t location, unsigned long long *count);
int sim_has_retired_pages(const struct sim_call *c);
int sim_has_remapped_rows(const struct sim_call *c);

#endif
