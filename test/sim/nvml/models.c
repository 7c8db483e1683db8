/* models.c: the models. MIG rows are what NVML of the real chip answers where a public listing exists; what is
 * inferred is said in the source of the model. Other constants: NVIDIA's data sheets and public nvidia-smi -q output. */
#include "sim.h"

#include <string.h>

#define ONES 0x7fu /* {0..6} */
#define ARCH(a) NVML_DEVICE_ARCH_##a
#define BRAND(b) NVML_BRAND_##b

/* name, id, kind, slices, starts, size, max, sm, MiB, engines: copy, dec, enc, jpeg, ofa; first driver branch */
static const struct sim_profile a30[] = {
	{ "1g.6gb", 14, 0, 1, 0xfu, 1, 4, 14, 5952, 1, 1, 0, 0, 0, 0 },
	{ "1g.6gb+me", 21, 7, 1, 0xfu, 1, 1, 14, 5952, 1, 1, 0, 1, 1, 470 },
	{ "2g.12gb", 5, 1, 2, 0x5u, 2, 2, 28, 11968, 2, 2, 0, 0, 0, 0 },
	{ "2g.12gb+me", 6, 8, 2, 0x5u, 2, 1, 28, 11968, 2, 2, 0, 1, 1, 525 },
	{ "4g.24gb", 0, 3, 4, 0x1u, 4, 1, 56, 24000, 4, 4, 0, 1, 1, 0 },
};

static const struct sim_profile a100_40[] = {
	{ "1g.5gb", 19, 0, 1, ONES, 1, 7, 14, 4864, 1, 0, 0, 0, 0, 0 },
	{ "1g.5gb+me", 20, 7, 1, ONES, 1, 1, 14, 4864, 1, 1, 0, 1, 1, 470 },
	{ "1g.10gb", 15, 9, 1, 0x55u, 2, 4, 14, 9856, 1, 1, 0, 0, 0, 525 },
	{ "2g.10gb", 14, 1, 2, 0x15u, 2, 3, 28, 9856, 2, 1, 0, 0, 0, 0 },
	{ "3g.20gb", 9, 2, 3, 0x11u, 4, 2, 42, 19968, 3, 2, 0, 0, 0, 0 },
	{ "4g.20gb", 5, 3, 4, 0x1u, 4, 1, 56, 19968, 4, 2, 0, 0, 0, 0 },
	{ "7g.40gb", 0, 4, 7, 0x1u, 8, 1, 98, 40192, 7, 5, 0, 1, 1, 0 },
};

static const struct sim_profile a100_80[] = {
	{ "1g.10gb", 19, 0, 1, ONES, 1, 7, 14, 9728, 1, 0, 0, 0, 0, 0 },
	{ "1g.10gb+me", 20, 7, 1, ONES, 1, 1, 14, 9728, 1, 1, 0, 1, 1, 470 },
	{ "1g.20gb", 15, 9, 1, 0x55u, 2, 4, 14, 19968, 1, 1, 0, 0, 0, 525 },
	{ "2g.20gb", 14, 1, 2, 0x15u, 2, 3, 28, 19968, 2, 1, 0, 0, 0, 0 },
	{ "3g.40gb", 9, 2, 3, 0x11u, 4, 2, 42, 40192, 3, 2, 0, 0, 0, 0 },
	{ "4g.40gb", 5, 3, 4, 0x1u, 4, 1, 56, 40192, 4, 2, 0, 0, 0, 0 },
	{ "7g.80gb", 0, 4, 7, 0x1u, 8, 1, 98, 80896, 7, 5, 0, 1, 1, 0 },
};

