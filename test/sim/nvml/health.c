/* health.c: ECC counters, retired pages (before Ampere) and remapped rows (from Ampere on). */
#include "monitor.h"

int sim_has_retired_pages(const struct sim_call *c) { return c->m->ecc && c->m->arch < NVML_DEVICE_ARCH_AMPERE; }

/* "On MIG-enabled GPUs with active instances, querying the number of remapped rows is not supported" (nvml.h). */
int sim_has_remapped_rows(const struct sim_call *c)
{
	for (int i = 0; i < SIM_GIS; i++)
		if (c->g->gi[i].used)
			return 0;
	return c->m->ecc && c->m->arch >= NVML_DEVICE_ARCH_AMPERE;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && (!current || !pending))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && !c.m->ecc)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS) {
		*current = c.g->ecc_current ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
		*pending = c.g->ecc_pending ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	}
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *defaultMode)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !defaultMode)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && !c.m->ecc)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS)
		*defaultMode = NVML_FEATURE_ENABLED;
	return sim_leave(&c, r);
}

/* "This operation takes effect after the next reboot" (nvml.h). */
nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, nvmlEnableState_t ecc)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_ROOT | SIM_WRITE);
	if (r == NVML_SUCCESS && !c.m->ecc)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS && ecc != NVML_FEATURE_ENABLED && ecc != NVML_FEATURE_DISABLED)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		c.wg->ecc_pending = ecc == NVML_FEATURE_ENABLED;
	return sim_leave(&c, r);
}

/* Turing and newer count DRAM and SRAM; Volta counts by unit, and all SRAM errors here are those of its L2. */
nvmlReturn_t sim_ecc_count(const struct sim_call *c, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
	nvmlMemoryLocation_t location, unsigned long long *count)
{
	const struct sim_ecc *e = counter == NVML_VOLATILE_ECC ? &c->g->ecc_volatile : &c->g->ecc_aggregate;
	int corrected = type == NVML_MEMORY_ERROR_TYPE_CORRECTED, by_unit = c->m->arch < NVML_DEVICE_ARCH_TURING;
	unsigned long long sram = corrected ? e->sram_corrected : e->sram_parity + e->sram_secded;
	if (!c->m->ecc || !c->g->ecc_current)
		return NVML_ERROR_NOT_SUPPORTED;
	switch ((int)location) {
	case NVML_MEMORY_LOCATION_DRAM:
		*count = corrected ? e->corrected : e->uncorrected;
		return NVML_SUCCESS;
	case NVML_MEMORY_LOCATION_SRAM:
		*count = sram;
		return by_unit ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
	case NVML_MEMORY_LOCATION_L2_CACHE:
		*count = sram;
		return by_unit ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
	case NVML_MEMORY_LOCATION_CBU:
		*count = 0;
		return by_unit && !corrected ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
	case NVML_MEMORY_LOCATION_L1_CACHE:
	case NVML_MEMORY_LOCATION_REGISTER_FILE:
		*count = 0;
		return by_unit ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
	default:
		return NVML_ERROR_NOT_SUPPORTED;
	}
}

static int known(nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter)
{
	return (unsigned)type < NVML_MEMORY_ERROR_TYPE_COUNT && (unsigned)counter < NVML_ECC_COUNTER_TYPE_COUNT;
}

static nvmlReturn_t total(const struct sim_call *c, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, unsigned long long *sum)
{
	unsigned long long dram = 0, sram = 0;
	nvmlReturn_t r = sim_ecc_count(c, type, counter, NVML_MEMORY_LOCATION_DRAM, &dram);
	if (r == NVML_SUCCESS)
		r = sim_ecc_count(c, type, counter, c->m->arch < NVML_DEVICE_ARCH_TURING ? NVML_MEMORY_LOCATION_L2_CACHE :
			NVML_MEMORY_LOCATION_SRAM, &sram);
	*sum = dram + sram;
	return r;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType, nvmlEccCounterType_t counterType,
	unsigned long long *eccCounts)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && (!eccCounts || !known(errorType, counterType)))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && c.g->mig_current == NVML_DEVICE_MIG_ENABLE && counterType == NVML_VOLATILE_ECC)
		r = NVML_ERROR_NOT_SUPPORTED; /* as its parts below */
	if (r == NVML_SUCCESS)
		r = total(&c, errorType, counterType, eccCounts);
	return sim_leave(&c, r);
}

/* With MIG on, volatile counters of the whole GPU are not supported ("N/A" beside aggregate 0, nvidia-docker 1473), and
 * a MIG device has uncorrectable volatile SRAM errors only (nvml.h). The simulation does not tell them by instance:
 * each shows those of its GPU. */
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t errorType, nvmlEccCounterType_t counterType,
	nvmlMemoryLocation_t locationType, unsigned long long *count)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ANY);
	if (r == NVML_SUCCESS && (!count || !known(errorType, counterType) || (unsigned)locationType >= NVML_MEMORY_LOCATION_COUNT))
		r = NVML_ERROR_INVALID_ARGUMENT;
	int mig = r == NVML_SUCCESS && c.g->mig_current == NVML_DEVICE_MIG_ENABLE, of_instance = mig && c.gi != SIM_NONE;
	if (mig && !of_instance && counterType == NVML_VOLATILE_ECC)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (of_instance && (errorType != NVML_MEMORY_ERROR_TYPE_UNCORRECTED || counterType != NVML_VOLATILE_ECC ||
		locationType != NVML_MEMORY_LOCATION_SRAM))
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS)
		r = sim_ecc_count(&c, errorType, counterType, locationType, count);
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType, nvmlEccCounterType_t counterType,
	nvmlEccErrorCounts_t *eccCounts)
{
	struct sim_call c;
	unsigned long long dram = 0, l2 = 0;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && (!eccCounts || !known(errorType, counterType)))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		r = sim_ecc_count(&c, errorType, counterType, NVML_MEMORY_LOCATION_DRAM, &dram);
	if (r == NVML_SUCCESS && sim_ecc_count(&c, errorType, counterType, NVML_MEMORY_LOCATION_L2_CACHE, &l2) != NVML_SUCCESS)
		l2 = 0; /* "Reports zero for unsupported ECC error counters" (nvml.h) */
	if (r == NVML_SUCCESS)
		*eccCounts = (nvmlEccErrorCounts_t){ .l2Cache = l2, .deviceMemory = dram };
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceClearEccErrorCounts(nvmlDevice_t device, nvmlEccCounterType_t counterType)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_ROOT | SIM_WRITE);
	if (r == NVML_SUCCESS && (unsigned)counterType >= NVML_ECC_COUNTER_TYPE_COUNT)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && (!c.m->ecc || !c.g->ecc_current))
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS)
		*(counterType == NVML_VOLATILE_ECC ? &c.wg->ecc_volatile : &c.wg->ecc_aggregate) = (struct sim_ecc){ 0 };
	return sim_leave(&c, r);
}

