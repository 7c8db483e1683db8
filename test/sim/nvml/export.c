/* export.c: the undocumented table that stock nvidia-smi asks for before it believes a library (else: "Mismatch in
 * versions"). Seen of nvidia-smi 535, 550 and 555: one GUID, 256 places, place 0 is the size in bytes; place 81 gives
 * a handle by index. All others may answer success and do nothing. Optional: nothing but nvidia-smi uses it. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>

enum { PLACES = 256, HANDLE_BY_INDEX = 81 };

static nvmlReturn_t handle_by_index(unsigned int index, nvmlDevice_t *device) { return nvmlDeviceGetHandleByIndex_v2(index, device); }

#define NOTHING(n) static nvmlReturn_t nothing##n(void) { if (getenv("SIM_TRACE")) fprintf(stderr, "export slot %d\n", n); return NVML_SUCCESS; }
NOTHING(0)
nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *guid);
nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *guid)
{
	static const void *places[PLACES];
	const unsigned char *g = guid;
	if (getenv("SIM_TRACE") && g) { for (int i = 0; i < 16; i++) fprintf(stderr, "%02x", g[i]); fprintf(stderr, " guid\n"); }
	if (!table || !guid)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 1; i < PLACES; i++)
		places[i] = (const void *)nothing0;
	places[0] = (const void *)sizeof places;
	places[HANDLE_BY_INDEX] = (const void *)handle_by_index;
	*table = places;
	return NVML_SUCCESS;
}
