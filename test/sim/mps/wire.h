/* wire.h: what the control daemon, its command line, servers and clients say to each other on `control`.
 *
 * Evidence: strace of the real 535, 550 and 555 and a program in the server's place (measured by hand for the command
 * line; the rest was run for real while this was written). So each of our four parts also works with NVIDIA's:
 * the command line and the server with the real daemon, the daemon with the real command line. */
#ifndef GPUSLOT_SIM_MPS_WIRE_H
#define GPUSLOT_SIM_MPS_WIRE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* struct ucred; include this header first */
#endif

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* The first word of a connection says what it is. */
enum wire_kind { WIRE_SERVER = 1, WIRE_CLIENT = 2, WIRE_DEBUGGEE = 3, WIRE_UI = 4, WIRE_FATAL = 10 };

/* What a ready server is asked. */
enum wire_command { WIRE_TAKE_CLIENT = 2, WIRE_SHUTDOWN = 5, WIRE_CLIENTS = 6, WIRE_DEVICE_CLIENTS = 7,
	WIRE_GET_PERCENTAGE = 8, WIRE_SET_PERCENTAGE = 9, WIRE_GET_LIMIT = 11, WIRE_SET_LIMIT = 12, WIRE_TERMINATE = 13,
	WIRE_PS = 14, WIRE_SET_PRIORITY = 15, WIRE_STATUS = 17,
	WIRE_FIX = 1000 }; /* ours, for v3, whose words nobody has seen */

enum { WIRE_DEVICES = 32, WIRE_TEXT = 4096 };

/* One line of ps (which shows id), and one client of get_device_client_list (which shows context). */
struct wire_client { uint32_t pid, context, mig, pad; uint8_t uuid[16]; uint32_t id, pad2; };
/* A device of get_device_client_list: 76 bytes. */
struct wire_device { uint32_t bus, device; char name[64]; uint32_t function; };

/* All wait without end, as the real ones do: a stopped daemon hangs its callers. 0 or -1; a closed connection is -1. */
int wire_send(int fd, const void *data, size_t size);
int wire_receive(int fd, void *data, size_t size); /* exactly one message of that size */
ssize_t wire_receive_any(int fd, void *data, size_t size, struct ucred *from, int *passed);
int wire_pass(int fd, int passed);                 /* OUTBCUFD */
int wire_take(int fd, int *passed);
int wire_credentials(int fd);                      /* OUTBCRED with this process's pid, uid, gid */

/* The caller's side of the handshake, up to the word that says what it is (wire_connect sends that, too). fd, or -1
 * with errno of socket or connect, or EPROTO. */
int wire_dial(const char *pipe, const char *name);
int wire_connect(const char *pipe, const char *name, uint32_t kind);

/* Lines of the log: one record into the FIFO `log`, which the daemon writes out. */
enum wire_source { SOURCE_CONTROL, SOURCE_SERVER, SOURCE_CLIENT, SOURCE_OTHER, SOURCE_LEGACY };
enum { LOG_MAGIC = (int)0xABCDE000, LOG_END = (int)0xEDCBA000 };
struct log_record { uint32_t magic, pid, year, month, day, weekday, hour, minute, second, millisecond; uint64_t size; };

int log_open(const char *pipe); /* 0, or -1: there is no log, and log_line does nothing */
void log_line(enum wire_source source, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_end(void);             /* the recorder's last record */

/* The bytes of a UUID in text, "GPU-…" or "MIG-…". */
void wire_uuid(const char *text, uint8_t bytes[16]);

#endif
