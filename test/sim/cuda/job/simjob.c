/* simjob: a GPU job made of words. It knows only libcuda.so.1, so it runs on the simulated and on a real one (there
 * load and fault do not work: the real library wants real kernels; keep is for the simulated node alone). */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../state/state.h"
#include "../cuda.h"

static const char help[] =
	"simjob: does what the words say, one line for each step; ends with 1 at the first error.\n"
	"\n"
	"  devices            list the devices that CUDA shows\n"
	"  device N           use device N from here on (0 at the start)\n"
	"  context            make the context (alloc, load and info do it too)\n"
	"  alloc MIB          allocate device memory\n"
	"  managed MIB        allocate managed memory, which is kept\n"
	"  free               free the newest allocation; free all: every one\n"
	"  info               free and total memory\n"
	"  load PERCENT TIME  keep that share of the multiprocessors busy: 20s, 500ms\n"
	"  fault KIND         a kernel that ends in illegal_address, illegal_instruction,\n"
	"                     misaligned_address, assert or launch_failed\n"
	"  sync               learn what happened to the context\n"
	"  sleep TIME         be idle\n"
	"  until eof          wait until standard input ends, looking at the context now and then\n"
	"  go on              errors do not end the job from here on; it ends with 1 all the same\n"
	"  exit on CODE       this CUDA error does end it (after go on): exit on 810\n"
	"  exit N             end with status N\n"
	"  fork               go on in a child; the parent ends as the child does\n"
	"  keep uvm           a child keeps /dev/nvidia-uvm open and nothing else, also after this process\n"
	"  keep all           a child keeps all files, as a worker of a training does\n"
	"  thread             go on in another thread; the first one ends (pthread_exit)\n"
	"  results            the CUDA results that the library has names for\n";

/* The library's functions, found by name: a linked program could not even start without a library. */
static struct {
	CUresult (*init)(unsigned);
	CUresult (*count)(int *);
	CUresult (*get)(CUdevice *, int);
	CUresult (*name)(char *, int, CUdevice);
	CUresult (*uuid)(CUuuid *, CUdevice);
	CUresult (*attribute)(int *, int, CUdevice);
	CUresult (*total)(size_t *, CUdevice);
	CUresult (*retain)(CUcontext *, CUdevice);
	CUresult (*set)(CUcontext);
	CUresult (*sync)(void);
	CUresult (*alloc)(CUdeviceptr *, size_t);
	CUresult (*managed)(CUdeviceptr *, size_t, unsigned);
	CUresult (*free)(CUdeviceptr);
	CUresult (*info)(size_t *, size_t *);
	CUresult (*module)(CUmodule *, const void *);
	CUresult (*unload)(CUmodule);
	CUresult (*function)(CUfunction *, CUmodule, const char *);
	CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
	CUresult (*error_name)(CUresult, const char **);
	CUresult (*error_text)(CUresult, const char **);
} cu;

static const struct { const char *name; void *to; } imports[] = {
	{ "cuInit", &cu.init }, { "cuDeviceGetCount", &cu.count }, { "cuDeviceGet", &cu.get }, { "cuDeviceGetName", &cu.name },
	{ "cuDeviceGetUuid_v2", &cu.uuid }, { "cuDeviceGetAttribute", &cu.attribute }, { "cuDeviceTotalMem_v2", &cu.total },
	{ "cuDevicePrimaryCtxRetain", &cu.retain }, { "cuCtxSetCurrent", &cu.set }, { "cuCtxSynchronize", &cu.sync },
	{ "cuMemAlloc_v2", &cu.alloc }, { "cuMemAllocManaged", &cu.managed }, { "cuMemFree_v2", &cu.free }, { "cuMemGetInfo_v2", &cu.info },
	{ "cuModuleLoadData", &cu.module }, { "cuModuleUnload", &cu.unload }, { "cuModuleGetFunction", &cu.function }, { "cuLaunchKernel", &cu.launch },
	{ "cuGetErrorName", &cu.error_name }, { "cuGetErrorString", &cu.error_text },
};

enum { ALLOCATIONS = 1024, CODES = 16 };
static CUdevice device;
static CUcontext context;
static CUdeviceptr allocation[ALLOCATIONS];
static size_t allocations;
static int go_on, failed, codes[CODES], code_count;

__attribute__((noreturn, format(printf, 1, 2))) static void usage(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "simjob: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "; simjob help lists the words\n");
	va_end(args);
	exit(2);
}

static void load_library(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib) {
		printf("libcuda.so.1: %s\n", dlerror());
		exit(1);
	}
	for (size_t i = 0; i < sizeof imports / sizeof *imports; i++) {
		void *f = dlsym(lib, imports[i].name);
		if (!f)
			usage("libcuda.so.1 has no %s", imports[i].name);
		memcpy(imports[i].to, &f, sizeof f);
	}
}

