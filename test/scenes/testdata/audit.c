/* A library for LD_AUDIT. It is code of a user's in each program that gets the job's
   environment. Each writes its cgroup, and how many of the MIG nodes 1 to LAST it may open. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

unsigned int la_version(unsigned int version) { return version; }

__attribute__((constructor)) static void look(void) {
	char cgroup[2048] = "", line[2304], node[64];
	int opened = 0, fd = open("/proc/self/cgroup", O_RDONLY);
	FILE *f = fdopen(fd, "r");
	while (f && fgets(cgroup, sizeof cgroup, f) && cgroup[0] != '0')
		;
	for (int n = 1; n <= LAST; n++) {
		snprintf(node, sizeof node, "/dev/nvidia-caps/nvidia-cap%d", n);
		fd = open(node, O_RDONLY);
		opened += fd >= 0 || errno != EPERM;
	}
	int length = snprintf(line, sizeof line, "%d %s", opened, cgroup);
	fd = open("/home/alice/audit.log", O_WRONLY | O_CREAT | O_APPEND, 0644);
	if (write(fd, line, length) != length)
		_exit(1);
	close(fd);
}
