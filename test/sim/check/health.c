/* health.c: checks of ECC counters, retired pages, remapped rows, and the same by field id. */
#include "check.h"

static void counters(void)
{
	need_root();
	node("550.163.01", "A100-40 V100S");
	struct sim_node *n = edit();
	n->gpu[0].ecc_volatile = n->gpu[0].ecc_aggregate = (struct sim_ecc){ .corrected = 5, .uncorrected = 2, .sram_secded = 1 };
	n->gpu[1].ecc_volatile = (struct sim_ecc){ .uncorrected = 3, .sram_parity = 4 };
	done(n);
	unsigned long long count;
	OK(nvmlDeviceGetTotalEccErrors(device(0), NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC, &count));
	EQUAL(5, count);
	OK(nvmlDeviceGetTotalEccErrors(device(0), NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, &count));
	EQUAL(3, count);
	OK(nvmlDeviceGetMemoryErrorCounter(device(0), NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, NVML_MEMORY_LOCATION_SRAM, &count));
	EQUAL(1, count);
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetMemoryErrorCounter(device(0), NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC,
		NVML_MEMORY_LOCATION_REGISTER_FILE, &count));
	OK(nvmlDeviceGetMemoryErrorCounter(device(1), NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, NVML_MEMORY_LOCATION_L2_CACHE, &count));
	EQUAL(4, count);
	OK(nvmlDeviceClearEccErrorCounts(device(0), NVML_VOLATILE_ECC));
	OK(nvmlDeviceGetTotalEccErrors(device(0), NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC, &count));
	EQUAL(0, count);
	OK(nvmlDeviceGetTotalEccErrors(device(0), NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_AGGREGATE_ECC, &count));
	EQUAL(5, count);
}

static void mode(void)
{
	need_root();
	node("550.163.01", "A100-40");
	nvmlEnableState_t now, next;
	unsigned long long count;
	OK(nvmlDeviceSetEccMode(device(0), NVML_FEATURE_DISABLED));
	OK(nvmlDeviceGetEccMode(device(0), &now, &next));
	CHECK(now == NVML_FEATURE_ENABLED && next == NVML_FEATURE_DISABLED); /* after the next reboot */
	struct sim_node *n = edit();
	n->gpu[0].ecc_current = 0;
	done(n);
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetTotalEccErrors(device(0), NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC, &count));
}

static void by_nobody(void)
{
	nvmlEccSramErrorStatus_t s = { .version = nvmlEccSramErrorStatus_v1 };
	GIVES(NVML_ERROR_NO_PERMISSION, nvmlDeviceGetSramEccErrorStatus(device(0), &s));
	GIVES(NVML_ERROR_NO_PERMISSION, nvmlDeviceClearEccErrorCounts(device(0), NVML_VOLATILE_ECC));
}

static void sram(void)
{
	need_root();
	node("550.163.01", "A100-40 T4");
	struct sim_node *n = edit();
	n->gpu[0].ecc_aggregate.sram_parity = 3;
	n->gpu[0].sram_threshold = 1;
	done(n);
	nvmlEccSramErrorStatus_t s = { .version = nvmlEccSramErrorStatus_v1 };
	OK(nvmlDeviceGetSramEccErrorStatus(device(0), &s));
	CHECK(s.aggregateUncParity == 3 && s.volatileUncParity == 0 && s.aggregateUncBucketL2 == 3 && s.bThresholdExceeded);
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetSramEccErrorStatus(device(1), &s));
	s.version = 1;
	GIVES(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, nvmlDeviceGetSramEccErrorStatus(device(0), &s));
	unprivileged(by_nobody);
}

static void pages(void)
{
	node("550.163.01", "V100S A100-40");
	struct sim_node *n = edit();
	n->gpu[0].retired_double = 2;
	n->gpu[0].retired_pending = 1;
	n->gpu[0].retired_at = sim_now(n);
	done(n);
	unsigned count = 0;
	unsigned long long address[2], at[2];
	nvmlEnableState_t pending;
	OK(nvmlDeviceGetRetiredPages_v2(device(0), NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS, &count, NULL, NULL));
	EQUAL(0, count);
	GIVES(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetRetiredPages_v2(device(0), NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR, &count, NULL, NULL));
	EQUAL(2, count);
	OK(nvmlDeviceGetRetiredPages_v2(device(0), NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR, &count, address, at));
	CHECK(address[0] != address[1] && at[0] > 1000000000);
	OK(nvmlDeviceGetRetiredPagesPendingStatus(device(0), &pending));
	EQUAL(NVML_FEATURE_ENABLED, pending);
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetRetiredPages_v2(device(1), NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR, &count, address, at));
}

