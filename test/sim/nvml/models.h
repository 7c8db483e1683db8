/* models.h: what a GPU model is: the constants of one product, and its MIG profiles. */
#ifndef GPUSLOT_SIM_MODELS_H
#define GPUSLOT_SIM_MODELS_H

#include <stdint.h>

struct sim_node;
struct sim_gpu;

struct sim_profile {
	const char *name;       /* as the driver spells it behind "MIG ": 3g.20gb, 1g.5gb+me */
	uint32_t id;            /* the driver's profile id, unique within the model */
	uint32_t kind;          /* NVML_GPU_INSTANCE_PROFILE_… : only the argument of the profile query */
	uint32_t slices;        /* compute slices */
	uint32_t starts;        /* bit i: unit i is a legal start */
	uint32_t size;          /* units */
	uint32_t max;           /* instances of this profile on one GPU */
	uint32_t sm;            /* multiprocessors */
	uint32_t mib;           /* memory */
	uint32_t copy, dec, enc, jpeg, ofa; /* engines */
	uint32_t driver;        /* first driver branch that has it, 0: all */
};

struct sim_model {
	const char *key;        /* "A100-40": the name in node files and in sim_gpu.model */
	const char *name;       /* what nvmlDeviceGetName says */
	const char *source;     /* where the numbers come from */
	uint32_t arch, brand;   /* NVML_DEVICE_ARCH_…, NVML_BRAND_… */
	uint32_t cc_major, cc_minor;
	uint32_t pci_device_id, pci_subsystem_id;
	uint32_t sm, cores_per_sm;
	uint64_t memory_mib, reserved_mib;  /* total and driver-reserved, MIG off */
	const char *reserved_from;          /* where reserved_mib comes from: it differs with the driver */
	uint64_t reserved_580_mib;          /* from driver 580 on, run for real with 580.159.04 (docs/hardware); 0: as before */
	uint64_t reserved_590_mib;          /* from driver 590 on, by public captures of 590.48.01; 0: as before */
	uint32_t power_idle_w, power_limit_w, power_min_w, power_max_w;
	uint32_t clock_sm, clock_memory;    /* MHz, the highest */
	uint32_t bus_width;                 /* bits */
	uint32_t pcie_gen, ecc;             /* ecc: 1 where the memory has it */
	/* MIG; units 0: no MIG. */
	uint32_t units, slices, reset_required;
	uint32_t copy, dec, enc, jpeg, ofa; /* engine budget */
	const struct sim_profile *profiles;
	uint32_t profile_count;
};

extern const struct sim_model sim_models[];
extern const uint32_t sim_model_count;

const struct sim_model *sim_model(const char *key); /* NULL: unknown */
const struct sim_profile *sim_profile(const struct sim_model *m, uint32_t id);

/* sim_reserved_mib is what a driver of that branch keeps of a GPU with MIG off. */
uint64_t sim_reserved_mib(const struct sim_model *m, uint32_t branch);
/* sim_make_gpu fills a GPU of that model: MIG off, healthy, idle. index gives UUID, serial, PCI address and minor
 * number until the caller overwrites them; seed makes nodes differ. */
void sim_make_gpu(struct sim_gpu *g, const struct sim_model *m, uint32_t index, uint64_t seed);
/* sim_make_node gives a node without GPUs. driver is "550.163.01". */
void sim_make_node(struct sim_node *n, const char *driver);

#endif
