/* limits.c: memory limits of cgroups (R615). The results are those of nvml.h; what they do is in state/cgroup.c. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FIRST_BRANCH = 615 };

/* The cgroup that a caller names. Limits of the root are refused: "Unable to get memory limit: Not Supported" (NVIDIA's
 * Dynamo guide); what is no cgroup has no files of the controller: "not found" (MPS documentation, R615). */
static nvmlReturn_t cgroup(const struct sim_node *n, const char *name, char path[SIM_CGROUP])
{
	struct stat st;
	const char *root = sim_cgroup_root(n);
	size_t length = strlen(root);
	char *real = name ? realpath(name, NULL) : NULL;
	nvmlReturn_t r = NVML_SUCCESS;
	if (n->branch < FIRST_BRANCH || n->accounting == SIM_NO_ACCOUNTING)
		r = NVML_ERROR_NOT_SUPPORTED;
	else if (!name)
		r = NVML_ERROR_INVALID_ARGUMENT;
	else if (!real || stat(real, &st) != 0 || !S_ISDIR(st.st_mode))
		r = NVML_ERROR_OPERATING_SYSTEM;
	else if (strcmp(real, root) == 0)
		r = NVML_ERROR_NOT_SUPPORTED;
	else if (strncmp(real, root, length) != 0 || real[length] != '/' || strlen(real) >= SIM_CGROUP)
		r = NVML_ERROR_NOT_FOUND;
	else
		memcpy(path, real, strlen(real) + 1);
	free(real);
	return r;
}

/* The sentinel is the GPU's capacity for the soft limit, no limit for the hard one (nvml.h: soft 0 and hard all ones
 * clear both). */
static nvmlReturn_t valid(const struct sim_gpu *g, uint64_t *soft, uint64_t hard)
{
	if (*soft == NVML_DEVICE_MEMORY_LIMIT_MAX)
		*soft = g->memory_total;
	int beyond = *soft > g->memory_total || (hard != NVML_DEVICE_MEMORY_LIMIT_MAX && hard > g->memory_total);
	return beyond || *soft > hard ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
	struct sim_call c;
	char path[SIM_CGROUP];
	uint64_t soft = limits ? limits->softLimit : 0;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_NOT_MIG | SIM_ROOT | SIM_WRITE);
	if (r == NVML_SUCCESS && !limits)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		r = cgroup(c.n, limits->nameSpace, path);
	if (r == NVML_SUCCESS)
		r = valid(c.g, &soft, limits->hardLimit);
	if (r == NVML_SUCCESS && sim_cgroup_set(c.w, c.gpu, path, soft, limits->hardLimit) != 0)
		r = NVML_ERROR_UNKNOWN;
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
	struct sim_call c;
	char path[SIM_CGROUP];
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_NOT_MIG);
	if (r == NVML_SUCCESS && !limits)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		r = cgroup(c.n, limits->nameSpace, path);
	const struct sim_limit *l = r == NVML_SUCCESS ? sim_cgroup_limit(c.n, c.gpu, path) : NULL;
	if (r == NVML_SUCCESS && !l)
		r = NVML_ERROR_NOT_FOUND;
	if (r == NVML_SUCCESS) {
		limits->softLimit = l->soft;
		limits->hardLimit = l->hard;
		limits->currentUsed = sim_cgroup_used(c.n, c.gpu, path);
	}
	return sim_leave(&c, r);
}
