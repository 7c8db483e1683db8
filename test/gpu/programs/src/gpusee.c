/* gpusee: what NVML says of one GPU, list by list, in one line of JSON for each look. gpuslot merges the lists of
 * processes; here they stand as they are. It needs no NVML headers: names and structs are those of nvml.h (CUDA 12). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef void *device;
struct memory { unsigned long long total, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned gi, ci; }; /* nvmlProcessInfo_t, v2 and v3 */
struct sample { unsigned pid; unsigned long long stamp; unsigned sm, memory, encoder, decoder; };
typedef int (*list)(device, unsigned *, struct process *);

enum { SUCCESS = 0, NOT_EXPORTED = -2, PROCESSES = 256, SAMPLES = 4096 };

static void *lib;

static void *call(const char *name) { return dlsym(lib, name); }

static list newest(const char *name)
{
	char with[128];
	for (int v = 3; v >= 2; v--) { /* v1 has another struct; it is that of drivers before 450 */
		snprintf(with, sizeof with, "%s_v%d", name, v);
		list f = (list)call(with);
		if (f)
			return f;
	}
	return NULL;
}

static void show_list(const char *member, const char *name, device d)
{
	static struct process p[PROCESSES];
	unsigned n = PROCESSES;
	list f = newest(name);
	int r = f ? f(d, &n, p) : NOT_EXPORTED;
	printf(",\"%s_code\":%d,\"%s\":[", member, r, member);
	for (unsigned i = 0; r == SUCCESS && i < n; i++) {
		printf("%s{\"pid\":%u", i ? "," : "", p[i].pid);
		if (p[i].used != ~0ull)
			printf(",\"bytes\":%llu", p[i].used);
		putchar('}');
	}
	putchar(']');
}

static void show_samples(device d, unsigned long long *since)
{
	static struct sample s[SAMPLES];
	unsigned n = SAMPLES;
	int (*f)(device, struct sample *, unsigned *, unsigned long long) = (int (*)(device, struct sample *, unsigned *, unsigned long long))call("nvmlDeviceGetProcessUtilization");
	int r = f ? f(d, s, &n, *since) : NOT_EXPORTED, first = 1;
	unsigned long long newest_stamp = *since;
	printf(",\"samples_code\":%d,\"samples\":[", r);
	for (unsigned i = 0; r == SUCCESS && i < n; i++) {
		if (s[i].stamp <= *since)
			continue;
		newest_stamp = s[i].stamp > newest_stamp ? s[i].stamp : newest_stamp;
		printf("%s{\"pid\":%u,\"sm\":%u}", first ? "" : ",", s[i].pid, s[i].sm);
		first = 0;
	}
	*since = newest_stamp;
	putchar(']');
}

static void show_number(const char *member, const char *name, device d)
{
	unsigned v = 0;
	int (*f)(device, unsigned *) = (int (*)(device, unsigned *))call(name);
	if (f && f(d, &v) == SUCCESS)
		printf(",\"%s\":%u", member, v);
}

static void show_energy(device d)
{
	unsigned long long v = 0;
	int (*f)(device, unsigned long long *) = (int (*)(device, unsigned long long *))call("nvmlDeviceGetTotalEnergyConsumption");
	if (f && f(d, &v) == SUCCESS)
		printf(",\"energy_mj\":%llu", v);
}

static void look(device d, unsigned long long *since)
{
	struct timespec t;
	struct memory m;
	int (*memory)(device, struct memory *) = (int (*)(device, struct memory *))call("nvmlDeviceGetMemoryInfo");
	clock_gettime(CLOCK_REALTIME, &t);
	printf("{\"at\":%lld.%03ld", (long long)t.tv_sec, t.tv_nsec / 1000000);
	if (memory && memory(d, &m) == SUCCESS)
		printf(",\"total_mib\":%llu,\"used_mib\":%llu", m.total >> 20, m.used >> 20);
	show_number("power_mw", "nvmlDeviceGetPowerUsage", d);
	show_number("compute_mode", "nvmlDeviceGetComputeMode", d);
	show_energy(d);
	show_list("compute", "nvmlDeviceGetComputeRunningProcesses", d);
	show_list("mps", "nvmlDeviceGetMPSComputeRunningProcesses", d);
	show_samples(d, since);
	puts("}");
	fflush(stdout);
}

static int fail(const char *what, int r)
{
	printf("{\"error\":\"%s\",\"code\":%d}\n", what, r);
	return 1;
}

/* A driver without persistence mode leaves a GPU that nobody has open, and takes seconds to come back. */
static int hold(void)
{
	char b[64];
	while (read(0, b, sizeof b) > 0)
		;
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2 || argc > 4) {
		fputs("gpusee UUID [LOOKS [MS]]: what NVML says of a GPU, in a line of JSON for each look\n"
		      "gpusee UUID hold: keep the GPU open until standard input ends\n", stderr);
		return 2;
	}
	lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	int (*init)(void) = lib ? (int (*)(void))call("nvmlInit_v2") : NULL;
	int (*by_uuid)(const char *, device *) = lib ? (int (*)(const char *, device *))call("nvmlDeviceGetHandleByUUID") : NULL;
	device d;
	int r;
	if (!init || !by_uuid)
		return fail("libnvidia-ml.so.1", NOT_EXPORTED);
	if ((r = init()) != SUCCESS)
		return fail("nvmlInit_v2", r);
	if ((r = by_uuid(argv[1], &d)) != SUCCESS)
		return fail("nvmlDeviceGetHandleByUUID", r);
	if (argc > 2 && strcmp(argv[2], "hold") == 0)
		return hold();
	int looks = argc > 2 ? atoi(argv[2]) : 1, ms = argc > 3 ? atoi(argv[3]) : 100;
	unsigned long long since = 0;
	for (int i = 0; i < looks; i++) {
		struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
		if (i)
			nanosleep(&t, NULL);
		look(d, &since);
	}
	return 0;
}