/* First in the 535 library; root, says the header of 13.4. */
nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *status)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_ROOT);
	if (r == NVML_SUCCESS && !status)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && status->version != nvmlEccSramErrorStatus_v1)
		r = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (r == NVML_SUCCESS && (c.m->arch < NVML_DEVICE_ARCH_AMPERE || !c.m->ecc || !c.g->ecc_current))
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS) {
		const struct sim_ecc *v = &c.g->ecc_volatile, *a = &c.g->ecc_aggregate;
		*status = (nvmlEccSramErrorStatus_t){ .version = nvmlEccSramErrorStatus_v1, .aggregateUncParity = a->sram_parity,
			.aggregateUncSecDed = a->sram_secded, .aggregateCor = a->sram_corrected, .volatileUncParity = v->sram_parity,
			.volatileUncSecDed = v->sram_secded, .volatileCor = v->sram_corrected,
			.aggregateUncBucketL2 = a->sram_parity + a->sram_secded, .bThresholdExceeded = c.g->sram_threshold };
	}
	return sim_leave(&c, r);
}

static nvmlReturn_t retired(const char *call, nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count,
	unsigned long long *addresses, unsigned long long *times)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && (unsigned)cause >= NVML_PAGE_RETIREMENT_CAUSE_COUNT)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && !sim_has_retired_pages(&c))
		r = NVML_ERROR_NOT_SUPPORTED;
	int twice = cause == NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR;
	if (r == NVML_SUCCESS)
		r = sim_list(addresses, count, twice ? c.g->retired_double : c.g->retired_single);
	for (unsigned i = 0; r == NVML_SUCCESS && i < *count; i++) {
		addresses[i] = 0x10000ull * (2 * i + (unsigned)twice + 1) + c.gpu; /* any address, each once */
		if (times)
			times[i] = c.g->retired_at / 1000000;
	}
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *pageCount,
	unsigned long long *addresses)
{
	return retired(__func__, device, cause, pageCount, addresses, NULL);
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *pageCount,
	unsigned long long *addresses, unsigned long long *timestamps)
{
	return retired(__func__, device, cause, pageCount, addresses, timestamps);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *isPending)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !isPending)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && !sim_has_retired_pages(&c))
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS)
		*isPending = c.g->retired_pending ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetRemappedRows_v2(nvmlDevice_t device, nvmlRemappedRowsInfo_v2_t *info)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !info)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && !sim_has_remapped_rows(&c))
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS)
		*info = (nvmlRemappedRowsInfo_v2_t){ .corrActiveRemaps = c.g->remap_correctable, .uncActiveRemaps = c.g->remap_uncorrectable,
			.bPending = !!c.g->remap_pending, .bFailureOccurred = !!c.g->remap_failure };
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrRows, unsigned int *uncRows, unsigned int *isPending,
	unsigned int *failureOccurred)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && (!corrRows || !uncRows || !isPending || !failureOccurred))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && !sim_has_remapped_rows(&c))
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS) {
		*corrRows = c.g->remap_correctable;
		*uncRows = c.g->remap_uncorrectable;
		*isPending = !!c.g->remap_pending;
		*failureOccurred = !!c.g->remap_failure;
	}
	return sim_leave(&c, r);
}

/* Listings: 640 on A100-40 and A100-80, 2560 on H100-80, 3072 on H200, 192 on boards with GDDR: so many for a stack of
 * HBM. A30, H100-94 and Blackwell are inferred from their stacks. */
static unsigned banks_of(const struct sim_call *c)
{
	uint64_t gib = c->g->memory_total >> 30;
	if (c->m->bus_width < 1024)
		return 192;
	if (c->m->arch == NVML_DEVICE_ARCH_AMPERE)
		return gib < 30 ? 384 : 640;
	return c->m->arch == NVML_DEVICE_ARCH_HOPPER ? (gib < 85 ? 2560 : 3072) : 4096;
}

/* One remapping: 639 banks at the most, one high (A100 listings). Here every remapping hits another bank, and after a
 * failure one bank has no spare row left. */
nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *values)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !values)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && !sim_has_remapped_rows(&c))
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS) {
		unsigned banks = banks_of(&c), none = c.g->remap_failure ? 1 : 0;
		unsigned used = c.g->remap_correctable + c.g->remap_uncorrectable;
		used = used > banks - none ? banks - none : used;
		*values = (nvmlRowRemapperHistogramValues_t){ .max = banks - none - used, .high = used, .none = none };
	}
	return sim_leave(&c, r);
}
