/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What all processes of this user on this host have counted on a device. Nothing is shared for it:
 * the reader of a counter asks each process, over the socket that stands for its slot, and its
 * engine adds up. A process takes its numbers along when it ends.
 */
#ifndef SW_LINK_DIRECT_PROCESS_SURVEY_H
#define SW_LINK_DIRECT_PROCESS_SURVEY_H

#include "device/queue/counters.h"
#include "link/connections.h"
#include "link/direct/process/control.h"

struct sw_survey_answer {
    struct sw_message head; /* as it was asked */
    struct sw_counts counts;
};

struct sw_connections_answer {
    struct sw_message head; /* `id`: where to go on, or SW_CONNECTIONS_END */
    uint32_t count;
    struct sw_connection connections[SW_CONNECTIONS_MOST];
};

/* Answers what sw_link_survey() (link.h) or sw_connections_each() of another process asks. Engine's
 * thread. */
void sw_survey_answer(int fd, const struct sw_message *asked);
void sw_survey_answer_connections(int fd, const struct sw_message *asked);

#endif
