/* device.c: finding a GPU, and what it is. */
#include "sim.h"

#include <stdio.h>
#include <string.h>

static nvmlReturn_t count_devices(const char *call, unsigned int *count)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter_system(&c, call, SIM_ANY);
	if (r == NVML_SUCCESS && !count)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*count = c.n->gpu_count; /* a lost GPU is counted */
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) { return count_devices(__func__, count); }
nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return count_devices(__func__, count); }

/* A handle is given only of a GPU that answers: a lost one is GPU_IS_LOST, a hanging one hangs. */
static nvmlReturn_t by_index(const char *call, unsigned int index, nvmlDevice_t *device)
{
	struct sim_call c = { 0 };
	if (!sim_initialised())
		return NVML_ERROR_UNINITIALIZED;
	if (!device || index >= SIM_GPUS)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = sim_enter(&c, call, sim_handle(index), SIM_ANY);
	if (r == NVML_SUCCESS)
		*device = sim_handle(index);
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int i, nvmlDevice_t *d) { return by_index(__func__, i, d); }
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int i, nvmlDevice_t *d) { return by_index(__func__, i, d); }

/* matches says which device of GPU g is meant; 0: none. */
typedef int (*matches)(const struct sim_node *n, uint32_t g, const char *what, nvmlDevice_t *device);

static nvmlReturn_t search(const char *call, const char *what, nvmlDevice_t *device, matches match)
{
	struct sim_call c;
	nvmlDevice_t found = NULL;
	nvmlReturn_t r = sim_enter_system(&c, call, SIM_ANY);
	if (r == NVML_SUCCESS && (!what || !device))
		r = NVML_ERROR_INVALID_ARGUMENT;
	for (uint32_t g = 0; r == NVML_SUCCESS && g < c.n->gpu_count && !found; g++)
		match(c.n, g, what, &found);
	r = sim_leave(&c, r);
	if (r != NVML_SUCCESS)
		return r;
	if (!found)
		return NVML_ERROR_NOT_FOUND;
	r = sim_enter(&c, call, found, SIM_ANY); /* lost, hanging */
	if (r == NVML_SUCCESS)
		*device = found;
	return sim_leave(&c, r);
}

/* Drivers before 470 spelled MIG devices MIG-GPU-<uuid>/gi/ci; both spellings are read. */
static int match_uuid(const struct sim_node *n, uint32_t g, const char *what, nvmlDevice_t *device)
{
	const struct sim_gpu *gpu = &n->gpu[g];
	char old[96];
	if (strcmp(gpu->uuid, what) == 0)
		return (*device = sim_handle(g)) != NULL;
	for (int i = 0; i < SIM_GIS; i++)
		for (int k = 0; k < SIM_CIS; k++) {
			const struct sim_gi *gi = &gpu->gi[i];
			if (!gi->used || !gi->ci[k].used)
				continue;
			snprintf(old, sizeof old, "MIG-%s/%u/%u", gpu->uuid, gi->id, gi->ci[k].id);
			if (strcmp(gi->ci[k].uuid, what) == 0 || strcmp(old, what) == 0)
				return (*device = sim_mig_handle(g, gi->id, gi->ci[k].id)) != NULL;
		}
	return 0;
}

static int match_serial(const struct sim_node *n, uint32_t g, const char *what, nvmlDevice_t *device)
{
	return strcmp(n->gpu[g].serial, what) == 0 && (*device = sim_handle(g)) != NULL;
}

static int match_pci(const struct sim_node *n, uint32_t g, const char *what, nvmlDevice_t *device)
{
	unsigned a, b, d, f;
	const struct sim_gpu *gpu = &n->gpu[g];
	if (sscanf(what, "%x:%x:%x.%x", &a, &b, &d, &f) < 3) {
		a = 0;
		if (sscanf(what, "%x:%x", &b, &d) != 2)
			return 0;
	}
	return gpu->pci_domain == a && gpu->pci_bus == b && gpu->pci_device == d && (*device = sim_handle(g)) != NULL;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *d) { return search(__func__, uuid, d, match_uuid); }
nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *s, nvmlDevice_t *d) { return search(__func__, s, d, match_serial); }
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *p, nvmlDevice_t *d) { return search(__func__, p, d, match_pci); }
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *p, nvmlDevice_t *d) { return search(__func__, p, d, match_pci); }

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	struct sim_call c;
	char s[96];
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ANY);
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	snprintf(s, sizeof s, "%s", c.g->uuid);
	if (c.gi != SIM_NONE && c.n->branch < 470)
		snprintf(s, sizeof s, "MIG-%s/%u/%u", c.g->uuid, c.gi, c.ci);
	else if (c.gi != SIM_NONE)
		snprintf(s, sizeof s, "%s", sim_ci(sim_gi(c.g, c.gi), c.ci)->uuid);
	return sim_leave(&c, sim_string(uuid, length, s));
}

static void bus_id(char *room, size_t length, const char *form, const struct sim_gpu *g)
{
	snprintf(room, length, form, g->pci_domain, g->pci_bus, g->pci_device);
}

static nvmlReturn_t pci_info(const char *call, nvmlDevice_t device, nvmlPciInfo_t *pci, int whole)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !pci)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	pci->domain = c.g->pci_domain;
	pci->bus = c.g->pci_bus;
	pci->device = c.g->pci_device;
	pci->pciDeviceId = c.g->pci_device_id;
	pci->pciSubSystemId = c.g->pci_subsystem_id;
	bus_id(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", c.g);
	if (whole) /* the older structures end before it */
		bus_id(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", c.g);
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *pci) { return pci_info(__func__, d, pci, 1); }
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t d, nvmlPciInfo_t *pci) { return pci_info(__func__, d, pci, 0); }
nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t d, nvmlPciInfo_t *pci) { return pci_info(__func__, d, pci, 0); }

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !pci)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && pci->version != nvmlPciInfoExt_v1)
		r = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	pci->domain = c.g->pci_domain;
	pci->bus = c.g->pci_bus;
	pci->device = c.g->pci_device;
	pci->pciDeviceId = c.g->pci_device_id;
	pci->pciSubSystemId = c.g->pci_subsystem_id;
	pci->baseClass = 0x3; /* display controller, 3D */
	pci->subClass = 0x2;
	bus_id(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", c.g);
	return sim_leave(&c, r);
}
