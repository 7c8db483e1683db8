/* device.c: what a device says of itself. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without what the driver reserves: HTCondor reads 40536 MB of an A100-40, 424 MiB below NVML's total, and 4861 MB of
 * its 1g.5gb, 3 MiB below (comments in condor_gpu_discovery.cpp). It is the idle use that nvml/memory.c has, of an older driver. */
enum { MIG_RESERVED_MIB_PER_SLICE = 3 };

uint64_t view_memory(const struct view *v)
{
	if (!v->profile)
		return v->g->memory_total - v->g->memory_reserved;
	return (uint64_t)(v->profile->mib - v->profile->slices * MIG_RESERVED_MIB_PER_SLICE) << 20;
}

/* As nvml/rules.c counts: a compute instance of the whole GPU instance has all of it, but the plain one-slice instance
 * has one slice's also where the GPU instance has more (1g of double memory on Hopper). */
uint32_t view_multiprocessors(const struct view *v)
{
	if (!v->profile)
		return v->m->sm;
	int whole = v->mig->size == v->profile->slices && !(v->mig->size == 1 && v->mig->profile == 0);
	return whole ? v->profile->sm : v->mig->size * v->m->profiles[0].sm;
}

/* With MIG on the mode belongs to the MIG device (nvml.h). */
uint32_t view_mode(const struct view *v) { return v->mig ? v->mig->compute_mode : v->g->compute_mode; }

/* MPS rounds down to whole pairs: of 188 multiprocessors 25, 50, 75 % are 46, 94, 140 (MPS documentation). */
uint32_t view_allowed(const struct view *v)
{
	const struct sim_partition *p;
	if (client_partition(v->n, v->d.gpu, &p) == 1)
		return p->sm; /* percentages are ignored */
	uint32_t sm = view_multiprocessors(v) * session.percentage / 10000;
	return session.percentage == 10000 ? view_multiprocessors(v) : sm < 2 ? 2 : sm / 2 * 2;
}

API CUresult cuDeviceGetCount(int *count)
{
	if (!session.pid)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = session.devices.count;
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	if (!session.pid)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (ordinal < 0 || ordinal >= session.devices.count)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

static void name_of(const struct view *v, char *to, size_t size)
{
	if (!v->profile)
		snprintf(to, size, "%s", v->g->name);
	else if (view_multiprocessors(v) == v->profile->sm)
		snprintf(to, size, "%s MIG %s", v->g->name, v->profile->name);
	else
		snprintf(to, size, "%s MIG %uc.%s", v->g->name, v->mig->size, v->profile->name);
}

API CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
	struct view v;
	if (!name || length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = view_open(&v, __func__, device, 0);
	if (r == CUDA_SUCCESS)
		name_of(&v, name, (size_t)length);
	view_close(&v, 0);
	return r;
}

static void raw_uuid(const char *text, CUuuid *uuid)
{
	int i = 0;
	for (text += 4; *text && i < 16; text++) { /* behind GPU- or MIG- */
		unsigned byte;
		if (*text != '-' && sscanf(text, "%2x", &byte) == 1) {
			uuid->bytes[i++] = (char)byte;
			text++;
		}
	}
}

static CUresult uuid_of(CUuuid *uuid, CUdevice device, const char *call, int mig)
{
	struct view v;
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = view_open(&v, call, device, 0);
	if (r == CUDA_SUCCESS)
		raw_uuid(mig && v.mig ? v.mig->uuid : v.g->uuid, uuid);
	view_close(&v, 0);
	return r;
}

/* The first version gives the GPU's, the second that of the MIG device (CUDA Driver API reference). */
API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) { return uuid_of(uuid, device, __func__, 0); }
API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) { return uuid_of(uuid, device, __func__, 1); }

API CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	struct view v;
	if (!id || length < 13)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = view_open(&v, __func__, device, 0);
	if (r == CUDA_SUCCESS)
		snprintf(id, (size_t)length, "%04X:%02X:%02X.0", v.g->pci_domain, v.g->pci_bus, v.g->pci_device);
	view_close(&v, 0);
	return r;
}

API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
	unsigned domain = 0, bus, slot;
	if (!device || !id || (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3 && sscanf(id, "%x:%x", &bus, &slot) != 2))
		return CUDA_ERROR_INVALID_VALUE;
	if (!session.pid)
		return CUDA_ERROR_NOT_INITIALIZED;
	for (int i = 0; i < session.devices.count; i++) {
		struct view v;
		CUresult r = view_open(&v, __func__, i, 0);
		int it = r == CUDA_SUCCESS && v.g->pci_domain == domain && v.g->pci_bus == bus && v.g->pci_device == slot;
		view_close(&v, 0);
		if (it)
			return *device = i, CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_DEVICE;
}

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	struct view v;
	if (!major || !minor)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = view_open(&v, __func__, device, 0);
	if (r == CUDA_SUCCESS) {
		*major = (int)v.m->cc_major;
		*minor = (int)v.m->cc_minor;
	}
	view_close(&v, 0);
	return r;
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	struct view v;
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = view_open(&v, __func__, device, 0);
	if (r == CUDA_SUCCESS)
		*bytes = view_memory(&v);
	view_close(&v, 0);
	return r;
}

static CUresult attribute(const struct view *v, int which, int *value)
{
	switch (which) {
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = (int)v->m->clock_sm * 1000; break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = (int)view_allowed(v); break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: *value = (int)view_mode(v); break;
	case CU_DEVICE_ATTRIBUTE_ECC_ENABLED: *value = v->g->ecc_current != 0; break;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = (int)v->g->pci_bus; break;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: *value = (int)v->g->pci_device; break;
	case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = (int)v->m->clock_memory * 1000; break;
	case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = (int)v->m->bus_width; break;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: *value = (int)v->g->pci_domain; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = (int)v->m->cc_major; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = (int)v->m->cc_minor; break;
	default: return CUDA_ERROR_NOT_SUPPORTED; /* not simulated: better than a number that nobody looked up */
	}
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetAttribute(int *value, int which, CUdevice device)
{
	struct view v;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = view_open(&v, __func__, device, 0);
	if (r == CUDA_SUCCESS)
		r = attribute(&v, which, value);
	view_close(&v, 0);
	return r;
}