static const struct sim_profile h100_80[] = {
	{ "1g.10gb", 19, 0, 1, ONES, 1, 7, 16, 9984, 1, 1, 0, 1, 0, 0 },
	{ "1g.10gb+me", 20, 7, 1, ONES, 1, 1, 16, 9984, 1, 1, 0, 1, 1, 0 },
	{ "1g.20gb", 15, 9, 1, 0x55u, 2, 4, 26, 20096, 1, 1, 0, 1, 0, 0 },
	{ "2g.20gb", 14, 1, 2, 0x15u, 2, 3, 32, 20096, 2, 2, 0, 2, 0, 0 },
	{ "3g.40gb", 9, 2, 3, 0x11u, 4, 2, 60, 40448, 3, 3, 0, 3, 0, 0 },
	{ "4g.40gb", 5, 3, 4, 0x1u, 4, 1, 64, 40448, 4, 4, 0, 4, 0, 0 },
	{ "7g.80gb", 0, 4, 7, 0x1u, 8, 1, 132, 81152, 8, 7, 0, 7, 1, 0 },
};

static const struct sim_profile h100_94[] = {
	{ "1g.12gb", 19, 0, 1, ONES, 1, 7, 16, 11008, 1, 1, 0, 1, 0, 0 },
	{ "1g.12gb+me", 20, 7, 1, ONES, 1, 1, 16, 11008, 1, 1, 0, 1, 1, 0 },
	{ "1g.24gb", 15, 9, 1, 0x55u, 2, 4, 26, 22144, 1, 1, 0, 1, 0, 0 },
	{ "2g.24gb", 14, 1, 2, 0x15u, 2, 3, 32, 22144, 2, 2, 0, 2, 0, 0 },
	{ "3g.47gb", 9, 2, 3, 0x11u, 4, 2, 60, 47488, 3, 3, 0, 3, 0, 0 },
	{ "4g.47gb", 5, 3, 4, 0x1u, 4, 1, 64, 47488, 4, 4, 0, 4, 0, 0 },
	{ "7g.94gb", 0, 4, 7, 0x1u, 8, 1, 132, 95360, 8, 7, 0, 7, 1, 0 },
};

static const struct sim_profile gh200_96[] = {
	{ "1g.12gb", 19, 0, 1, ONES, 1, 7, 16, 11264, 1, 1, 0, 1, 0, 0 },
	{ "1g.12gb+me", 20, 7, 1, ONES, 1, 1, 16, 11264, 1, 1, 0, 1, 1, 0 },
	{ "1g.24gb", 15, 9, 1, 0x55u, 2, 4, 26, 23552, 1, 1, 0, 1, 0, 0 },
	{ "2g.24gb", 14, 1, 2, 0x15u, 2, 3, 32, 23552, 2, 2, 0, 2, 0, 0 },
	{ "3g.48gb", 9, 2, 3, 0x11u, 4, 2, 60, 47616, 3, 3, 0, 3, 0, 0 },
	{ "4g.48gb", 5, 3, 4, 0x1u, 4, 1, 64, 47616, 4, 4, 0, 4, 0, 0 },
	{ "7g.96gb", 0, 4, 7, 0x1u, 8, 1, 132, 95232, 8, 7, 0, 7, 1, 0 },
};

static const struct sim_profile gh200_144[] = {
	{ "1g.18gb", 19, 0, 1, ONES, 1, 7, 16, 17792, 1, 1, 0, 1, 0, 0 },
	{ "1g.18gb+me", 20, 7, 1, ONES, 1, 1, 16, 17792, 1, 1, 0, 1, 1, 0 },
	{ "1g.36gb", 15, 9, 1, 0x55u, 2, 4, 26, 35712, 1, 1, 0, 1, 0, 0 },
	{ "2g.36gb", 14, 1, 2, 0x15u, 2, 3, 32, 35712, 2, 2, 0, 2, 0, 0 },
	{ "3g.72gb", 9, 2, 3, 0x11u, 4, 2, 60, 71424, 3, 3, 0, 3, 0, 0 },
	{ "4g.72gb", 5, 3, 4, 0x1u, 4, 1, 64, 71424, 4, 4, 0, 4, 0, 0 },
	{ "7g.144gb", 0, 4, 7, 0x1u, 8, 1, 132, 142848, 8, 7, 0, 7, 1, 0 },
};

