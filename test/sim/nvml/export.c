/* export.c: the undocumented table that stock nvidia-smi asks for before it believes a library (else: "Mismatch in
 * versions"). Seen of nvidia-smi 535, 550 and 555: one GUID, 256 places, place 0 is the size in bytes. The places below
 * are those that it needs; of the others it prints N/A. Optional: nothing but nvidia-smi uses it. */
#include "monitor.h"

enum { PLACES = 256, TEXT = 26, SAMPLES_SUPPORTED = 72, HANDLE_BY_INDEX = 81, SAMPLES = 145, COMPUTE = 213, MPS, GRAPHICS };

static nvmlReturn_t text(void) { return NVML_SUCCESS; } /* called for each line it prints */
static nvmlReturn_t other(void) { return NVML_ERROR_NOT_SUPPORTED; }

/* Its process entries, found by filling its memory with numbers: 4128 bytes, the name at 32. */
struct entry {
	unsigned int pid;
	unsigned long long memory;
	unsigned int gi, ci;
	unsigned long long protected_memory;
	char name[4096];
};

typedef nvmlReturn_t (*lister)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_t *);

static nvmlReturn_t list(lister get, nvmlDevice_t device, unsigned int *count, struct entry *out)
{
	nvmlProcessInfo_t found[SIM_PROCESSES];
	unsigned int n = SIM_PROCESSES;
	nvmlReturn_t r = get(device, &n, found);
	if (r == NVML_SUCCESS)
		r = sim_list(out, count, n);
	for (unsigned int i = 0; r == NVML_SUCCESS && i < n; i++) {
		out[i] = (struct entry){ .pid = found[i].pid, .memory = found[i].usedGpuMemory, .gi = found[i].gpuInstanceId,
			.ci = found[i].computeInstanceId, .protected_memory = NVML_VALUE_NOT_AVAILABLE };
		if (nvmlSystemGetProcessName(found[i].pid, out[i].name, sizeof out[i].name) != NVML_SUCCESS)
			out[i].name[0] = 0;
	}
	return r;
}

#define LIST(name, get) static nvmlReturn_t name(nvmlDevice_t d, unsigned int *count, struct entry *out) { return list(get, d, count, out); }
LIST(compute, nvmlDeviceGetComputeRunningProcesses_v3)
LIST(graphics, nvmlDeviceGetGraphicsRunningProcesses_v3)
LIST(mps, nvmlDeviceGetMPSComputeRunningProcesses_v3)

nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *guid);
nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *guid)
{
	static const void *places[PLACES];
	if (!table || !guid)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 1; i < PLACES; i++)
		places[i] = (const void *)other;
	places[0] = (const void *)sizeof places;
	places[TEXT] = (const void *)text;
	places[HANDLE_BY_INDEX] = (const void *)nvmlDeviceGetHandleByIndex_v2;
	places[SAMPLES_SUPPORTED] = (const void *)sim_smi_samples_supported;
	places[SAMPLES] = (const void *)sim_smi_samples;
	places[COMPUTE] = (const void *)compute;
	places[GRAPHICS] = (const void *)graphics;
	places[MPS] = (const void *)mps;
	*table = places;
	return NVML_SUCCESS;
}