static void rows(void)
{
	need_root();
	node("550.163.01", "A100-40 H100-80 V100S");
	struct sim_node *n = edit();
	n->gpu[0].remap_uncorrectable = n->gpu[0].remap_pending = 1;
	done(n);
	unsigned cor, unc, pending, failure, gi;
	OK(nvmlDeviceGetRemappedRows(device(0), &cor, &unc, &pending, &failure));
	CHECK(cor == 0 && unc == 1 && pending && !failure);
	nvmlRowRemapperHistogramValues_t h;
	OK(nvmlDeviceGetRowRemapperHistogram(device(0), &h));
	CHECK(h.max == 639 && h.high == 1 && h.none == 0);
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetRemappedRows(device(2), &cor, &unc, &pending, &failure));
	mig(1);
	OK(nvmlDeviceGetRemappedRows(device(1), &cor, &unc, &pending, &failure));
	nvmlDevice_t inside = instance(1, 19, 0, &gi);
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetRemappedRows(device(1), &cor, &unc, &pending, &failure));
	destroy(inside);
	OK(nvmlDeviceGetRemappedRows(device(1), &cor, &unc, &pending, &failure));
}

static void fields(void)
{
	node("550.163.01", "A100-40 V100S");
	worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 50);
	later(10000000);
	struct sim_node *n = edit();
	n->gpu[0].remap_correctable = 7;
	n->gpu[0].ecc_volatile.uncorrected = 2;
	done(n);
	enum { ENERGY, REMAPPED, DBE, PAGES, POWER, AVERAGE, FOREIGN, N };
	nvmlFieldValue_t v[N] = { [ENERGY].fieldId = NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, [REMAPPED].fieldId = NVML_FI_DEV_REMAPPED_COR,
		[DBE].fieldId = NVML_FI_DEV_ECC_DBE_VOL_DEV, [PAGES].fieldId = NVML_FI_DEV_RETIRED_DBE, [POWER].fieldId = NVML_FI_DEV_POWER_INSTANT,
		[AVERAGE].fieldId = NVML_FI_DEV_POWER_AVERAGE, [FOREIGN].fieldId = 100000 };
	unsigned long long mj;
	unsigned mw;
	OK(nvmlDeviceGetFieldValues(device(0), N, v));
	OK(nvmlDeviceGetTotalEnergyConsumption(device(0), &mj));
	OK(nvmlDeviceGetPowerUsage(device(0), &mw));
	EQUAL(NVML_SUCCESS, v[ENERGY].nvmlReturn);
	CHECK(v[ENERGY].value.ullVal > 0 && v[ENERGY].value.ullVal <= mj && v[ENERGY].valueType == NVML_VALUE_TYPE_UNSIGNED_LONG_LONG);
	EQUAL(7, v[REMAPPED].value.uiVal);
	EQUAL(2, v[DBE].value.ullVal);
	EQUAL(NVML_ERROR_NOT_SUPPORTED, v[PAGES].nvmlReturn);
	EQUAL(mw, v[POWER].value.uiVal);
	EQUAL(NVML_ERROR_NOT_SUPPORTED, v[AVERAGE].nvmlReturn); /* GA100 */
	EQUAL(NVML_ERROR_INVALID_ARGUMENT, v[FOREIGN].nvmlReturn);
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetFieldValues(device(0), 1, NULL));
}

const struct check health_checks[] = {
	{ "ecc-counters", "nvml.h nvmlDeviceGetMemoryErrorCounter: Turing+ DRAM and SRAM, before by unit; clearing", counters },
	{ "ecc-mode", "nvml.h nvmlDeviceSetEccMode: after the next reboot", mode },
	{ "ecc-sram", "nvml.h nvmlDeviceGetSramEccErrorStatus: Ampere and newer, root", sram },
	{ "health-retired-pages", "nvml.h nvmlDeviceGetRetiredPages_v2; before Ampere", pages },
	{ "health-remapped-rows", "nvml.h nvmlDeviceGetRemappedRows: not with MIG instances; 640 banks: k8s-test-infra PR 684", rows },
	{ "health-fields", "nvml.h nvmlDeviceGetFieldValues: a status for each value", fields },
	{ 0 },
};
