/* ctl.h: what the files of simgpu share. */
#ifndef GPUSLOT_SIM_CTL_H
#define GPUSLOT_SIM_CTL_H

#include "../nvml/models.h"
#include "../state/state.h"

/* die ends simgpu: 2 for what the caller wrote, 1 for what is. It takes back what was written to the state. */
__attribute__((noreturn, format(printf, 2, 3))) void die(int status, const char *format, ...);

struct sim_node *edit(void);   /* sim_write, or the end */
const struct sim_node *look(void);

uint64_t number_of(const char *what, const char *s, uint64_t most);
uint32_t gpu_of(const struct sim_node *n, const char *s); /* index, or the beginning of a UUID */

/* node.c */
void node_from_file(const char *path, struct sim_node *n);

/* show.c: the state as tables, or as JSON. */
void show(const struct sim_node *n);
void show_json(const struct sim_node *n);

/* table.c: columns as wide as their widest cell. */
struct table { int columns, cells; char *cell[4096]; };
void table_row(struct table *t, int columns, ...); /* char * each; copies */
__attribute__((format(printf, 1, 2))) const char *text(const char *format, ...); /* good for the next 64 calls */
void table_print(struct table *t, const char *title); /* nothing if there is only the heading; frees */

/* inject.c, set.c, mig.c: one function a verb. */
void verb_set(int argc, char **argv);
void verb_lists(int argc, char **argv);
void verb_stray(int argc, char **argv);
void verb_cgroups(int argc, char **argv);
void verb_xid(int argc, char **argv);
void verb_lose(int argc, char **argv);
void verb_restore(int argc, char **argv);
void verb_hang(int argc, char **argv);
void verb_release(int argc, char **argv);
void verb_fail(int argc, char **argv);
void verb_memory(int argc, char **argv);
void verb_ecc(int argc, char **argv);
void verb_remap(int argc, char **argv);
void verb_mode(int argc, char **argv);
void verb_process(int argc, char **argv);
void verb_clock(int argc, char **argv);
void verb_driver(int argc, char **argv);
void verb_mps(int argc, char **argv);
void verb_mig(int argc, char **argv);

#endif
