/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/report.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

#include "cli/json.h"

static const char *const titles[] = {"Ways to a peer's memory, best first",
                                     "This process and machine", "Connections of running programs"};
static const char *const group_keys[] = {"rungs", "machine", "connections"};
static const char *const words[] = {"yes", "no", "-"};
static const char *const json_words[] = {"true", "false", "null"};

struct sw_finding *sw_report_add(struct sw_report *report, enum sw_group group,
                                 enum sw_verdict verdict, const char *name)
{
    assert(report->count < SW_FINDINGS_MAX);
    struct sw_finding *finding = &report->findings[report->count++];
    memset(finding, 0, sizeof(*finding));
    finding->group = group;
    finding->verdict = verdict;
    snprintf(finding->name, sizeof(finding->name), "%s", name);
    return finding;
}

void sw_finding_detail(struct sw_finding *finding, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(finding->detail, sizeof(finding->detail), fmt, args);
    va_end(args);
}

void sw_finding_append(struct sw_finding *finding, const char *text)
{
    size_t used = strlen(finding->detail);
    snprintf(finding->detail + used, sizeof(finding->detail) - used, "%s%s", used ? ", " : "",
             text);
}

void sw_finding_mend(struct sw_finding *finding, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(finding->mend, sizeof(finding->mend), fmt, args);
    va_end(args);
}

bool sw_report_usable(const struct sw_report *report)
{
    for (int i = 0; i < report->count; i++)
        if (report->findings[i].group == SW_GROUP_RUNGS &&
            report->findings[i].verdict == SW_VERDICT_YES)
            return true;
    return false;
}

void sw_report_print(const struct sw_report *report, FILE *out)
{
    int width = 0;
    for (int i = 0; i < report->count; i++)
        if ((int)strlen(report->findings[i].name) > width)
            width = (int)strlen(report->findings[i].name);
    for (int i = 0; i < report->count; i++) {
        const struct sw_finding *finding = &report->findings[i];
        if (i == 0 || finding->group != finding[-1].group)
            fprintf(out, "%s%s\n", i ? "\n" : "", titles[finding->group]);
        fprintf(out, "  %-*s  %-3s  %s\n", width, finding->name, words[finding->verdict],
                finding->detail);
        if (*finding->mend)
            fprintf(out, "  %-*s       mend: %s\n", width, "", finding->mend);
    }
}

static void print_json_finding(const struct sw_finding *finding, FILE *out)
{
    fputs("    {", out);
    sw_json_member(out, "name", finding->name);
    fprintf(out, ", \"works\": %s, ", json_words[finding->verdict]);
    sw_json_member(out, "detail", finding->detail);
    fputs(", ", out);
    sw_json_member(out, "mend", finding->mend);
    fputc('}', out);
}

void sw_report_print_json(const struct sw_report *report, FILE *out)
{
    fprintf(out, "{\n  \"usable\": %s", sw_report_usable(report) ? "true" : "false");
    for (int i = 0; i < report->count; i++) {
        const struct sw_finding *finding = &report->findings[i];
        bool is_first = i == 0 || finding->group != finding[-1].group;
        if (is_first)
            fprintf(out, "%s,\n  \"%s\": [\n", i ? "\n  ]" : "", group_keys[finding->group]);
        else
            fputs(",\n", out);
        print_json_finding(finding, out);
    }
    fprintf(out, "%s\n}\n", report->count ? "\n  ]" : "");
}
