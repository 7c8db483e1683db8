#include "driver.h"

#include <dlfcn.h>
#include <string.h>

struct driver cu;

static const struct { const char *name; void *to; } imports[] = {
	{ "cuInit", &cu.init }, { "cuDriverGetVersion", &cu.version }, { "cuDeviceGetCount", &cu.count }, { "cuDeviceGet", &cu.get },
	{ "cuDeviceGetName", &cu.name }, { "cuDeviceGetUuid_v2", &cu.uuid }, { "cuDeviceGetAttribute", &cu.attribute },
	{ "cuDeviceTotalMem_v2", &cu.total }, { "cuDevicePrimaryCtxRetain", &cu.retain }, { "cuDevicePrimaryCtxRelease_v2", &cu.release },
	{ "cuCtxSetCurrent", &cu.set }, { "cuCtxSynchronize", &cu.sync }, { "cuMemAlloc_v2", &cu.alloc }, { "cuMemAllocManaged", &cu.managed },
	{ "cuMemFree_v2", &cu.free }, { "cuMemGetInfo_v2", &cu.info }, { "cuMemAllocAsync", &cu.async }, { "cuMemsetD8_v2", &cu.fill },
	{ "cuMemcpyDtoH_v2", &cu.back }, { "cuMemCreate", &cu.create }, { "cuMemGetAllocationGranularity", &cu.granularity },
	{ "cuIpcGetMemHandle", &cu.ipc_get }, { "cuIpcOpenMemHandle_v2", &cu.ipc_open }, { "cuModuleLoadData", &cu.module },
	{ "cuModuleGetFunction", &cu.function }, { "cuLaunchKernel", &cu.launch },
	{ "cuGetErrorName", &cu.error_name }, { "cuGetErrorString", &cu.error_text },
};

const char *driver_load(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib)
		return dlerror();
	for (size_t i = 0; i < sizeof imports / sizeof *imports; i++) {
		void *f = dlsym(lib, imports[i].name);
		memcpy(imports[i].to, &f, sizeof f);
	}
	return cu.init && cu.get && cu.retain && cu.set && cu.sync && cu.error_name && cu.error_text ? NULL : "libcuda.so.1 lacks calls that every driver has";
}
