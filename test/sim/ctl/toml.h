/* toml.h: a strict reader of the part of TOML 1.0 that a person writes for a node or for MPS v3: tables, arrays of
 * tables, lists, inline tables, strings, whole numbers, true and false. It refuses what it does not understand: dotted or
 * quoted keys, floats, dates, strings over several lines. The result is a tree of json.h. */
#ifndef GPUSLOT_SIM_TOML_H
#define GPUSLOT_SIM_TOML_H

#include "json.h"

/* toml_parse returns NULL and one sentence in error for what is not such a file. Freed by json_free. */
struct json *toml_parse(const char *text, char *error, size_t size);

#endif
