#include "driver.h"

#include <dlfcn.h>
#include <string.h>

struct driver cu;

static const struct { const char *name; void *to; } imports[] = {
#define IMPORT(member, symbol) { #symbol, &cu.member },
	IMPORTS(IMPORT)
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
