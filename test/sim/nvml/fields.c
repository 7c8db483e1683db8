/* fields.c: the same readings by field id, as DCGM, nvidia-smi and exporters ask for them. */
#include "monitor.h"

#include <string.h>

struct ecc_field { uint8_t type, counter, location, total; };

/* 3 … 28: SBE and DBE in turn, volatile, then aggregate; the CBU has DBE only. */
static int ecc_field(unsigned id, struct ecc_field *f)
{
	static const uint8_t unit[] = { NVML_MEMORY_LOCATION_L1_CACHE, NVML_MEMORY_LOCATION_L2_CACHE, NVML_MEMORY_LOCATION_DEVICE_MEMORY,
		NVML_MEMORY_LOCATION_REGISTER_FILE, NVML_MEMORY_LOCATION_TEXTURE_MEMORY };
	if (id < NVML_FI_DEV_ECC_SBE_VOL_TOTAL || id > NVML_FI_DEV_ECC_DBE_AGG_CBU)
		return 0;
	if (id <= NVML_FI_DEV_ECC_DBE_AGG_TOTAL) {
		unsigned i = id - NVML_FI_DEV_ECC_SBE_VOL_TOTAL;
		*f = (struct ecc_field){ .type = i % 2, .counter = (uint8_t)(i / 2), .total = 1 };
		return 1;
	}
	unsigned aggregate = id >= NVML_FI_DEV_ECC_SBE_AGG_L1;
	unsigned i = id - (aggregate ? NVML_FI_DEV_ECC_SBE_AGG_L1 : NVML_FI_DEV_ECC_SBE_VOL_L1);
	*f = (struct ecc_field){ .type = i == 10 ? NVML_MEMORY_ERROR_TYPE_UNCORRECTED : i % 2, .counter = (uint8_t)aggregate,
		.location = i == 10 ? NVML_MEMORY_LOCATION_CBU : unit[i / 2] };
	return 1;
}

static nvmlReturn_t whole(nvmlFieldValue_t *v, unsigned long long value)
{
	v->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
	v->value.ullVal = value;
	return NVML_SUCCESS;
}

static nvmlReturn_t small(nvmlFieldValue_t *v, unsigned value)
{
	v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
	v->value.uiVal = value;
	return NVML_SUCCESS;
}

static nvmlReturn_t ecc(const struct sim_call *c, const struct ecc_field *f, nvmlFieldValue_t *v)
{
	unsigned long long count = 0, sram = 0;
	nvmlReturn_t r = sim_ecc_count(c, f->type, f->counter, f->total ? NVML_MEMORY_LOCATION_DRAM : f->location, &count);
	if (r == NVML_SUCCESS && f->total)
		r = sim_ecc_count(c, f->type, f->counter, c->m->arch < NVML_DEVICE_ARCH_TURING ? NVML_MEMORY_LOCATION_L2_CACHE :
			NVML_MEMORY_LOCATION_SRAM, &sram);
	return r == NVML_SUCCESS ? whole(v, count + sram) : r;
}

static nvmlReturn_t pages(const struct sim_call *c, nvmlFieldValue_t *v)
{
	if (!sim_has_retired_pages(c))
		return NVML_ERROR_NOT_SUPPORTED;
	switch (v->fieldId) {
	case NVML_FI_DEV_RETIRED_SBE:
		return whole(v, c->g->retired_single);
	case NVML_FI_DEV_RETIRED_DBE:
		return whole(v, c->g->retired_double);
	default:
		return whole(v, !!c->g->retired_pending);
	}
}

static nvmlReturn_t rows(const struct sim_call *c, nvmlFieldValue_t *v)
{
	if (!sim_has_remapped_rows(c))
		return NVML_ERROR_NOT_SUPPORTED;
	switch (v->fieldId) {
	case NVML_FI_DEV_REMAPPED_COR:
		return small(v, c->g->remap_correctable);
	case NVML_FI_DEV_REMAPPED_UNC:
		return small(v, c->g->remap_uncorrectable);
	case NVML_FI_DEV_REMAPPED_PENDING:
		return small(v, !!c->g->remap_pending);
	default:
		return small(v, !!c->g->remap_failure);
	}
}

/* scopeId 0 is the GPU; there is no Grace module here. */
static nvmlReturn_t power(const struct sim_call *c, nvmlFieldValue_t *v)
{
	if (v->scopeId)
		return NVML_ERROR_NOT_SUPPORTED;
	switch (v->fieldId) {
	case NVML_FI_DEV_POWER_AVERAGE: /* "supported on Ampere (except GA100) or newer" */
		if (c->m->arch < NVML_DEVICE_ARCH_AMPERE || (c->m->cc_major == 8 && c->m->cc_minor == 0))
			return NVML_ERROR_NOT_SUPPORTED;
		return small(v, (unsigned)sim_power(c->n, c->gpu));
	case NVML_FI_DEV_POWER_INSTANT:
		return small(v, (unsigned)sim_power(c->n, c->gpu));
	case NVML_FI_DEV_POWER_MIN_LIMIT:
		return small(v, (unsigned)c->g->power_limit_min);
	case NVML_FI_DEV_POWER_MAX_LIMIT:
		return small(v, (unsigned)c->g->power_limit_max);
	case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
		return small(v, (unsigned)c->g->power_limit_default);
	default:
		return small(v, (unsigned)c->g->power_limit);
	}
}

