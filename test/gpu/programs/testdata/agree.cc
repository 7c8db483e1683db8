// agree.cc holds src/driver.h to NVIDIA's cuda.h. It only has to compile. Prototypes differ in the names of types; what
// a call passes must be the same: how many, each of the same size and kind.
#include <cuda.h>
#include <stddef.h>
#include <type_traits>

#include "driver.h"

template <class A, class B>
constexpr bool alike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> && std::is_class_v<A> == std::is_class_v<B>;

template <class F, class G> constexpr bool same = false;
template <class R, class... A, class S, class... B> constexpr bool same<R (*)(A...), S (*)(B...)> = []() constexpr {
	if constexpr (sizeof...(A) == sizeof...(B))
		return alike<R, S> && (alike<A, B> && ...);
	else
		return false;
}();

#define IMPORT(member, symbol) static_assert(same<decltype(driver::member), decltype(&symbol)>, #symbol " has another prototype");
IMPORTS(IMPORT)

// What pointers point to.
static_assert(sizeof(pointer) == sizeof(CUdeviceptr) && sizeof(uuid_bytes) == sizeof(CUuuid) && sizeof(ipc) == sizeof(CUipcMemHandle));
static_assert(sizeof(CUmemGenericAllocationHandle) == sizeof(unsigned long long) && sizeof(CUdevice) == sizeof(int));
static_assert(sizeof(memory_properties) == sizeof(CUmemAllocationProp) && offsetof(memory_properties, handle_types) == offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(memory_properties, location) == offsetof(CUmemAllocationProp, location) && offsetof(memory_properties, flags) == offsetof(CUmemAllocationProp, allocFlags));

static_assert(CUDA_SUCCESS == SUCCESS && CUDA_ERROR_NOT_FOUND == NOT_FOUND && CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == MULTIPROCESSORS);
static_assert(CU_MEM_ATTACH_GLOBAL == MEM_ATTACH_GLOBAL && CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS == IPC_LAZY_PEER);
static_assert(CU_MEM_ALLOCATION_TYPE_PINNED == PINNED && CU_MEM_LOCATION_TYPE_DEVICE == ON_DEVICE);
static_assert(CUDA_ERROR_OUT_OF_MEMORY == OUT_OF_MEMORY);
