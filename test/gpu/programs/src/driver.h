/* driver.h: the part of the CUDA driver API that gpujob needs, found by name in libcuda.so.1 when it runs: no CUDA
 * headers and no toolkit are needed. Names, numbers and prototypes are those of the CUDA Driver API reference. What
 * a library does not export is NULL, and calling it tells NOT_EXPORTED. */
#ifndef GPUSLOT_GPU_DRIVER_H
#define GPUSLOT_GPU_DRIVER_H

#include <stddef.h>

enum { NOT_EXPORTED = -2, NOT_LOADED = -1, SUCCESS = 0, OUT_OF_MEMORY = 2, NOT_FOUND = 500 };
enum { MULTIPROCESSORS = 16, MEM_ATTACH_GLOBAL = 1, IPC_LAZY_PEER = 1, PINNED = 1, ON_DEVICE = 1 };

typedef unsigned long long pointer;
typedef struct { char bytes[16]; } uuid_bytes;
typedef struct { char bytes[64]; } ipc;

/* CUmemAllocationProp of CUDA 10.2 and newer: pinned memory of a device. */
typedef struct {
	int type, handle_types;
	struct { int type, id; } location;
	void *win32;
	struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
} memory_properties;

extern struct driver {
	int (*init)(unsigned), (*version)(int *), (*count)(int *), (*get)(int *, int), (*name)(char *, int, int), (*uuid)(uuid_bytes *, int);
	int (*attribute)(int *, int, int), (*total)(size_t *, int), (*retain)(void **, int), (*release)(int), (*set)(void *), (*sync)(void);
	int (*alloc)(pointer *, size_t), (*managed)(pointer *, size_t, unsigned), (*free)(pointer), (*info)(size_t *, size_t *);
	int (*async)(pointer *, size_t, void *), (*fill)(pointer, unsigned char, size_t), (*back)(void *, pointer, size_t);
	int (*create)(unsigned long long *, size_t, const memory_properties *, unsigned long long);
	int (*granularity)(size_t *, const memory_properties *, int);
	int (*ipc_get)(ipc *, pointer), (*ipc_open)(pointer *, ipc, unsigned);
	int (*module)(void **, const void *), (*function)(void **, void *, const char *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
	int (*error_name)(int, const char **), (*error_text)(int, const char **);
} cu;

/* Each member with the symbol that it is; calls that a driver renewed carry the version of the struct above. */
#define IMPORTS(X) \
	X(init, cuInit) X(version, cuDriverGetVersion) X(count, cuDeviceGetCount) X(get, cuDeviceGet) X(name, cuDeviceGetName) \
	X(uuid, cuDeviceGetUuid_v2) X(attribute, cuDeviceGetAttribute) X(total, cuDeviceTotalMem_v2) \
	X(retain, cuDevicePrimaryCtxRetain) X(release, cuDevicePrimaryCtxRelease_v2) X(set, cuCtxSetCurrent) X(sync, cuCtxSynchronize) \
	X(alloc, cuMemAlloc_v2) X(managed, cuMemAllocManaged) X(free, cuMemFree_v2) X(info, cuMemGetInfo_v2) \
	X(async, cuMemAllocAsync) X(fill, cuMemsetD8_v2) X(back, cuMemcpyDtoH_v2) X(create, cuMemCreate) \
	X(granularity, cuMemGetAllocationGranularity) X(ipc_get, cuIpcGetMemHandle) X(ipc_open, cuIpcOpenMemHandle_v2) \
	X(module, cuModuleLoadData) X(function, cuModuleGetFunction) X(launch, cuLaunchKernel) \
	X(error_name, cuGetErrorName) X(error_text, cuGetErrorString)

/* Loads the library; the reason where there is none. */
const char *driver_load(void);

/* The text of the module that has a kernel; NULL for a name that there is none for. */
const char *kernel_text(const char *name);

#endif
