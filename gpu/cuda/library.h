/* The driver API's functions that the client calls, found by name. All but cuda_load return a CUresult, and may be
 * called only after cuda_load has returned NULL. One device, one context, one allocation: that is all there is. */
#include <stddef.h>

const char *cuda_load(void); /* why it cannot be used; NULL if it can */
int cuda_driver_version(int *version);
int cuda_init(void);
int cuda_device_count(int *count);
int cuda_context(void);
int cuda_release(void);
int cuda_mem_info(size_t *left, size_t *total);
int cuda_alloc(size_t bytes);
int cuda_free(void);
const char *cuda_name(int result);
const char *cuda_text(int result);
