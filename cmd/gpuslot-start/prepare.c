/* The PREPARE_JOB hook. It reads no job ad: gpuslotd does, and says what to print. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "start.h"

/* It outlasts a restart of the agent, during which systemd keeps the connection waiting. */
long hook_patience = 20000;

/* The longest request that the hook makes itself: the agent has room for so much from everybody, whatever
   others ask. */
enum { longest = 16000 };

/* escape appends a JSON string with its quotes. It returns 0 where that does not fit, or has zeros or
   characters beyond ASCII, which need not be UTF-8. */
static int escape(char *out, size_t *have, const char *text, size_t length)
{
	size_t n = *have;
	if (n + 1 > longest)
		return 0;
	out[n++] = '"';
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)text[i];
		if (c == 0 || c >= 0x80 || n + 8 > longest)
			return 0;
		if (c == '"' || c == '\\') {
			out[n++] = '\\';
			out[n++] = (char)c;
		} else if (c < ' ') {
			n += (size_t)sprintf(out + n, "\\u%04x", c);
		} else {
			out[n++] = (char)c;
		}
	}
	out[n++] = '"';
	*have = n;
	return 1;
}

static int append(char *out, size_t *have, const char *text)
{
	size_t n = strlen(text);
	if (*have + n > longest)
		return 0;
	memcpy(out + *have, text, n);
	*have += n;
	return 1;
}

/* refuse lets HTCondor send the job elsewhere: the node is at fault (api.CodeNoAgent). */
static int refuse(const char *reason, const char *more)
{
	const char *parts[] = { reason, more };
	printf("HookStatusCode = 373\nHookStatusMessage = \"");
	for (int i = 0; i < 2; i++)
		for (const char *c = parts[i]; *c != 0; c++) {
			if (*c == '"' || *c == '\\')
				putchar('\\');
			putchar((unsigned char)*c < ' ' ? ' ' : *c);
		}
	printf("\"\n");
	return fflush(stdout) == 0 ? 0 : 1;
}

/* give_back makes what was read of the standard input readable again, with the rest. */
static void give_back(const char *read_already, size_t length)
{
	char more[4096];
	int f = memfd_create("ad", 0);
	if (f < 0)
		return;
	for (ssize_t n = (ssize_t)length; n > 0; n = read(0, more, sizeof more), read_already = more)
		if (write(f, read_already, (size_t)n) != n)
			break;
	lseek(f, 0, SEEK_SET);
	dup2(f, 0);
	close(f);
}

/* prepare asks the agent what to say of the job on the standard input. It returns -1 where
   gpuslot-condor has to. It prints nothing of its environment, which holds HTCondor's session keys. */
int prepare(char **args)
{
	static char ad[longest + 1], request[longest + 64], reply[8 * longest];
	size_t length = 0, have = 0;
	ssize_t n = 1;
	while (length < sizeof ad && (n = read(0, ad + length, sizeof ad - length)) > 0)
		length += (size_t)n;
	const char *gpus = getenv("_CONDOR_AssignedGPUs");
	if (gpus == NULL)
		gpus = "";
	int fits = n == 0 && append(request, &have, "{\"v\":1,\"op\":\"hook\",\"hook\":{\"ad\":") &&
		   escape(request, &have, ad, length) && append(request, &have, ",\"gpus\":") &&
		   escape(request, &have, gpus, strlen(gpus)) && append(request, &have, ",\"args\":[");
	for (int i = 0; fits && args[i] != NULL; i++)
		fits = (i == 0 || append(request, &have, ",")) && escape(request, &have, args[i], strlen(args[i]));
	if (!fits || !append(request, &have, "]}}\n")) {
		give_back(ad, length);
		return -1;
	}
	request[have] = 0;
	int done = ask(request, hook_patience, reply, sizeof reply);
	if (done < 0 && errno == EAGAIN) { /* it may have heard us, and answers one question */
		char late[128];
		snprintf(late, sizeof late, "gpuslotd did not answer within %ld ms; look at: systemctl status gpuslotd", hook_patience);
		return refuse(late, "");
	}
	char *text = done == 0 ? value(reply, "error") : NULL;
	/* An agent of an earlier version, or none: it has not decided. */
	if (done != 0 || (text != NULL && strstr(text, "request: json: unknown field") != NULL)) {
		give_back(ad, length);
		return -1;
	}
	if (text != NULL)
		return refuse("gpuslotd refuses the request: ", text);
	text = value(reply, "hook");
	if (text != NULL)
		return fputs(text, stdout) >= 0 && fflush(stdout) == 0 ? 0 : 1; /* without its answer the job must not start */
	return refuse("gpuslotd answered without a decision; look at: journalctl -u gpuslotd", "");
}
