/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How two processes meet, which all rungs need: an abstract Unix socket, and shared memory handed
 * over it. Tried with a forked process.
 */
#ifndef SW_CLI_MEETING_H
#define SW_CLI_MEETING_H

struct sw_report;

enum sw_meeting_stage { /* how far it came */
                        SW_MEETING_MEMORY,
                        SW_MEETING_EVENTFD,
                        SW_MEETING_SOCKET,
                        SW_MEETING_BIND,
                        SW_MEETING_FORK,
                        SW_MEETING_CONNECT,
                        SW_MEETING_PASS,
                        SW_MEETING_VERIFY,
                        SW_MEETING_DONE,
};

struct sw_meeting {
    enum sw_meeting_stage stage; /* the one that failed, or DONE */
    int err;
};

void sw_meeting_try(struct sw_meeting *out);
/* Adds what came of it. */
void sw_meeting_report(const struct sw_meeting *meeting, struct sw_report *report);

#endif