static const struct sim_profile h200[] = {
	{ "1g.18gb", 19, 0, 1, ONES, 1, 7, 16, 16384, 1, 1, 0, 1, 0, 0 },
	{ "1g.18gb+me", 20, 7, 1, ONES, 1, 1, 16, 16384, 1, 1, 0, 1, 1, 0 },
	{ "1g.35gb", 15, 9, 1, 0x55u, 2, 4, 26, 33280, 1, 1, 0, 1, 0, 0 },
	{ "2g.35gb", 14, 1, 2, 0x15u, 2, 3, 32, 33280, 2, 2, 0, 2, 0, 0 },
	{ "3g.71gb", 9, 2, 3, 0x11u, 4, 2, 60, 71424, 3, 3, 0, 3, 0, 0 },
	{ "4g.71gb", 5, 3, 4, 0x1u, 4, 1, 64, 71424, 4, 4, 0, 4, 0, 0 },
	{ "7g.141gb", 0, 4, 7, 0x1u, 8, 1, 132, 143360, 8, 7, 0, 7, 1, 0 },
};

static const struct sim_profile b200[] = {
	{ "1g.23gb", 19, 0, 1, ONES, 1, 7, 18, 23040, 2, 1, 0, 1, 0, 0 },
	{ "1g.23gb+me", 20, 7, 1, ONES, 1, 1, 18, 23040, 2, 1, 0, 1, 1, 0 },
	{ "1g.45gb", 15, 9, 1, 0x55u, 2, 4, 18, 46080, 2, 1, 0, 1, 0, 0 },
	{ "2g.45gb", 14, 1, 2, 0x15u, 2, 3, 36, 46080, 3, 1, 0, 1, 0, 0 },
	{ "3g.90gb", 9, 2, 3, 0x11u, 4, 2, 54, 92160, 6, 1, 0, 1, 0, 0 },
	{ "4g.90gb", 5, 3, 4, 0x1u, 4, 1, 72, 92160, 8, 1, 0, 1, 0, 0 },
	{ "7g.180gb", 0, 4, 7, 0x1u, 8, 1, 148, 183296, 16, 1, 0, 1, 1, 0 },
};

static const struct sim_profile gb200[] = {
	{ "1g.23gb", 19, 0, 1, ONES, 1, 7, 18, 23808, 2, 1, 0, 1, 0, 0 },
	{ "1g.23gb+me", 20, 7, 1, ONES, 1, 1, 18, 23808, 2, 1, 0, 1, 1, 0 },
	{ "1g.47gb", 15, 9, 1, 0x55u, 2, 4, 18, 47616, 2, 1, 0, 1, 0, 0 },
	{ "2g.47gb", 14, 1, 2, 0x15u, 2, 3, 36, 47616, 3, 1, 0, 1, 0, 0 },
	{ "3g.93gb", 9, 2, 3, 0x11u, 4, 2, 54, 95232, 6, 1, 0, 1, 0, 0 },
	{ "4g.93gb", 5, 3, 4, 0x1u, 4, 1, 72, 95232, 8, 1, 0, 1, 0, 0 },
	{ "7g.186gb", 0, 4, 7, 0x1u, 8, 1, 148, 189440, 16, 1, 0, 1, 1, 0 },
};

static const struct sim_profile b300[] = {
	{ "1g.34gb", 19, 0, 1, ONES, 1, 7, 18, 33664, 2, 1, 0, 1, 0, 0 },
	{ "1g.34gb+me", 20, 7, 1, ONES, 1, 1, 18, 33664, 2, 1, 0, 1, 1, 0 },
	{ "1g.67gb", 15, 9, 1, 0x55u, 2, 4, 18, 66432, 2, 1, 0, 1, 0, 0 },
	{ "2g.67gb", 14, 1, 2, 0x15u, 2, 3, 36, 66432, 3, 1, 0, 1, 0, 0 },
	{ "3g.135gb", 9, 2, 3, 0x11u, 4, 2, 54, 133888, 6, 1, 0, 1, 0, 0 },
	{ "4g.135gb", 5, 3, 4, 0x1u, 4, 1, 72, 133888, 8, 1, 0, 1, 0, 0 },
	{ "7g.269gb", 0, 4, 7, 0x1u, 8, 1, 148, 266752, 16, 1, 0, 1, 1, 0 },
};

