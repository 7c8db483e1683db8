/* state.c: the file, its lock, its two copies, and the clock. What lives in the state is in world.c. */
#include "state.h"
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* copy[generation % 2] is the state, the other one is the writer's. */
struct sim_file {
	uint64_t magic;
	uint32_t version, size;
	_Atomic uint64_t generation;
	struct sim_node copy[2];
};

static struct {
	pthread_mutex_t mutex; /* flock does not hold threads of one process apart */
	struct sim_file *file;
	int fd, writing;
	pid_t pid;
} mine = { .mutex = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

const char *sim_path(void)
{
	const char *p = getenv("GPUSLOT_SIM_STATE");
	return p && *p ? p : SIM_STATE_PATH;
}

static void unmap(void)
{
	if (mine.file)
		munmap(mine.file, sizeof *mine.file);
	if (mine.fd >= 0)
		close(mine.fd);
	mine.file = NULL;
	mine.fd = -1;
}

static int map(void)
{
	struct stat st;
	mine.fd = open(sim_path(), O_RDWR | O_CLOEXEC);
	if (mine.fd < 0)
		return -1;
	if (fstat(mine.fd, &st) == 0 && st.st_size == (off_t)sizeof *mine.file) {
		void *p = mmap(NULL, sizeof *mine.file, PROT_READ | PROT_WRITE, MAP_SHARED, mine.fd, 0);
		mine.file = p == MAP_FAILED ? NULL : p;
	} else
		errno = EPROTO;
	if (mine.file && (mine.file->magic != SIM_MAGIC || mine.file->version != SIM_VERSION)) {
		unmap();
		errno = EPROTO;
	}
	if (mine.file)
		return 0;
	int e = errno;
	unmap();
	errno = e;
	return -1;
}

/* After fork parent and child share one open file, hence one lock: the child opens its own. A program may also
 * close descriptors that it does not know (daemons do): then the lock call says EBADF. */
static int lock(void)
{
	if (mine.pid != getpid()) {
		mine.mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* its holder stayed in the parent */
		unmap();
		mine.writing = 0;
		mine.pid = getpid();
	}
	pthread_mutex_lock(&mine.mutex);
	for (int try = 0; try < 2; try++) {
		int r = mine.file ? 0 : map();
		while (r == 0 && (r = flock(mine.fd, LOCK_EX)) < 0 && errno == EINTR)
			r = 0;
		if (r == 0)
			return 0;
		if (errno != EBADF)
			break;
		mine.fd = -1;
		unmap();
	}
	int e = errno;
	pthread_mutex_unlock(&mine.mutex);
	errno = e;
	return -1;
}

static void unlock(void)
{
	flock(mine.fd, LOCK_UN);
	pthread_mutex_unlock(&mine.mutex);
}

static struct sim_node *current(void) { return &mine.file->copy[atomic_load(&mine.file->generation) % 2]; }

static struct sim_node *spare(void)
{
	struct sim_node *next = &mine.file->copy[(atomic_load(&mine.file->generation) + 1) % 2];
	memcpy(next, current(), sizeof *next);
	return next;
}

static void commit(void) { atomic_fetch_add(&mine.file->generation, 1); }

const struct sim_node *sim_read(void)
{
	if (lock() < 0)
		return NULL;
	if (world_has_dead(current())) {
		world_bury(spare());
		commit();
	}
	mine.writing = 0;
	return current();
}

struct sim_node *sim_write(void)
{
	if (lock() < 0)
		return NULL;
	struct sim_node *n = spare();
	if (world_has_dead(n))
		world_bury(n);
	mine.writing = 1;
	return n;
}

void sim_end(void)
{
	if (mine.writing)
		commit();
	mine.writing = 0;
	unlock();
}

void sim_abort(void)
{
	mine.writing = 0;
	unlock();
}

void sim_close(void)
{
	pthread_mutex_lock(&mine.mutex);
	unmap();
	pthread_mutex_unlock(&mine.mutex);
}

/* Not O_CREAT on the final name: in a sticky directory the kernel refuses that to other accounts. */
static int create(const struct sim_node *node)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof path, "%s.%d", sim_path(), (int)getpid()) >= (int)sizeof path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return -1;
	struct sim_file *f = MAP_FAILED;
	int ok = fchmod(fd, 0666) == 0 && ftruncate(fd, sizeof *f) == 0;
	if (ok)
		f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (f != MAP_FAILED) {
		f->magic = SIM_MAGIC;
		f->version = SIM_VERSION;
		f->size = sizeof *f;
		f->copy[0] = *node;
		munmap(f, sizeof *f);
	}
	ok = f != MAP_FAILED && rename(path, sim_path()) == 0;
	int e = errno;
	if (!ok)
		unlink(path);
	close(fd);
	errno = e;
	return ok ? 0 : -1;
}

int sim_create(const struct sim_node *node)
{
	struct sim_node *n = sim_write();
	if (!n)
		return errno == ENOENT || errno == EPROTO ? create(node) : -1;
	*n = *node;
	sim_end();
	return 0;
}

uint64_t sim_now(const struct sim_node *n)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)((int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000 + n->clock_offset);
}
