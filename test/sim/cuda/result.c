/* result.c: the names and texts of the results that the library gives (libcuda 550.163.01 says the same). */
#include "internal.h"

static const struct { CUresult code; const char *name, *text; } results[] = {
#define RESULT(name, text) { name, #name, text }
	RESULT(CUDA_SUCCESS, "no error"),
	RESULT(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
	RESULT(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
	RESULT(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
	RESULT(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
	RESULT(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
	RESULT(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
	RESULT(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
	RESULT(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
	RESULT(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
	RESULT(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
	RESULT(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
	RESULT(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
	RESULT(CUDA_ERROR_NOT_READY, "device not ready"),
	RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
	RESULT(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"),
	RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
	RESULT(CUDA_ERROR_ASSERT, "device-side assert triggered"),
	RESULT(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
	RESULT(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
	RESULT(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
	RESULT(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
	RESULT(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
	RESULT(CUDA_ERROR_MPS_CONNECTION_FAILED, "MPS client failed to connect to the MPS control daemon or the MPS server"),
	RESULT(CUDA_ERROR_MPS_RPC_FAILURE, "the remote procedural call between the MPS server and the MPS client failed"),
	RESULT(CUDA_ERROR_MPS_SERVER_NOT_READY, "MPS server is not ready to accept new MPS client requests"),
	RESULT(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, "the hardware resources required to create MPS client have been exhausted"),
	RESULT(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, "the hardware resources required to support device connections have been exhausted"),
	RESULT(CUDA_ERROR_MPS_CLIENT_TERMINATED, "the MPS client has been terminated by the server"),
	RESULT(CUDA_ERROR_CDP_NOT_SUPPORTED, "is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it"),
	RESULT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "one or more resources are insufficient or non-applicable for the operation"),
	RESULT(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef RESULT
};

static CUresult look(CUresult code, const char **to, int text)
{
	if (!to)
		return CUDA_ERROR_INVALID_VALUE;
	*to = NULL;
	for (size_t i = 0; i < sizeof results / sizeof *results; i++)
		if (results[i].code == code)
			*to = text ? results[i].text : results[i].name;
	return *to ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetErrorName(CUresult error, const char **name) { return look(error, name, 0); }
API CUresult cuGetErrorString(CUresult error, const char **text) { return look(error, text, 1); }
