/* gpujob: a GPU job made of words, on any driver: what each step did stands in a line of JSON. */
#include "driver.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
	"gpujob: does what the words say and tells each step in a line of JSON: the CUDA result, how long it took, and what was\n"
	"learnt. It ends with 1 at the first error.\n"
	"\n"
	"  devices             the devices that CUDA shows\n"
	"  context             make the context of device 0 (whatever needs one does it, too)\n"
	"  info                free and total memory, multiprocessors\n"
	"  alloc|managed|async|create MIB  allocate by that call; managed memory is touched, as far as the library can\n"
	"  fill MIB            allocate in steps of so much until an error, which is no failure; free all of it\n"
	"  free                free the newest allocation of alloc\n"
	"  export FILE, import FILE  the newest allocation as an IPC handle\n"
	"  load PERCENT MS     be busy on that share of the multiprocessors for a time\n"
	"  compute PERCENT N   N times 16 multiply-adds in each thread of that share of the multiprocessors\n"
	"  stream MIB N        read and write a buffer N times\n"
	"  repeat N WORD A B   one of these three N times, told once\n"
	"  busy PERCENT MS     load again and again until standard input ends, told when the first one is under way and at the\n"
	"                      end\n"
	"  fault KIND          illegal_address, misaligned_address, launch_failed, assert\n"
	"  sync                learn what happened to the context\n"
	"  sleep MS            be idle\n"
	"  until eof           wait until standard input ends, using the context every 20 ms\n"
	"  go on               errors do not end the job from here on; it ends with 1 all the same\n"
	"  ptx NAME            print a kernel, without a GPU\n";

enum { ALLOCATIONS = 1 << 15, THREADS = 256, BLOCKS = 1024 };
static int device, ready, go_on, failed;
static void *context;
static pointer allocation[ALLOCATIONS];
static size_t allocations;
static pointer scratch;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double step_began;

__attribute__((noreturn)) static void usage(const char *what)
{
	fprintf(stderr, "gpujob: %s; gpujob help lists the words\n", what);
	exit(2);
}

static const char *result_name(int r)
{
	const char *name = NULL;
	if (r == NOT_EXPORTED)
		return "NOT_EXPORTED";
	if (r == SUCCESS)
		return "CUDA_SUCCESS"; /* also before the library is loaded */
	return r != NOT_LOADED && cu.error_name(r, &name) == 0 && name ? name : "UNKNOWN";
}

/* One line: the step, its result, how long it took, and more members if any. */
__attribute__((format(printf, 3, 4))) static void tell(const char *step, int r, const char *more, ...)
{
	struct timespec wall;
	clock_gettime(CLOCK_REALTIME, &wall);
	double took = (now() - step_began) * 1000;
	char members[512];
	va_list args;
	va_start(args, more);
	vsnprintf(members, sizeof members, more, args);
	va_end(args);
	printf("{\"step\":\"%s\",\"code\":%d,\"result\":\"%s\",\"ms\":%.3f,\"at\":%lld.%03ld%s%s}\n", step, r, result_name(r), took,
		(long long)wall.tv_sec, wall.tv_nsec / 1000000, *members ? "," : "", members);
	if (r != SUCCESS) {
		failed = 1;
		if (!go_on)
			exit(1);
	}
	step_began = now();
}

static void need_library(void)
{
	static int loaded;
	if (loaded)
		return;
	const char *why = driver_load();
	if (why) {
		printf("{\"step\":\"libcuda.so.1\",\"code\":-1,\"result\":\"NOT_LOADED\",\"text\":\"%s\"}\n", why);
		exit(1);
	}
	loaded = 1;
}

static int need_init(void)
{
	need_library();
	if (!ready) {
		int r = cu.init(0), version = 0;
		if (cu.version)
			cu.version(&version);
		tell("cuInit", r, "\"cuda\":%d", version);
		ready = r == SUCCESS;
	}
	return ready;
}

static int need_context(void)
{
	if (context || !need_init())
		return context != NULL;
	void *c = NULL;
	int r = cu.get(&device, 0);
	if (r == SUCCESS)
		r = cu.retain(&c, device);
	if (r == SUCCESS)
		r = cu.set(c);
	context = r == SUCCESS ? c : NULL;
	tell("context", r, "\"pid\":%d", (int)getpid());
	return context != NULL;
}

