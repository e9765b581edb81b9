/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/faults/live.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

struct sw_faults *sw_faults_live;
static struct sw_faults faults;
static uint64_t started_ns;

static void report_faults(void)
{
    if (!sw_faults_live)
        return;
    char text[512];
    sw_faults_summary(&faults, text, sizeof(text));
    dprintf(STDERR_FILENO, "sidewire[%d]: faults: %s\n", (int)getpid(), text);
}

void sw_faults_start(void)
{
    static bool reports;
    const char *text = getenv("SIDEWIRE_FAULTS");
    sw_faults_live = NULL;
    if (!text || !*text)
        return;
    char error[256] = "no memory";
    if (sw_faults_parse(text, &faults, error, sizeof(error))) {
        sw_error("SIDEWIRE_FAULTS: %s; no faults are injected", error);
        return;
    }
    started_ns = sw_clock_ns();
    sw_faults_live = &faults;
    if (!reports)
        atexit(report_faults);
    reports = true;
}

uint64_t sw_faults_elapsed_ns(uint64_t now_ns)
{
    return now_ns - started_ns;
}
