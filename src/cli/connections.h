/* SPDX-License-Identifier: BSD-2-Clause */
/* The connections of running programs, and what each waits for. */
#ifndef SW_CLI_CONNECTIONS_H
#define SW_CLI_CONNECTIONS_H

struct sw_connection;
struct sw_report;

/* Asks the running processes of this user. Notes, or "no" where one stands still for a reason that
 * shows. */
void sw_connections_probe(struct sw_report *report);

/* Why one waits, and what mends it (may be empty); NULL: nothing shows that it does. */
const char *sw_connection_trouble(const struct sw_connection *connection, const char **mend);

#endif
