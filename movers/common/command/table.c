/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/table.h"

#include <assert.h>
#include <stdio.h>

#include "common/command/front.h"
#include "common/command/json.h"

enum { CELL_BYTES = 512 };

static void print_cell(const struct mover_column *column, bool is_first, const char *text)
{
    printf("%*s%*s", is_first ? 0 : 1 + column->gap, "", column->width, text);
}

static const char *text_of_cell(const struct mover_column *column, const json_t *value,
                                char number[CELL_BYTES])
{
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_STRING:
        return json_string_value(value);
    case JSON_INTEGER:
        snprintf(number, CELL_BYTES, "%lld", (long long)json_integer_value(value));
        return number;
    case JSON_REAL:
        snprintf(number, CELL_BYTES, "%.*f", column->digits,
                 json_real_value(value) / (column->divisor > 0 ? column->divisor : 1));
        return number;
    case JSON_TRUE:
        return "yes";
    case JSON_FALSE:
        return "no";
    case JSON_OBJECT:
    case JSON_ARRAY:
    case JSON_NULL:
        return "-";
    }
    return "-";
}

void mover_table_open(struct mover_table *table, const struct mover_column *columns, bool is_json)
{
    *table = (struct mover_table){.columns = columns, .is_json = is_json, .rows = json_array()};
    for (const struct mover_column *column = columns; !is_json && column->title; column++)
        print_cell(column, column == columns, column->title);
    if (!is_json)
        putchar('\n');
}

void mover_table_add(struct mover_table *table, const char *label, json_t *row)
{
    char number[CELL_BYTES];
    json_array_append_new(table->rows, row);
    if (table->is_json)
        return;
    for (const struct mover_column *column = table->columns; column->title; column++) {
        assert(column->key || label);
        print_cell(column, column == table->columns,
                   column->key ? text_of_cell(column, json_object_get(row, column->key), number)
                               : label);
    }
    putchar('\n');
    fflush(stdout);
}

int mover_table_close(const struct mover_table *table, json_t *all)
{
    if (table->is_json)
        return mover_print_json(all);
    json_decref(all);
    return mover_finish_output();
}

void mover_table_print(const struct mover_column *columns, const json_t *rows)
{
    struct mover_table table;
    size_t i;
    json_t *row;
    mover_table_open(&table, columns, false);
    json_array_foreach(rows, i, row) mover_table_add(&table, NULL, json_incref(row));
    mover_table_close(&table, table.rows);
}
