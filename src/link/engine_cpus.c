/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/engine_cpus.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static struct {
    cpu_set_t home;
    cpu_set_t all; /* that the system's first process may use: not isolated ones */
    bool is_free;  /* to leave home */
    int avoided;   /* -1: none */
} cpus;            /* the engine's alone */

/* A number of a processor, and what follows it. -1: there is none. */
static int read_cpu(const char **text)
{
    char *end;
    if (!isdigit((unsigned char)**text))
        return -1;
    errno = 0;
    unsigned long cpu = strtoul(*text, &end, 10);
    *text = end;
    return errno || cpu >= CPU_SETSIZE ? -1 : (int)cpu;
}

static bool engine_cpus_read_list(const char *text, cpu_set_t *list)
{
    CPU_ZERO(list);
    for (;; text++) {
        int first = read_cpu(&text), last = first;
        if (*text == '-') {
            text++;
            last = read_cpu(&text);
        }
        if (first < 0 || last < first)
            return false;
        for (int cpu = first; cpu <= last; cpu++)
            CPU_SET(cpu, list);
        if (*text != ',')
            return *text == '\0';
    }
}

bool sw_cpus_parse(const char *text, enum sw_cpus_wish *wish, cpu_set_t *list)
{
    *wish = SW_CPUS_LIST;
    if (strcmp(text, "auto") == 0)
        *wish = SW_CPUS_AUTO;
    else if (strcmp(text, "program") == 0)
        *wish = SW_CPUS_PROGRAM;
    else
        return engine_cpus_read_list(text, list);
    return true;
}

static bool move_thread(const cpu_set_t *where)
{
    return sched_setaffinity(0, sizeof(*where), where) == 0;
}

void sw_engine_cpus_start(void)
{
    const char *text = getenv("SIDEWIRE_ENGINE_CPUS");
    enum sw_cpus_wish wish = SW_CPUS_AUTO;
    cpu_set_t list;
    if (text && !sw_cpus_parse(text, &wish, &list)) {
        sw_warn("SIDEWIRE_ENGINE_CPUS=%s is neither auto nor program nor a list of processors as "
                "0-3,8: taken as auto",
                text);
        wish = SW_CPUS_AUTO;
    }
    if (wish == SW_CPUS_LIST && !move_thread(&list))
        sw_warn("the engine cannot run on the processors %s: %s; it runs on the program's", text,
                strerror(errno));
    cpus.avoided = -1;
    cpus.is_free = wish == SW_CPUS_AUTO &&
                   sched_getaffinity(0, sizeof(cpus.home), &cpus.home) == 0 &&
                   sched_getaffinity(1, sizeof(cpus.all), &cpus.all) == 0;
}

void sw_engine_keep_off(int cpu)
{
    if (!cpus.is_free || cpu == cpus.avoided)
        return;
    cpus.avoided = cpu;
    if (cpu < 0) {
        move_thread(&cpus.home);
        return;
    }
    cpu_set_t others = cpus.all;
    CPU_CLR(cpu, &others); /* nothing, if it is none that fits the set */
    /* Where there is no other, or a cgroup allows none, it stays where it is. */
    if (CPU_COUNT(&others) == 0 || !move_thread(&others))
        cpus.is_free = false;
}