/* One line for each step: its words, then ok or the error. */
static void step(CUresult r, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	if (r == CUDA_SUCCESS) {
		printf(": ok\n");
		return;
	}
	const char *name = NULL, *text = NULL;
	cu.error_name(r, &name);
	cu.error_text(r, &text);
	printf(": error %d %s: %s\n", r, name ? name : "?", text ? text : "?");
	failed = 1;
	int ends = !go_on;
	for (int i = 0; i < code_count; i++)
		ends |= codes[i] == r;
	if (ends)
		exit(1);
}

static void need_init(void)
{
	static int done;
	if (!done++) {
		CUresult r = cu.init(0);
		step(r, "init");
		if (r != CUDA_SUCCESS)
			exit(1); /* go on helps nobody without a device */
	}
}

static int need_context(void)
{
	need_init();
	if (context)
		return 1;
	CUresult r = cu.retain(&context, device);
	step(r == CUDA_SUCCESS ? cu.set(context) : r, "context on device %d", device);
	return context != NULL;
}

static long number(const char *what, const char *s, long most)
{
	char *end;
	long n = s ? strtol(s, &end, 10) : -1;
	if (n < 0 || n > most || *end)
		usage("%s needs a number from 0 to %ld, not %s", what, most, s ? s : "nothing");
	return n;
}

static unsigned milliseconds(const char *what, const char *s)
{
	char *end;
	double t = s ? strtod(s, &end) : -1;
	double unit = t < 0 ? 0 : strcmp(end, "ms") == 0 ? 1 : strcmp(end, "s") == 0 ? 1000 : 0;
	if (!unit || t * unit > 1e9)
		usage("%s needs a time such as 20s or 500ms, not %s", what, s ? s : "nothing");
	return (unsigned)(t * unit);
}

static void nap(unsigned ms) { nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000l }, NULL); }

static void show_devices(void)
{
	int count = 0;
	need_init();
	CUresult r = cu.count(&count);
	step(r, "devices %d", count);
	for (int i = 0; i < count; i++) {
		char name[256] = "";
		CUuuid u = { { 0 } };
		size_t total = 0;
		int sm = 0;
		r = cu.name(name, sizeof name, i);
		r = r == CUDA_SUCCESS ? cu.uuid(&u, i) : r;
		r = r == CUDA_SUCCESS ? cu.total(&total, i) : r;
		r = r == CUDA_SUCCESS ? cu.attribute(&sm, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, i) : r;
		printf("  %d ", i);
		for (int k = 0; k < 16; k++)
			printf("%s%02x", k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "", (unsigned char)u.bytes[k]);
		step(r, " %s, %zu MiB, %d multiprocessors", name, total >> 20, sm);
	}
}

static void do_managed(long mib)
{
	CUdeviceptr kept;
	step(need_context() ? cu.managed(&kept, (size_t)mib << 20, 1) : CUDA_ERROR_INVALID_CONTEXT, "managed %ld MiB", mib);
}

static void do_alloc(long mib)
{
	if (allocations == ALLOCATIONS)
		usage("more than %d allocations", ALLOCATIONS);
	CUresult r = need_context() ? cu.alloc(&allocation[allocations], (size_t)mib << 20) : CUDA_ERROR_INVALID_CONTEXT;
	allocations += r == CUDA_SUCCESS;
	step(r, "alloc %ld MiB", mib);
}

static void do_free(int all)
{
	if (!allocations)
		usage("free: nothing is allocated");
	do
		step(cu.free(allocation[--allocations]), "free");
	while (all && allocations);
}

static void do_info(void)
{
	size_t left = 0, total = 0;
	CUresult r = need_context() ? cu.info(&left, &total) : CUDA_ERROR_INVALID_CONTEXT;
	step(r, "info %zu MiB free of %zu MiB", left >> 20, total >> 20);
}

static CUresult kernel(const char *name, unsigned percent, unsigned ms)
{
	CUmodule m;
	CUfunction f;
	void *parameters[] = { &percent, &ms, NULL };
	CUresult r = need_context() ? cu.module(&m, "simjob") : CUDA_ERROR_INVALID_CONTEXT;
	if (r != CUDA_SUCCESS)
		return r;
	r = cu.function(&f, m, name);
	if (r == CUDA_SUCCESS)
		r = cu.launch(f, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
	if (r == CUDA_SUCCESS)
		r = cu.sync();
	cu.unload(m);
	return r;
}

/* A job that waits still notices when its context dies: within 50 ms at first, within 500 ms later. Each look
 * costs the whole node: it holds the lock of the state and reads a file of /proc for each process. */
static void until_eof(void)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	for (int wait = 50;; wait = wait < 500 ? wait + 50 : 500) {
		char b[64];
		if (poll(&in, 1, wait) > 0 && read(0, b, sizeof b) <= 0)
			break;
		CUresult r = context ? cu.sync() : CUDA_SUCCESS;
		if (r == CUDA_SUCCESS)
			continue;
		step(r, "until eof");
		context = NULL; /* said once */
	}
	step(CUDA_SUCCESS, "until eof");
}

