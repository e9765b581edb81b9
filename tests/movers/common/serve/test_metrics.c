/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers of a status as Prometheus reads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "common/serve/metrics.h"

static char *text_of(const struct mover_metric *metrics, const char *status)
{
    json_t *json = json_loads(status, 0, NULL);
    assert_non_null(json);
    char *text = mover_metrics_text("echo", metrics, json);
    json_decref(json);
    assert_non_null(text);
    return text;
}

static void check_text(const struct mover_metric *metrics, const char *status, const char *expected)
{
    char *text = text_of(metrics, status);
    assert_string_equal(text, expected);
    free(text);
}

static void metrics__are_numbers_of_the_status(void **state)
{
    static const struct mover_metric metrics[] = {
        {"calls_total", "calls", "Calls", MOVER_COUNTER},
        {"clients", "clients", "Clients now", MOVER_GAUGE},
        {"is_open", "is_open", "1: it is", MOVER_GAUGE},
        {"load", "load", "Share", MOVER_GAUGE},
        {0},
    };
    (void)state;
    check_text(metrics,
               "{\"calls\": 9007199254740993, \"clients\": 0, \"is_open\": true, \"load\": 0.5}",
               "# HELP sidewire_echo_calls_total Calls\n"
               "# TYPE sidewire_echo_calls_total counter\n"
               "sidewire_echo_calls_total 9007199254740993\n"
               "# HELP sidewire_echo_clients Clients now\n"
               "# TYPE sidewire_echo_clients gauge\n"
               "sidewire_echo_clients 0\n"
               "# HELP sidewire_echo_is_open 1: it is\n"
               "# TYPE sidewire_echo_is_open gauge\n"
               "sidewire_echo_is_open 1\n"
               "# HELP sidewire_echo_load Share\n"
               "# TYPE sidewire_echo_load gauge\n"
               "sidewire_echo_load 0.5\n");
}

#define HEAD "# HELP sidewire_echo_reads_total Reads\n# TYPE sidewire_echo_reads_total counter\n"

static void metrics__of_lists_are_told_apart_by_labels(void **state)
{
    static const struct mover_metric metrics[] = {
        {"reads_total", "groups[name].parts[id,kind].reads", "Reads", MOVER_COUNTER}, {0}};
    (void)state;
    check_text(metrics,
               "{\"groups\": [{\"name\": \"a\", \"parts\": [{\"id\": 1, \"kind\": \"x\", "
               "\"reads\": 5}, {\"id\": 2, \"kind\": \"y\", \"reads\": 6}]}, {\"name\": \"b\", "
               "\"parts\": []}, {\"name\": \"c\", \"parts\": [{\"id\": 1, \"kind\": \"x\", "
               "\"reads\": 7}]}]}",
               HEAD "sidewire_echo_reads_total{name=\"a\",id=\"1\",kind=\"x\"} 5\n"
                    "sidewire_echo_reads_total{name=\"a\",id=\"2\",kind=\"y\"} 6\n"
                    "sidewire_echo_reads_total{name=\"c\",id=\"1\",kind=\"x\"} 7\n");
}

/* Names of hosts and regions are others' words. */
static void metrics__have_labels_that_nobody_breaks_out_of(void **state)
{
    static const struct mover_metric metrics[] = {
        {"reads_total", "parts[name].reads", "Reads", MOVER_COUNTER}, {0}};
    (void)state;
    check_text(metrics, "{\"parts\": [{\"name\": \"a\\\"} 9\\nb\\\\\", \"reads\": 1}]}",
               HEAD "sidewire_echo_reads_total{name=\"a\\\"} 9\\nb\\\\\"} 1\n");
}

static void metrics__of_long_names_are_cut(void **state)
{
    static const struct mover_metric metrics[] = {
        {"reads_total", "parts[name,second].reads", "Reads", MOVER_COUNTER}, {0}};
    static char status[5000], name[4097];
    (void)state;
    memset(name, '\'', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    snprintf(status, sizeof(status),
             "{\"parts\": [{\"name\": \"%s\", \"second\": \"%s\", \"reads\": 1}]}", name, "two");
    char *text = text_of(metrics, status);
    assert_non_null(strstr(text, "'\"} 1\n"));
    assert_true(strlen(text) < 1400);
    free(text);
    for (size_t i = 0; i < sizeof(name) - 1; i++)
        name[i] = i % 2 ? '\xa4' : '\xc3';
    for (int odd = 0; odd < 2; odd++) { /* cut behind a character, and within one */
        snprintf(status, sizeof(status), "{\"parts\": [{\"name\": \"%s%s\", \"reads\": 1}]}",
                 odd ? "a" : "", name);
        text = text_of(metrics, status);
        json_t *is_utf8 = json_string(text);
        assert_non_null(is_utf8);
        json_decref(is_utf8);
        free(text);
    }
}

static void metrics__without_a_number_have_no_line(void **state)
{
    static const struct mover_metric metrics[] = {
        {"reads_total", "reads", "Reads", MOVER_COUNTER},
        {0},
    };
    (void)state;
    check_text(metrics, "{}", HEAD);
    check_text(metrics, "{\"reads\": \"many\"}", HEAD);
    check_text(metrics, "{\"reads\": null}", HEAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics__are_numbers_of_the_status),
        cmocka_unit_test(metrics__of_lists_are_told_apart_by_labels),
        cmocka_unit_test(metrics__have_labels_that_nobody_breaks_out_of),
        cmocka_unit_test(metrics__of_long_names_are_cut),
        cmocka_unit_test(metrics__without_a_number_have_no_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