static void show_devices(void)
{
	int count = 0;
	if (!need_init())
		return;
	int r = cu.count(&count);
	for (int i = 0; r == SUCCESS && i < count; i++) {
		char name[128] = "";
		uuid_bytes u = { { 0 } };
		int d = 0;
		if (cu.get(&d, i) != SUCCESS || cu.name(name, sizeof name, d) != SUCCESS || cu.uuid(&u, d) != SUCCESS)
			continue;
		printf("{\"device\":%d,\"name\":\"%s\",\"uuid\":\"", i, name);
		for (int k = 0; k < 16; k++)
			printf("%s%02x", k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "", (unsigned char)u.bytes[k]);
		puts("\"}");
	}
	tell("devices", r, "\"devices\":%d", count);
}

static int multiprocessors(void)
{
	int n = 0;
	return cu.attribute && cu.attribute(&n, MULTIPROCESSORS, device) == SUCCESS ? n : 0;
}

static void do_info(void)
{
	size_t left = 0, total = 0;
	if (!need_context())
		return;
	int r = cu.info(&left, &total);
	tell("info", r, "\"free_mib\":%zu,\"total_mib\":%zu,\"multiprocessors\":%d", left >> 20, total >> 20, multiprocessors());
}

static long number(const char *s)
{
	char *end = NULL;
	long n = s ? strtol(s, &end, 10) : -1;
	if (n < 0 || n > 1 << 30 || !end || *end || end == s)
		usage("a word needs a whole number");
	return n;
}

/* Pinned device memory by the virtual memory calls. */
static int create(size_t bytes)
{
	memory_properties p = { .type = PINNED, .location = { ON_DEVICE, device } };
	unsigned long long handle;
	size_t unit = 2 << 20;
	if (!cu.create)
		return NOT_EXPORTED;
	if (cu.granularity && cu.granularity(&unit, &p, 0) != SUCCESS)
		unit = 2 << 20;
	return cu.create(&handle, (bytes + unit - 1) / unit * unit, &p, 0);
}

static int allocate(const char *how, size_t bytes, pointer *p)
{
	int r;
	if (strcmp(how, "alloc") == 0)
		return cu.alloc(p, bytes);
	if (strcmp(how, "create") == 0)
		return create(bytes);
	if (strcmp(how, "async") == 0)
		return !cu.async ? NOT_EXPORTED : (r = cu.async(p, bytes, NULL)) == SUCCESS ? cu.sync() : r;
	r = cu.managed(p, bytes, MEM_ATTACH_GLOBAL);
	if (r == SUCCESS && cu.fill && (r = cu.fill(*p, 1, bytes)) == SUCCESS)
		r = cu.sync();
	return r;
}

static void do_alloc(const char *how, long mib)
{
	char step[64];
	pointer p = 0;
	snprintf(step, sizeof step, "%s %ld", how, mib);
	if (!need_context())
		return;
	int r = allocate(how, (size_t)mib << 20, &p);
	if (r == SUCCESS && strcmp(how, "alloc") == 0 && allocations < ALLOCATIONS)
		allocation[allocations++] = p;
	tell(step, r, "\"mib\":%ld", mib);
}

/* How much there is: the error that ends it is what was looked for. */
static void do_fill(long mib)
{
	size_t from = allocations;
	long sum = 0;
	int r = SUCCESS;
	char step[64];
	snprintf(step, sizeof step, "fill %ld", mib);
	if (!need_context())
		return;
	if (mib == 0)
		usage("fill needs a step");
	while (allocations < ALLOCATIONS && (r = cu.alloc(&allocation[allocations], (size_t)mib << 20)) == SUCCESS) {
		allocations++;
		sum += mib;
	}
	int ended = r;
	while (allocations > from)
		cu.free(allocation[--allocations]);
	tell(step, SUCCESS, "\"mib\":%ld,\"ended_code\":%d,\"ended\":\"%s\"", sum, ended, result_name(ended));
}

static void do_free(void)
{
	if (!allocations)
		usage("free: nothing is allocated");
	int r = cu.free(allocation[--allocations]);
	tell("free", r, "%s", "");
}

static void do_ipc(int out, const char *file)
{
	ipc handle;
	pointer p = 0;
	int r = NOT_EXPORTED;
	if (!need_context())
		return;
	FILE *f = fopen(file, out ? "w" : "r");
	if (!f)
		usage("the file of the handle cannot be opened");
	if (out && cu.ipc_get && allocations) {
		r = cu.ipc_get(&handle, allocation[allocations - 1]);
		if (r == SUCCESS && fwrite(&handle, sizeof handle, 1, f) != 1)
			usage("the handle cannot be written");
	} else if (!out && cu.ipc_open) {
		if (fread(&handle, sizeof handle, 1, f) != 1)
			usage("the file holds no handle");
		r = cu.ipc_open(&p, handle, IPC_LAZY_PEER);
	}
	fclose(f);
	tell(out ? "export" : "import", r, "%s", "");
}