static void in_child(void)
{
	int status = 0;
	pid_t child = fork();
	if (child < 0 || (child > 0 && waitpid(child, &status, 0) < 0)) {
		perror("fork");
		exit(1);
	}
	if (child > 0)
		exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* The memory of this process then stays in use after its end. Only the simulated node knows that from its state. */
static void keep(int all)
{
	need_init();
	pid_t child = fork();
	for (int fd = 0; child == 0 && !all && fd < 1024; fd++) {
		char path[32], to[64] = "";
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		if (readlink(path, to, sizeof to - 1) > 0 && strcmp(to, "/dev/nvidia-uvm") != 0)
			close(fd);
	}
	while (child == 0)
		pause();
	struct sim_node *n = child > 0 ? sim_write() : NULL;
	int r = n ? sim_add_keeper(n, child, getpid()) : -1;
	if (n)
		sim_end();
	step(r == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM, "keep %s", all ? "all" : "uvm");
}

static int words(char **w);

static void *in_thread(void *w)
{
	if (context)
		cu.set(context);
	exit(words(w));
}

/* The process is a zombie for ps and goes on. */
__attribute__((noreturn)) static void leave_first(char **w)
{
	pthread_t other;
	if (pthread_create(&other, NULL, in_thread, w) != 0) {
		perror("pthread_create");
		exit(1);
	}
	pthread_exit(NULL);
}

static void show_results(void)
{
	for (CUresult r = 0; r < 1000; r++) {
		const char *name = NULL, *text = NULL;
		if (cu.error_name(r, &name) == CUDA_SUCCESS && name && cu.error_text(r, &text) == CUDA_SUCCESS)
			printf("%d %s: %s\n", r, name, text);
	}
}

static void use_device(long n)
{
	need_init();
	context = NULL;
	step(cu.get(&device, (int)n), "device %ld", n);
}

/* w[0] is the word; how many arguments it took. */
static int word(char **w)
{
	const char *a = w[1] ? w[1] : "", *b = a[0] && w[2] ? w[2] : "";
	if (strcmp(w[0], "devices") == 0)
		return show_devices(), 0;
	if (strcmp(w[0], "device") == 0)
		return use_device(number("device", a, 255)), 1;
	if (strcmp(w[0], "context") == 0)
		return need_context(), 0;
	if (strcmp(w[0], "managed") == 0)
		return do_managed(number("managed", a, 1 << 24)), 1;
	if (strcmp(w[0], "alloc") == 0)
		return do_alloc(number("alloc", a, 1 << 24)), 1;
	if (strcmp(w[0], "free") == 0)
		return do_free(strcmp(a, "all") == 0), strcmp(a, "all") == 0;
	if (strcmp(w[0], "info") == 0)
		return do_info(), 0;
	if (strcmp(w[0], "load") == 0) {
		unsigned percent = (unsigned)number("load", a, 100), ms = milliseconds("load", b);
		return step(kernel("load", percent, ms), "load %s %s", a, b), 2;
	}
	if (strcmp(w[0], "fault") == 0)
		return step(kernel(a, 0, 0), "fault %s", a), 1;
	if (strcmp(w[0], "sync") == 0)
		return step(need_context() ? cu.sync() : CUDA_ERROR_INVALID_CONTEXT, "sync"), 0;
	if (strcmp(w[0], "sleep") == 0)
		return nap(milliseconds("sleep", a)), step(CUDA_SUCCESS, "sleep %s", a), 1;
	if (strcmp(w[0], "until") == 0 && strcmp(a, "eof") == 0)
		return until_eof(), 1;
	if (strcmp(w[0], "go") == 0 && strcmp(a, "on") == 0)
		return go_on = 1;
	if (strcmp(w[0], "exit") == 0 && strcmp(a, "on") == 0 && code_count < CODES)
		return codes[code_count++] = (int)number("exit on", b, 999), 2;
	if (strcmp(w[0], "fork") == 0)
		return in_child(), 0;
	if (strcmp(w[0], "keep") == 0 && (strcmp(a, "uvm") == 0 || strcmp(a, "all") == 0))
		return keep(strcmp(a, "all") == 0), 1;
	if (strcmp(w[0], "thread") == 0)
		leave_first(w + 1);
	if (strcmp(w[0], "results") == 0)
		return show_results(), 0;
	if (strcmp(w[0], "exit") == 0)
		exit((int)number("exit", a, 255));
	usage("no word %s", w[0]);
}

static int words(char **w)
{
	while (*w)
		w += 1 + word(w);
	return failed;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0); /* readers wait for lines */
	if (argc < 2 || strstr("--help", argv[1])) {
		fputs(help, argc < 2 ? stderr : stdout);
		return argc < 2 ? 2 : 0;
	}
	load_library();
	return words(argv + 1);
}
