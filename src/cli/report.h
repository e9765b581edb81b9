/* SPDX-License-Identifier: BSD-2-Clause */
/* What the doctor found, as text for people and as JSON for programs. */
#ifndef SW_CLI_REPORT_H
#define SW_CLI_REPORT_H

#include <stdbool.h>
#include <stdio.h>

enum sw_verdict {
    SW_VERDICT_YES,
    SW_VERDICT_NO,
    SW_VERDICT_NOTE, /* neither good nor bad */
};

enum sw_group { SW_GROUP_RUNGS, SW_GROUP_MACHINE, SW_GROUP_CONNECTIONS };

enum { SW_FINDINGS_MAX = 48 + 65 };

struct sw_finding {
    enum sw_group group;
    enum sw_verdict verdict;
    char name[32];
    char detail[512];
    char mend[512]; /* the command that mends it, or empty */
};

struct sw_report {
    int count;
    struct sw_finding findings[SW_FINDINGS_MAX];
};

/* Adds a finding; detail and mend are filled in by the caller. */
struct sw_finding *sw_report_add(struct sw_report *report, enum sw_group group,
                                 enum sw_verdict verdict, const char *name);
void sw_finding_detail(struct sw_finding *finding, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds to the detail, behind a comma. */
void sw_finding_append(struct sw_finding *finding, const char *text);
void sw_finding_mend(struct sw_finding *finding, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Whether at least one rung works. */
bool sw_report_usable(const struct sw_report *report);
void sw_report_print(const struct sw_report *report, FILE *out);
void sw_report_print_json(const struct sw_report *report, FILE *out);

#endif
