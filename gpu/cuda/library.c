#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Names and prototypes are those of the CUDA Driver API reference; the _v2 are the 64-bit forms that cuda.h has
 * mapped the plain names to since CUDA 3.2 (the release of a primary context: since 11.0). */
static struct {
	int (*init)(unsigned);
	int (*version)(int *);
	int (*count)(int *);
	int (*get)(int *, int);
	int (*retain)(void **, int);
	int (*release)(int);
	int (*set)(void *);
	int (*info)(size_t *, size_t *);
	int (*alloc)(unsigned long long *, size_t);
	int (*release_memory)(unsigned long long);
	int (*name)(int, const char **);
	int (*text)(int, const char **);
} cu;

static const struct { const char *name; void *to; } imports[] = {
	{ "cuInit", &cu.init }, { "cuDriverGetVersion", &cu.version }, { "cuDeviceGetCount", &cu.count }, { "cuDeviceGet", &cu.get },
	{ "cuDevicePrimaryCtxRetain", &cu.retain }, { "cuDevicePrimaryCtxRelease_v2", &cu.release }, { "cuCtxSetCurrent", &cu.set },
	{ "cuMemGetInfo_v2", &cu.info }, { "cuMemAlloc_v2", &cu.alloc }, { "cuMemFree_v2", &cu.release_memory },
	{ "cuGetErrorName", &cu.name }, { "cuGetErrorString", &cu.text },
};

static int device;
static unsigned long long allocation;

const char *cuda_load(void)
{
	static char why[256];
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib)
		return dlerror();
	for (size_t i = 0; i < sizeof imports / sizeof *imports; i++) {
		void *f = dlsym(lib, imports[i].name);
		if (!f) {
			snprintf(why, sizeof why, "libcuda.so.1 has no %s", imports[i].name);
			return why;
		}
		memcpy(imports[i].to, &f, sizeof f);
	}
	return NULL;
}

int cuda_driver_version(int *version) { return cu.version(version); }
int cuda_init(void) { return cu.init(0); }
int cuda_device_count(int *count) { return cu.count(count); }

int cuda_context(void)
{
	void *context = NULL;
	int r = cu.get(&device, 0);
	if (r == 0)
		r = cu.retain(&context, device);
	return r == 0 ? cu.set(context) : r;
}

int cuda_release(void) { return cu.release(device); }
int cuda_mem_info(size_t *left, size_t *total) { return cu.info(left, total); }
int cuda_alloc(size_t bytes) { return cu.alloc(&allocation, bytes); }
int cuda_free(void) { return cu.release_memory(allocation); }

const char *cuda_name(int result)
{
	const char *s = NULL;
	return cu.name(result, &s) == 0 && s ? s : "unknown result";
}

const char *cuda_text(int result)
{
	const char *s = NULL;
	return cu.text(result, &s) == 0 && s ? s : "";
}
