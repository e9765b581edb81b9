/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers of a server's status in the text format of Prometheus. A mover names them in a table; all
 * else is the status:
 *
 *     static const struct mover_metric metrics[] = {
 *         {"commands_total", "commands", "Commands of hosts", MOVER_COUNTER},
 *         {"region_opens_total", "regions[name].opens", "Times it was opened", MOVER_COUNTER},
 *         {0},
 *     };
 *
 * makes of {"commands": 7, "regions": [{"name": "a", "opens": 2}]}, for the mover "pmem":
 *
 *     # HELP sidewire_pmem_commands_total Commands of hosts
 *     # TYPE sidewire_pmem_commands_total counter
 *     sidewire_pmem_commands_total 7
 *     ...
 *     sidewire_pmem_region_opens_total{name="a"} 2
 */
#ifndef SW_MOVERS_METRICS_H
#define SW_MOVERS_METRICS_H

#include <jansson.h>

enum mover_metric_kind {
    MOVER_COUNTER, /* only grows while the server runs; its name ends in _total */
    MOVER_GAUGE,
};

struct mover_metric {
    const char *name; /* behind "sidewire_MOVER_" */
    /* The key in the status. "list[key].number": of each object of a list, which its `key` tells
     * apart; lists may lie in lists, and "list[a,b]" takes two keys. A boolean counts as 0 or 1.
     * Where there is no number, there is no line. */
    const char *from;
    const char *help; /* a line */
    enum mover_metric_kind kind;
};

/* The caller's to free(); NULL: no memory. `metrics` ends with a row without a name. */
char *mover_metrics_text(const char *mover, const struct mover_metric *metrics,
                         const json_t *status);

#endif