static const struct sim_profile gb300[] = {
	{ "1g.35gb", 19, 0, 1, ONES, 1, 7, 18, 35584, 2, 1, 0, 1, 0, 0 },
	{ "1g.35gb+me", 20, 7, 1, ONES, 1, 1, 18, 35584, 2, 1, 0, 1, 1, 0 },
	{ "1g.70gb", 15, 9, 1, 0x55u, 2, 4, 18, 71168, 2, 1, 0, 1, 0, 0 },
	{ "2g.70gb", 14, 1, 2, 0x15u, 2, 3, 36, 71168, 3, 1, 0, 1, 0, 0 },
	{ "3g.139gb", 9, 2, 3, 0x11u, 4, 2, 54, 142336, 6, 1, 0, 1, 0, 0 },
	{ "4g.139gb", 5, 3, 4, 0x1u, 4, 1, 72, 142336, 8, 1, 0, 1, 0, 0 },
	{ "7g.278gb", 0, 4, 7, 0x1u, 8, 1, 152, 284160, 16, 1, 0, 1, 1, 0 },
};

static const struct sim_profile rtxpro6000[] = {
	{ "1g.24gb", 14, 0, 1, 0x249u, 3, 4, 46, 24192, 1, 1, 1, 1, 0, 0 },
	{ "1g.24gb+me", 21, 7, 1, 0x249u, 3, 1, 46, 24192, 1, 1, 1, 1, 1, 0 },
	{ "1g.24gb+gfx", 47, 10, 1, 0x249u, 3, 4, 46, 24192, 1, 1, 1, 1, 0, 0 },
	{ "1g.24gb+me.all", 65, 15, 1, 0x249u, 3, 1, 46, 24192, 1, 4, 4, 4, 1, 0 },
	{ "1g.24gb-me", 67, 13, 1, 0x249u, 3, 4, 46, 24192, 1, 0, 0, 0, 0, 0 },
	{ "2g.48gb", 5, 1, 2, 0x41u, 6, 2, 94, 48512, 2, 2, 2, 2, 0, 0 },
	{ "2g.48gb+gfx", 35, 11, 2, 0x41u, 6, 2, 94, 48512, 2, 2, 2, 2, 0, 0 },
	{ "2g.48gb+me.all", 64, 16, 2, 0x41u, 6, 1, 94, 48512, 2, 4, 4, 4, 1, 0 },
	{ "2g.48gb-me", 66, 14, 2, 0x41u, 6, 2, 94, 48512, 2, 0, 0, 0, 0, 0 },
	{ "4g.96gb", 0, 3, 4, 0x1u, 12, 1, 188, 97408, 4, 4, 4, 4, 1, 0 },
	{ "4g.96gb+gfx", 32, 12, 4, 0x1u, 12, 1, 188, 97408, 4, 4, 4, 4, 1, 0 },
};

static const struct sim_profile rtxpro5000[] = {
	{ "1g.12gb", 14, 0, 1, 0x249u, 3, 1, 27, 11904, 1, 1, 1, 1, 0, 0 },
	{ "1g.12gb+me", 21, 7, 1, 0x249u, 3, 1, 27, 11904, 1, 1, 1, 1, 1, 0 },
	{ "1g.12gb+gfx", 47, 10, 1, 0x249u, 3, 1, 27, 11904, 1, 1, 1, 1, 0, 0 },
	{ "1g.12gb-me", 67, 13, 1, 0x249u, 3, 3, 27, 11904, 1, 0, 0, 0, 0, 0 },
	{ "2g.24gb-me", 66, 14, 2, 0x41u, 6, 1, 54, 23808, 2, 0, 0, 0, 0, 0 },
	{ "4g.48gb", 0, 3, 4, 0x1u, 12, 1, 110, 47616, 4, 3, 3, 1, 1, 0 },
	{ "4g.48gb+gfx", 32, 12, 4, 0x1u, 12, 1, 110, 47616, 4, 3, 3, 1, 1, 0 },
};