/* A kernel with what it needs. */
struct work {
	const char *name;
	unsigned percent, amount, blocks, threads;
	unsigned long long words;
	pointer buffer;
};

/* The kernel of a name. It is loaded once: the driver compiles it then. */
static int find(void **f, const char *name)
{
	enum { KERNELS = 16 };
	static struct { const char *name; void *function; } known[KERNELS];
	void *module = NULL;
	int i = 0;
	const char *text = kernel_text(name);
	while (i < KERNELS && known[i].name && strcmp(known[i].name, name) != 0)
		i++;
	if (i < KERNELS && known[i].name)
		return *f = known[i].function, SUCCESS;
	int r = cu.module(&module, text ? text : name);
	if (r == SUCCESS)
		r = cu.function(f, module, name);
	if (r == SUCCESS && i < KERNELS)
		known[i].name = name, known[i].function = *f;
	return r;
}

static int begin(struct work *w, const char *name)
{
	void *f = NULL;
	void *parameters[] = { &w->percent, &w->amount, &w->buffer, &w->words, NULL };
	int r = find(&f, name);
	return r == SUCCESS ? cu.launch(f, w->blocks, 1, 1, w->threads, 1, 1, 0, NULL, parameters, NULL) : r;
}

static int launch(struct work *w, const char *name)
{
	int r = begin(w, name);
	return r == SUCCESS ? cu.sync() : r;
}

/* The buffer of stream, kept from one time to the next: to allocate it is no part of the work. */
static int buffer(pointer *p, size_t bytes)
{
	static pointer kept;
	static size_t size;
	int r = SUCCESS;
	if (size < bytes) {
		if (size)
			cu.free(kept);
		r = cu.alloc(&kept, bytes);
		size = r == SUCCESS ? bytes : 0;
	}
	*p = kept;
	return r;
}

static int need_scratch(void)
{
	return scratch || cu.alloc(&scratch, 2 << 20) == SUCCESS;
}

/* On how many multiprocessors the blocks were; 0 if the library cannot copy. */
static int places(unsigned blocks)
{
	static unsigned at[BLOCKS];
	char seen[BLOCKS] = { 0 };
	int n = 0;
	if (!cu.back || cu.back(at, scratch, blocks * sizeof *at) != SUCCESS)
		return 0;
	for (unsigned i = 0; i < blocks; i++)
		if (at[i] < BLOCKS && !seen[at[i]]++)
			n++;
	return n;
}

static unsigned blocks_of(long percent)
{
	unsigned n = (unsigned)((multiprocessors() * percent + 99) / 100);
	return n < 1 ? 1 : n > BLOCKS ? BLOCKS : n;
}

static void do_work(const char *name, long a, long n, long times)
{
	char step[96];
	struct work w = { .name = name, .amount = (unsigned)n, .threads = THREADS };
	int r = SUCCESS, is_stream = strcmp(name, "stream") == 0;
	snprintf(step, sizeof step, "%s %ld %ld", name, a, n);
	if (!need_context())
		return;
	if (!need_scratch())
		r = OUT_OF_MEMORY;
	w.percent = is_stream ? 100 : (unsigned)a;
	w.blocks = blocks_of(w.percent) * (is_stream ? 4 : 1);
	if (strcmp(name, "load") == 0)
		w.threads = 1024;
	w.buffer = scratch;
	if (is_stream && r == SUCCESS) {
		w.words = (unsigned long long)a << 16;
		r = buffer(&w.buffer, (size_t)a << 20);
	}
	const char *kernel = name;
	for (long i = 0; r == SUCCESS && i < times; i++) {
		r = launch(&w, kernel);
		/* A library that runs no code has only load: the time alone is simulated. */
		if (r == NOT_FOUND && i == 0 && strcmp(name, "load") != 0)
			r = launch(&w, kernel = "load");
	}
	double flop = strcmp(kernel, "compute") == 0 ? 32.0 * w.blocks * w.threads * (double)n * (double)times : 0;
	double bytes = strcmp(kernel, "stream") == 0 ? 32.0 * (double)w.words * (double)n * (double)times : 0;
	int sms = r == SUCCESS && strcmp(kernel, "load") == 0 && w.blocks <= BLOCKS ? places(w.blocks) : 0;
	tell(step, r, "\"kernel\":\"%s\",\"times\":%ld,\"blocks\":%u,\"places\":%d,\"flop\":%.0f,\"bytes\":%.0f", kernel, times, w.blocks, sms, flop, bytes);
}

