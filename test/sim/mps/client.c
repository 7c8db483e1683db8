/* client.c: the way of libcuda to an MPS server. */
#include "wire.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "welcome.h"

const char *mps_pipe_directory(void)
{
	const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
	return dir && *dir ? dir : "/tmp/nvidia-mps"; /* MPS documentation, "Environment Variables" */
}

/* A daemon that hangs up gave up: the server did not start in six tries (run for real, 535 and 550; libcuda's 805 is
 * from thread BR 4673). */
static int with_server(int fd, struct mps_link *link)
{
	struct server_welcome w;
	if (wire_credentials(fd) != 0 || wire_receive(fd, &w, sizeof w) != 0)
		return MPS_RPC_FAILURE;
	if (w.result == MPS_OK)
		*link = w.link;
	return w.result;
}

int mps_open(const char *pipe, struct mps_link *link)
{
	int fd = -1, control = wire_connect(pipe, "control", WIRE_CLIENT);
	if (control < 0)
		return errno == EPROTO ? MPS_CONNECTION_FAILED : MPS_ABSENT;
	int failed = wire_take(control, &fd) != 0;
	close(control);
	if (failed)
		return MPS_CONNECTION_FAILED;
	int result = with_server(fd, link);
	if (result == MPS_OK)
		link->fd = fd;
	else
		close(fd);
	return result;
}

void mps_close(struct mps_link *link)
{
	close(link->fd);
	link->fd = -1;
}