/* Three actions of the enumeration are enough: nothing, reset (rows to remap, reset required), drain (lost SRAM). */
static unsigned recovery(const struct sim_gpu *g)
{
	return g->sram_threshold ? NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET : g->remap_pending ? NVML_GPU_RECOVERY_ACTION_GPU_RESET :
		NVML_GPU_RECOVERY_ACTION_NONE;
}

/* Degrees to the limit, Ada and newer; H100 and H200 list -8, -2, 0, 0. */
static nvmlReturn_t margin(const struct sim_call *c, nvmlFieldValue_t *v, int degrees)
{
	v->valueType = NVML_VALUE_TYPE_SIGNED_INT;
	v->value.siVal = degrees;
	return c->m->arch < NVML_DEVICE_ARCH_ADA ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

static nvmlReturn_t field(const struct sim_call *c, nvmlFieldValue_t *v)
{
	struct ecc_field e;
	if (ecc_field(v->fieldId, &e))
		return ecc(c, &e, v);
	switch (v->fieldId) {
	case NVML_FI_DEV_ECC_CURRENT:
		return c->m->ecc ? small(v, c->g->ecc_current) : NVML_ERROR_NOT_SUPPORTED;
	case NVML_FI_DEV_ECC_PENDING:
		return c->m->ecc ? small(v, c->g->ecc_pending) : NVML_ERROR_NOT_SUPPORTED;
	case NVML_FI_DEV_RETIRED_SBE:
	case NVML_FI_DEV_RETIRED_DBE:
	case NVML_FI_DEV_RETIRED_PENDING:
		return pages(c, v);
	case NVML_FI_DEV_REMAPPED_COR:
	case NVML_FI_DEV_REMAPPED_UNC:
	case NVML_FI_DEV_REMAPPED_PENDING:
	case NVML_FI_DEV_REMAPPED_FAILURE:
		return rows(c, v);
	case NVML_FI_DEV_PERF_POLICY_POWER:
		return whole(v, c->g->violation_ns[0]);
	case NVML_FI_DEV_PERF_POLICY_THERMAL:
		return whole(v, c->g->violation_ns[1]);
	case NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT:
		return whole(v, c->g->violation_ns[2]);
	case NVML_FI_DEV_MEMORY_TEMP: /* only boards with HBM have the sensor */
		return c->m->bus_width >= 1024 ? small(v, sim_temperature(c->n, c->gpu) + 4) : NVML_ERROR_NOT_SUPPORTED;
	case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
	case NVML_FI_DEV_ENERGY:
		return whole(v, c->g->energy_uj / 1000);
	case NVML_FI_DEV_PCIE_REPLAY_COUNTER:
	case NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER:
		return small(v, 0);
	case NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT:
		return margin(c, v, -8);
	case NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT:
		return margin(c, v, -2);
	case NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT:
	case NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT:
		return margin(c, v, 0);
	case NVML_FI_DEV_RESET_STATUS:
		return small(v, recovery(c->g) == NVML_GPU_RECOVERY_ACTION_GPU_RESET);
	case NVML_FI_DEV_DRAIN_AND_RESET_STATUS: /* a T4 says N/A */
		return c->m->arch < NVML_DEVICE_ARCH_AMPERE ? NVML_ERROR_NOT_SUPPORTED :
			small(v, recovery(c->g) == NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET);
	case NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED:
		return small(v, c->m->units && !c->m->reset_required);
	case NVML_FI_DEV_POWER_AVERAGE:
	case NVML_FI_DEV_POWER_INSTANT:
	case NVML_FI_DEV_POWER_MIN_LIMIT:
	case NVML_FI_DEV_POWER_MAX_LIMIT:
	case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
	case NVML_FI_DEV_POWER_CURRENT_LIMIT:
	case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
		return power(c, v);
	case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
		return small(v, recovery(c->g));
	default:
		return v->fieldId && v->fieldId < NVML_FI_MAX ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
	}
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t *values)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_WRITE);
	if (r == NVML_SUCCESS && (!values || valuesCount <= 0))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		sim_settle(c.w);
	for (int i = 0; r == NVML_SUCCESS && i < valuesCount; i++) {
		nvmlFieldValue_t *v = &values[i];
		memset(&v->value, 0, sizeof v->value);
		v->timestamp = (long long)sim_now(c.n);
		v->latencyUsec = 0;
		v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		v->nvmlReturn = field(&c, v);
	}
	return sim_leave(&c, r);
}
