/* What the files of gpuslot-start share. */
#ifndef GPUSLOT_START_H
#define GPUSLOT_START_H

#include <stddef.h>

/* socket_path is the agent's socket, and hook_patience how long the hook waits for its answer, in
   milliseconds. */
extern const char *socket_path;
extern long hook_patience;

/* beside makes the path of a file beside the socket: "condor/start". -1 if that is too long. */
int beside(char *out, size_t size, const char *name);

/* ask sends one line to the agent, and reads its line without the line's end, within so many
   milliseconds. It returns 0, or another number with errno, EAGAIN if the agent is late. */
int ask(const char *request, long patience, char *reply, size_t size);

/* value finds a string in a reply by its name, and takes it out of its quotes. The reply has no string
   before it. NULL if there is none. */
char *value(char *reply, const char *name);

int starts_with(const char *s, const char *prefix);

/* The verbs return the exit status, or -1 where gpuslot-condor has to do the work. In front of
   supervise's command is room for one more argument. */
int prepare(char **args);
int supervise(char **command);

#endif
