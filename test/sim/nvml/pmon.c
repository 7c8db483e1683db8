/* pmon.c: what nvidia-smi pmon asks through the table of export.c. Found by filling its memory with numbers: it asks for
 * up to 100 samples, each with one process for every engine, and shows of every process the mean over all of them. */
#include "monitor.h"

#include <string.h>

enum { SM, MEMORY, OLD_ENGINES = 4, ENGINES = 6 }; /* encoder, decoder; since 550 JPEG and OFA */

/* A sample is a time (8 bytes) and then one of these for each engine. */
struct engine {
	unsigned long long utilisation;
	unsigned int pid;
	char unknown[68];
};

/* Not with MIG: "Not supported on the device(s)". */
nvmlReturn_t sim_smi_samples_supported(nvmlDevice_t device, unsigned int *supported)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, "nvmlDeviceGetProcessUtilization", device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !supported)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*supported = c.g->mig_current != NVML_DEVICE_MIG_ENABLE;
	return sim_leave(&c, r);
}

/* One sample for each process, times their number: the mean is right again. 60 of the long ones fit into the room of
 * an nvidia-smi 535, whose samples are shorter. Its question "since" is not answered: our samples are a second old. */
nvmlReturn_t sim_smi_samples(nvmlDevice_t device, unsigned long long seen, unsigned int *type, unsigned int *count, void *out)
{
	struct sim_call c;
	enum { MOST = 60 };
	nvmlProcessUtilizationInfo_v1_t found[MOST];
	nvmlReturn_t r = sim_enter(&c, "nvmlDeviceGetProcessUtilization", device, SIM_WHOLE | SIM_NOT_MIG);
	(void)seen;
	if (r == NVML_SUCCESS && (!type || !count || !out))
		r = NVML_ERROR_INVALID_ARGUMENT;
	unsigned have = r == NVML_SUCCESS ? sim_process_samples(&c, 0, found, *count < MOST ? *count : MOST) : 0;
	if (r == NVML_SUCCESS && !have)
		r = NVML_ERROR_NOT_FOUND;
	for (unsigned i = 0; r == NVML_SUCCESS && i < have; i++) {
		size_t engines = c.n->branch < 550 ? OLD_ENGINES : ENGINES, size = 8 + engines * sizeof(struct engine);
		struct engine e[ENGINES] = { [SM] = { (unsigned long long)found[i].smUtil * have, found[i].pid, "" },
			[MEMORY] = { (unsigned long long)found[i].memUtil * have, found[i].memUtil ? found[i].pid : 0, "" } };
		memcpy((char *)out + i * size, &found[i].timeStamp, 8);
		memcpy((char *)out + i * size + 8, e, engines * sizeof *e);
	}
	if (r == NVML_SUCCESS) {
		*type = NVML_VALUE_TYPE_UNSIGNED_INT;
		*count = have;
	}
	return sim_leave(&c, r);
}
