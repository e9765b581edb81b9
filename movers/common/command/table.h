/* SPDX-License-Identifier: BSD-2-Clause */
/* A table whose rows are JSON objects: printed as a list with -o json, else as columns, a line each
 * at once. The keys are those of docs/vocabulary.md. */
#ifndef SW_MOVERS_TABLE_H
#define SW_MOVERS_TABLE_H

#include <jansson.h>
#include <stdbool.h>

struct mover_column {
    const char *title;
    const char *key; /* of the row; NULL: the row's label */
    int width;       /* at least; negative: to the left, 0: as it comes */
    int digits;      /* behind the point, of numbers with a fraction */
    int gap;         /* spaces before it, but one */
    double divisor;  /* of numbers with a fraction, as the text has another unit; 0: as it comes */
};

struct mover_table {
    const struct mover_column *columns; /* the last has no title */
    bool is_json;
    json_t *rows; /* all that were added: for mover_table_close() */
};

/* Prints the titles, unless it is JSON. */
void mover_table_open(struct mover_table *table, const struct mover_column *columns, bool is_json);
/* Takes the row over. `label` is what its text alone has, or NULL. */
void mover_table_add(struct mover_table *table, const char *label, json_t *row);
/* Prints `all`, which has the rows, where it is JSON; releases it in any case. Returns the exit
 * status: 1 if something could not be printed.
 *     return mover_table_close(&table, json_pack("{so}", "regions", table.rows)); */
int mover_table_close(const struct mover_table *table, json_t *all);
/* All rows of a list as columns. */
void mover_table_print(const struct mover_column *columns, const json_t *rows);

#endif