#define PROFILES(p) .profiles = p, .profile_count = sizeof p / sizeof p[0]

const struct sim_model sim_models[] = {
	{ .key = "T4", .name = "Tesla T4", .source = "data sheet, public nvidia-smi -q listings",
	  .arch = ARCH(TURING), .brand = BRAND(TESLA), .cc_major = 7, .cc_minor = 5, .pci_device_id = 0x1EB810DE, .pci_subsystem_id = 0x12A210DE,
	  .sm = 40, .cores_per_sm = 64, .memory_mib = 15360, .reserved_mib = 393, .reserved_from = "public nvidia-smi -q listing, driver 530.30.02",
	  .power_idle_w = 9, .power_limit_w = 70, .power_min_w = 60, .power_max_w = 70, .clock_sm = 1590, .clock_memory = 5001,
	  .bus_width = 256, .pcie_gen = 3, .ecc = 1 },
	{ .key = "V100S", .name = "Tesla V100S-PCIE-32GB", .source = "data sheet, public nvidia-smi -q listings",
	  .arch = ARCH(VOLTA), .brand = BRAND(TESLA), .cc_major = 7, .cc_minor = 0, .pci_device_id = 0x1DF610DE, .pci_subsystem_id = 0x13D610DE,
	  .sm = 80, .cores_per_sm = 64, .memory_mib = 32768, .reserved_mib = 258, .reserved_from = "inferred",
	  .power_idle_w = 25, .power_limit_w = 250, .power_min_w = 100, .power_max_w = 250, .clock_sm = 1597, .clock_memory = 1107,
	  .bus_width = 4096, .pcie_gen = 3, .ecc = 1 },
	{ .key = "A30", .name = "NVIDIA A30", .source = "public -lgip and -lgi listings of an A30, driver 535",
	  .arch = ARCH(AMPERE), .brand = BRAND(NVIDIA), .cc_major = 8, .cc_minor = 0, .pci_device_id = 0x20B710DE, .pci_subsystem_id = 0x153210DE,
	  .sm = 56, .cores_per_sm = 64, .memory_mib = 24576, .reserved_mib = 318, .reserved_from = "inferred",
	  .power_idle_w = 27, .power_limit_w = 165, .power_min_w = 100, .power_max_w = 165, .clock_sm = 1440, .clock_memory = 1215,
	  .bus_width = 3072, .pcie_gen = 4, .ecc = 1, .units = 4, .slices = 4, .reset_required = 1,
	  .copy = 4, .dec = 4, .enc = 0, .jpeg = 1, .ofa = 1, PROFILES(a30) },
	{ .key = "A100-40", .name = "NVIDIA A100-SXM4-40GB", .source = "MIG User Guide, A100-40GB listings",
	  .arch = ARCH(AMPERE), .brand = BRAND(NVIDIA), .cc_major = 8, .cc_minor = 0, .pci_device_id = 0x20B010DE, .pci_subsystem_id = 0x134F10DE,
	  .sm = 108, .cores_per_sm = 64, .memory_mib = 40960, .reserved_mib = 424, .reserved_from = "condor_gpu_discovery.cpp: 40536 MB of a real A100-40",
	  .power_idle_w = 46, .power_limit_w = 400, .power_min_w = 100, .power_max_w = 400, .clock_sm = 1410, .clock_memory = 1215,
	  .bus_width = 5120, .pcie_gen = 4, .ecc = 1, .units = 8, .slices = 7, .reset_required = 1,
	  .copy = 7, .dec = 5, .enc = 0, .jpeg = 1, .ofa = 1, PROFILES(a100_40) },
	{ .key = "A100-80", .name = "NVIDIA A100-SXM4-80GB", .source = "public -lgip listings of A100-80GB",
	  .arch = ARCH(AMPERE), .brand = BRAND(NVIDIA), .cc_major = 8, .cc_minor = 0, .pci_device_id = 0x20B210DE, .pci_subsystem_id = 0x147F10DE,
	  .sm = 108, .cores_per_sm = 64, .memory_mib = 81920, .reserved_mib = 617, .reserved_from = "inferred",
	  .power_idle_w = 62, .power_limit_w = 400, .power_min_w = 100, .power_max_w = 400, .clock_sm = 1410, .clock_memory = 1593,
	  .bus_width = 5120, .pcie_gen = 4, .ecc = 1, .units = 8, .slices = 7, .reset_required = 1,
	  .copy = 7, .dec = 5, .enc = 0, .jpeg = 1, .ofa = 1, PROFILES(a100_80) },
	{ .key = "H100-80", .name = "NVIDIA H100 80GB HBM3", .source = "public -lgip and -lgipp listings of an H100 80GB HBM3",
	  .arch = ARCH(HOPPER), .brand = BRAND(NVIDIA), .cc_major = 9, .cc_minor = 0, .pci_device_id = 0x233010DE, .pci_subsystem_id = 0x16C110DE,
	  .sm = 132, .cores_per_sm = 128, .memory_mib = 81559, .reserved_mib = 551, .reserved_from = "public nvidia-smi -q listing of an H100 80GB HBM3",
	  .reserved_590_mib = 479,
	  .power_idle_w = 70, .power_limit_w = 700, .power_min_w = 200, .power_max_w = 700, .clock_sm = 1980, .clock_memory = 2619,
	  .bus_width = 5120, .pcie_gen = 5, .ecc = 1, .units = 8, .slices = 7, .reset_required = 0,
	  .copy = 8, .dec = 7, .enc = 0, .jpeg = 7, .ofa = 1, PROFILES(h100_80) },
	{ .key = "H100-94", .name = "NVIDIA H100 NVL", .source = "public listings of an H100 NVL, driver 560",
	  .arch = ARCH(HOPPER), .brand = BRAND(NVIDIA), .cc_major = 9, .cc_minor = 0, .pci_device_id = 0x232110DE, .pci_subsystem_id = 0x183910DE,
	  .sm = 132, .cores_per_sm = 128, .memory_mib = 95830, .reserved_mib = 600, .reserved_from = "inferred",
	  .power_idle_w = 62, .power_limit_w = 400, .power_min_w = 200, .power_max_w = 400, .clock_sm = 1785, .clock_memory = 2619,
	  .bus_width = 6016, .pcie_gen = 5, .ecc = 1, .units = 8, .slices = 7, .reset_required = 0,
	  .copy = 8, .dec = 7, .enc = 0, .jpeg = 7, .ofa = 1, PROFILES(h100_94) },
	{ .key = "GH200-96", .name = "NVIDIA GH200 480GB", .source = "public -lgip listing of a GH200 96GB",
	  .arch = ARCH(HOPPER), .brand = BRAND(NVIDIA), .cc_major = 9, .cc_minor = 0, .pci_device_id = 0x234210DE, .pci_subsystem_id = 0x16EB10DE,
	  .sm = 132, .cores_per_sm = 128, .memory_mib = 97871, .reserved_mib = 600, .reserved_from = "inferred",
	  .power_idle_w = 100, .power_limit_w = 900, .power_min_w = 100, .power_max_w = 900, .clock_sm = 1980, .clock_memory = 2619,
	  .bus_width = 6144, .pcie_gen = 5, .ecc = 1, .units = 8, .slices = 7, .reset_required = 0,
	  .copy = 8, .dec = 7, .enc = 0, .jpeg = 7, .ofa = 1, PROFILES(gh200_96) },
	{ .key = "GH200-144", .name = "NVIDIA GH200 144G HBM3e", .source = "mig-parted names; memory inferred",
	  .arch = ARCH(HOPPER), .brand = BRAND(NVIDIA), .cc_major = 9, .cc_minor = 0, .pci_device_id = 0x234810DE, .pci_subsystem_id = 0x18D210DE,
	  .sm = 132, .cores_per_sm = 128, .memory_mib = 146831, .reserved_mib = 600, .reserved_from = "inferred",
	  .power_idle_w = 100, .power_limit_w = 900, .power_min_w = 100, .power_max_w = 900, .clock_sm = 1980, .clock_memory = 3201,
	  .bus_width = 6144, .pcie_gen = 5, .ecc = 1, .units = 8, .slices = 7, .reset_required = 0,
	  .copy = 8, .dec = 7, .enc = 0, .jpeg = 7, .ofa = 1, PROFILES(gh200_144) },
	{ .key = "H200", .name = "NVIDIA H200", .source = "MIG User Guide; nvidia-smi -q of an H200 with MIG devices, driver 590.48.01",
	  .arch = ARCH(HOPPER), .brand = BRAND(NVIDIA), .cc_major = 9, .cc_minor = 0, .pci_device_id = 0x233510DE, .pci_subsystem_id = 0x18BE10DE,
	  .sm = 132, .cores_per_sm = 128, .memory_mib = 143771, .reserved_mib = 700, .reserved_from = "public nvidia-smi -q listing, driver 550.90.12",
	  .reserved_580_mib = 616, .reserved_590_mib = 614,
	  .power_idle_w = 75, .power_limit_w = 700, .power_min_w = 200, .power_max_w = 700, .clock_sm = 1980, .clock_memory = 3201,
	  .bus_width = 6144, .pcie_gen = 5, .ecc = 1, .units = 8, .slices = 7, .reset_required = 0,
	  .copy = 8, .dec = 7, .enc = 0, .jpeg = 7, .ofa = 1, PROFILES(h200) },
	{ .key = "B200", .name = "NVIDIA B200", .source = "MIG User Guide, nominal memory; multiprocessors inferred",
	  .arch = ARCH(BLACKWELL), .brand = BRAND(NVIDIA), .cc_major = 10, .cc_minor = 0, .pci_device_id = 0x290110DE, .pci_subsystem_id = 0x199910DE,
	  .sm = 148, .cores_per_sm = 128, .memory_mib = 183359, .reserved_mib = 600, .reserved_from = "inferred",
	  .power_idle_w = 140, .power_limit_w = 1000, .power_min_w = 200, .power_max_w = 1000, .clock_sm = 1965, .clock_memory = 3996,
	  .bus_width = 8192, .pcie_gen = 5, .ecc = 1, .units = 8, .slices = 7, .reset_required = 0,
	  .copy = 16, .dec = 7, .enc = 0, .jpeg = 7, .ofa = 1, PROFILES(b200) },
	{ .key = "GB200", .name = "NVIDIA GB200", .source = "nominal memory; multiprocessors inferred",
	  .arch = ARCH(BLACKWELL), .brand = BRAND(NVIDIA), .cc_major = 10, .cc_minor = 0, .pci_device_id = 0x294110DE, .pci_subsystem_id = 0x204610DE,
	  .sm = 148, .cores_per_sm = 128, .memory_mib = 189471, .reserved_mib = 600, .reserved_from = "inferred",
	  .power_idle_w = 150, .power_limit_w = 1200, .power_min_w = 200, .power_max_w = 1200, .clock_sm = 1965, .clock_memory = 3996,
	  .bus_width = 8192, .pcie_gen = 5, .ecc = 1, .units = 8, .slices = 7, .reset_required = 0,
	  .copy = 16, .dec = 7, .enc = 0, .jpeg = 7, .ofa = 1, PROFILES(gb200) },
	{ .key = "B300", .name = "NVIDIA B300 SXM6 AC", .source = "mig-parted names; memory and multiprocessors inferred",
	  .arch = ARCH(BLACKWELL), .brand = BRAND(NVIDIA), .cc_major = 10, .cc_minor = 3, .pci_device_id = 0x318210DE, .pci_subsystem_id = 0x20E610DE,
	  .sm = 148, .cores_per_sm = 128, .memory_mib = 275040, .reserved_mib = 600, .reserved_from = "inferred",
	  .power_idle_w = 150, .power_limit_w = 1100, .power_min_w = 200, .power_max_w = 1100, .clock_sm = 1920, .clock_memory = 3996,
	  .bus_width = 8192, .pcie_gen = 6, .ecc = 1, .units = 8, .slices = 7, .reset_required = 0,
	  .copy = 16, .dec = 7, .enc = 0, .jpeg = 7, .ofa = 1, PROFILES(b300) },
	{ .key = "GB300", .name = "NVIDIA GB300", .source = "nominal memory; multiprocessors inferred",
	  .arch = ARCH(BLACKWELL), .brand = BRAND(NVIDIA), .cc_major = 10, .cc_minor = 3, .pci_device_id = 0x31C210DE, .pci_subsystem_id = 0x21F110DE,
	  .sm = 152, .cores_per_sm = 128, .memory_mib = 284208, .reserved_mib = 600, .reserved_from = "inferred",
	  .power_idle_w = 160, .power_limit_w = 1400, .power_min_w = 200, .power_max_w = 1400, .clock_sm = 1920, .clock_memory = 3996,
	  .bus_width = 8192, .pcie_gen = 6, .ecc = 1, .units = 8, .slices = 7, .reset_required = 0,
	  .copy = 16, .dec = 7, .enc = 0, .jpeg = 7, .ofa = 1, PROFILES(gb300) },
	{ .key = "RTXPRO6000", .name = "NVIDIA RTX PRO 6000 Blackwell Server Edition", .source = "public listings of RTX PRO 6000 Server Edition",
	  .arch = ARCH(BLACKWELL), .brand = BRAND(NVIDIA_RTX), .cc_major = 12, .cc_minor = 0, .pci_device_id = 0x2BB510DE, .pci_subsystem_id = 0x204E10DE,
	  .sm = 188, .cores_per_sm = 128, .memory_mib = 97887, .reserved_mib = 638, .reserved_from = "inferred",
	  .power_idle_w = 35, .power_limit_w = 600, .power_min_w = 300, .power_max_w = 600, .clock_sm = 2430, .clock_memory = 12481,
	  .bus_width = 512, .pcie_gen = 5, .ecc = 1, .units = 12, .slices = 4, .reset_required = 0,
	  .copy = 4, .dec = 4, .enc = 4, .jpeg = 4, .ofa = 1, PROFILES(rtxpro6000) },
	{ .key = "RTXPRO5000", .name = "NVIDIA RTX PRO 5000 Blackwell", .source = "MIG User Guide; ids, placements, memory and multiprocessors inferred",
	  .arch = ARCH(BLACKWELL), .brand = BRAND(NVIDIA_RTX), .cc_major = 12, .cc_minor = 0, .pci_device_id = 0x2BB310DE, .pci_subsystem_id = 0x204C10DE,
	  .sm = 110, .cores_per_sm = 128, .memory_mib = 48935, .reserved_mib = 600, .reserved_from = "inferred",
	  .power_idle_w = 20, .power_limit_w = 300, .power_min_w = 150, .power_max_w = 300, .clock_sm = 2430, .clock_memory = 14001,
	  .bus_width = 384, .pcie_gen = 5, .ecc = 1, .units = 12, .slices = 4, .reset_required = 0,
	  .copy = 4, .dec = 3, .enc = 3, .jpeg = 1, .ofa = 1, PROFILES(rtxpro5000) },
};

const uint32_t sim_model_count = sizeof sim_models / sizeof sim_models[0];

const struct sim_model *sim_model(const char *key)
{
	for (uint32_t i = 0; i < sim_model_count; i++)
		if (strcmp(sim_models[i].key, key) == 0)
			return &sim_models[i];
	return NULL;
}

const struct sim_profile *sim_profile(const struct sim_model *m, uint32_t id)
{
	for (uint32_t i = 0; i < m->profile_count; i++)
		if (m->profiles[i].id == id)
			return &m->profiles[i];
	return NULL;
}
