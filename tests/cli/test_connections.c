/* SPDX-License-Identifier: BSD-2-Clause */
/* What the doctor says of a connection that stands still: one row for each reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/connections.h"
#include "link/connections.h"

struct row {
    const char *says; /* NULL: nothing */
    bool mends;
    struct sw_connection connection;
};

#define BLOCKED .link = SW_CONNECTION_IWARP, .flags = SW_CONNECTION_IS_BLOCKED

static const struct row rows[] = {
    {NULL, false, {.link = SW_CONNECTION_DIRECT, .sends = 3}},
    {"none posted",
     false,
     {.link = SW_CONNECTION_DIRECT, .sends = 3, .wait = SW_CONNECTION_WAITS_RECEIVE}},
    {"peer's process", false, {.link = SW_CONNECTION_DIRECT, .wait = SW_CONNECTION_WAITS_PROCESS}},
    {"nothing comes", true, {.link = SW_CONNECTION_ROCE, .wait = SW_CONNECTION_WAITS_PEER}},
    {"congestion", false, {.link = SW_CONNECTION_ROCE, .wait = SW_CONNECTION_WAITS_WINDOW}},
    {"fenced", false, {.link = SW_CONNECTION_ROCE, .wait = SW_CONNECTION_WAITS_FENCE}},
    {"as may be", false, {.link = SW_CONNECTION_ROCE, .wait = SW_CONNECTION_WAITS_DEPTH}},
    {"rate limit", false, {.link = SW_CONNECTION_ROCE, .wait = SW_CONNECTION_WAITS_RATE}},
    {"not connected", false, {.link = SW_CONNECTION_TCP, .wait = SW_CONNECTION_WAITS_MEETING}},
    {NULL, false, {.link = SW_CONNECTION_TCP, .wait = SW_CONNECTION_WAITS}}, /* of a later one */
    {"peer's window",
     false,
     {.link = SW_CONNECTION_TCP,
      .flags = SW_CONNECTION_IS_BLOCKED,
      .wait = SW_CONNECTION_WAITS_PROCESS,
      .tcp = {.unsent = 1}}},
    {NULL, false, {.link = SW_CONNECTION_ROCE, .sends = 3}},
    {NULL, false, {.link = SW_CONNECTION_TCP, .sends = 3}},
    {NULL, false, {.link = SW_CONNECTION_IWARP, .tcp = {.retransmits = 9, .queued = 4096}}},
    {"peer's window", false, {BLOCKED, .tcp = {.unsent = 4096, .window = 100}}},
    {"peer's window", false, {BLOCKED, .reads = 1, .tcp = {.unsent = 1, .window = 0}}},
    {"path is slower", false, {BLOCKED, .tcp = {.unsent = 4096, .window = 65536}}},
    {"does not carry", true, {BLOCKED, .tcp = {.tries = 2, .unsent = 1}}},
    {"has to speak first",
     false,
     {.link = SW_CONNECTION_IWARP, .flags = SW_CONNECTION_IS_HELD, .sends = 1}},
    {NULL, false, {.link = SW_CONNECTION_IWARP, .flags = SW_CONNECTION_IS_HELD}},
    {"nobody has read", false, {.link = SW_CONNECTION_IWARP, .tcp = {.unread = 20}}},
    {NULL,
     false,
     {.link = SW_CONNECTION_IWARP, .flags = SW_CONNECTION_IS_WATCHED, .tcp = {.unread = 20}}},
    {"answer to a READ", false, {.link = SW_CONNECTION_IWARP, .reads = 1}},
    {"not connected yet", true, {.link = SW_CONNECTION_IWARP, .stage = SW_CONNECTION_CALLS}},
    {"is not answered",
     true,
     {.link = SW_CONNECTION_IWARP, .stage = SW_CONNECTION_CALLS, .tcp = {.rtt_us = 30}}},
    {"and not asked", false, {.link = SW_CONNECTION_IWARP, .stage = SW_CONNECTION_CALLED}},
    {"neither accepted nor rejected",
     false,
     {.link = SW_CONNECTION_IWARP,
      .stage = SW_CONNECTION_CALLED,
      .flags = SW_CONNECTION_HAS_ASKED}},
};

static void trouble__of_each_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *mend = NULL, *says = sw_connection_trouble(&rows[i].connection, &mend);
        if (!!says != !!rows[i].says || (says && !strstr(says, rows[i].says)) ||
            !!*mend != rows[i].mends)
            fail_msg("row %zu: '%s', mend '%s'", i, says ? says : "nothing", mend);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(trouble__of_each_kind)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