static void do_fault(const char *kind)
{
	struct work w = { .name = kind, .percent = 1, .amount = 1, .blocks = 1, .threads = 1 };
	char step[64];
	snprintf(step, sizeof step, "fault %s", kind);
	if (!kernel_text(kind))
		usage("fault knows no such kind");
	if (!need_context())
		return;
	int r = need_scratch() ? SUCCESS : OUT_OF_MEMORY;
	w.buffer = scratch;
	tell(step, r == SUCCESS ? launch(&w, kind) : r, "%s", "");
}

static int input_ended(int ms)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	char b[64];
	return poll(&in, 1, ms) > 0 && read(0, b, sizeof b) <= 0;
}

/* As little work as there can be: an idle context may not notice that it is dead. */
static int touch(void)
{
	int r = need_scratch() && cu.fill ? cu.fill(scratch, 0, 4) : SUCCESS;
	return r == SUCCESS ? cu.sync() : r;
}

/* A job that waits still notices when its context dies; it says so once. */
static void until_eof(void)
{
	int r = SUCCESS;
	while (!input_ended(20))
		if (context && r == SUCCESS && (r = touch()) != SUCCESS)
			tell("until eof", r, "%s", "");
	tell("eof", SUCCESS, "%s", "");
}

/* A client that is killed at work is one of the trials and must not be the end of all others. */
static void busy(long percent, long ms)
{
	struct work w = { .name = "load", .percent = (unsigned)percent, .amount = (unsigned)ms, .threads = 1024 };
	char step[64];
	snprintf(step, sizeof step, "busy %ld %ld", percent, ms);
	if (!need_context())
		return;
	int r = need_scratch() ? SUCCESS : OUT_OF_MEMORY;
	w.blocks = blocks_of(percent);
	w.buffer = scratch;
	if (r == SUCCESS)
		r = begin(&w, "load");
	if (r == SUCCESS) {
		tell("busy begins", r, "%s", "");
		r = cu.sync();
	}
	while (r == SUCCESS && !input_ended(0))
		r = launch(&w, "load");
	tell(step, r, "%s", "");
}

static void do_sleep(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
	nanosleep(&t, NULL);
	tell("sleep", SUCCESS, "%s", "");
}

static int is(const char *a, const char *b) { return strcmp(a, b) == 0; }
static int is_work(const char *w) { return is(w, "load") || is(w, "compute") || is(w, "stream"); }

/* w[0] is the word; how many arguments it took. */
static int word(char **w, int left)
{
	const char *a = left > 1 ? w[1] : "", *b = left > 2 ? w[2] : NULL;
	step_began = now();
	if (is(w[0], "devices"))
		return show_devices(), 0;
	if (is(w[0], "context"))
		return need_context(), 0;
	if (is(w[0], "info"))
		return do_info(), 0;
	if (is(w[0], "alloc") || is(w[0], "managed") || is(w[0], "async") || is(w[0], "create"))
		return do_alloc(w[0], number(a)), 1;
	if (is(w[0], "fill"))
		return do_fill(number(a)), 1;
	if (is(w[0], "free"))
		return do_free(), 0;
	if (is(w[0], "export") || is(w[0], "import"))
		return do_ipc(is(w[0], "export"), a), 1;
	if (is_work(w[0]))
		return do_work(w[0], number(a), number(b), 1), 2;
	if (is(w[0], "repeat") && left > 4 && is_work(w[2]))
		return do_work(w[2], number(w[3]), number(w[4]), number(a)), 4;
	if (is(w[0], "busy"))
		return busy(number(a), number(b)), 2;
	if (is(w[0], "fault"))
		return do_fault(a), 1;
	if (is(w[0], "sync")) {
		if (need_context())
			tell("sync", cu.sync(), "%s", "");
		return 0;
	}
	if (is(w[0], "sleep"))
		return do_sleep(number(a)), 1;
	if (is(w[0], "until") && is(a, "eof"))
		return until_eof(), 1;
	if (is(w[0], "go") && is(a, "on"))
		return go_on = 1;
	if (is(w[0], "ptx") && kernel_text(a))
		return fputs(kernel_text(a), stdout), 1;
	usage(w[0]);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0); /* readers wait for lines */
	if (argc < 2 || is(argv[1], "help") || is(argv[1], "--help")) {
		fputs(help, argc < 2 ? stderr : stdout);
		return argc < 2 ? 2 : 0;
	}
	for (int i = 1; i < argc; i++)
		i += word(argv + i, argc - i);
	return failed;
}
