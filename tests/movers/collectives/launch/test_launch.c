/* SPDX-License-Identifier: BSD-2-Clause */
/* What a process learns of its launcher: by variables, of Slurm, and by PMI-1 from a server that
 * is this test, and lies. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "collectives/launch/way.h"

enum { QUICK_MS = 200, PATIENT_MS = 20000 };

static const char *const variables[] = {"SIDEWIRE_COLL_RANK",
                                        "SIDEWIRE_COLL_SIZE",
                                        "SIDEWIRE_COLL_MEET",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "PMI_FD",
                                        "MPI_LOCALNRANKS",
                                        "MPI_LOCALRANKID",
                                        "PMIX_RANK",
                                        "PMIX_NAMESPACE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_NODELIST",
                                        "SLURM_STEP_NUM_NODES",
                                        "SLURM_STEP_RESV_PORTS",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_LOCALID"};

static int clear_variables(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    return 0;
}

/* "NAME=VALUE NAME=VALUE". */
static void set_variables(const char *words)
{
    char text[400], *rest = text;
    snprintf(text, sizeof(text), "%s", words);
    clear_variables(NULL);
    for (char *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        *value = '\0';
        setenv(word, value + 1, 1);
    }
}

static void expect_failure(const char *words, enum sw_coll_status status, const char *text)
{
    struct sw_coll_launch launch = {.rank = 77};
    struct sw_coll_error error;
    set_variables(words);
    assert_int_equal(sw_coll_launch_find(&launch, QUICK_MS, &error), status);
    if (!strstr(error.text, text))
        fail_msg("'%s' is not in '%s'", text, error.text);
    assert_int_equal(launch.rank, 77);
}

static struct sw_coll_launch expect_launch(const char *words)
{
    struct sw_coll_launch launch;
    struct sw_coll_error error = {.text = ""};
    set_variables(words);
    if (sw_coll_launch_find(&launch, QUICK_MS, &error))
        fail_msg("%s: %s", words, error.text);
    return launch;
}

/* ---- variables ---- */

static void launch__variables_of_each(void **state)
{
    (void)state;
    const struct {
        const char *words, *launcher, *meet;
    } cases[] = {
        {"SIDEWIRE_COLL_RANK=1 SIDEWIRE_COLL_SIZE=3 SIDEWIRE_COLL_MEET=a:1",
         "the variables of Sidewire", "a:1"},
        {"RANK=1 WORLD_SIZE=3 MASTER_ADDR=b MASTER_PORT=29500", "the variables of torchrun",
         "b:29501"},
        {"RANK=1 WORLD_SIZE=3 MASTER_ADDR=fd00::1 MASTER_PORT=65535", "the variables of torchrun",
         "[fd00::1]:65534"},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 SIDEWIRE_COLL_MEET=a:1",
         "the variables of Open MPI", "a:1"},
        {"PMI_RANK=1 PMI_SIZE=3 SIDEWIRE_COLL_MEET=a:1", "the variables of PMI", "a:1"},
        {"SLURM_PROCID=1 SLURM_NTASKS=3 SLURM_STEP_NODELIST=n[07-9] SLURM_STEP_NUM_NODES=2 "
         "SLURM_JOB_ID=5 SLURM_STEP_ID=2",
         "the variables of Slurm", "n07:20507"},
        {"SLURM_PROCID=1 SLURM_NTASKS=9 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_NODELIST=n1 "
         "SLURM_STEP_NUM_NODES=1 SLURM_STEP_RESV_PORTS=12000-12003",
         "the variables of Slurm", "127.0.0.1:12000"},
        /* torchrun in a step of Slurm is nearer than that. */
        {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NODELIST=n1 PMIX_RANK=0 PMIX_NAMESPACE=x RANK=1 "
         "WORLD_SIZE=3 MASTER_ADDR=b MASTER_PORT=1",
         "the variables of torchrun", "b:2"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct sw_coll_launch launch = expect_launch(cases[i].words);
        assert_int_equal(launch.rank, 1);
        assert_int_equal(launch.size, 3);
        assert_string_equal(launch.launcher, cases[i].launcher);
        assert_string_equal(launch.meet, cases[i].meet);
    }
}

static void launch__variables_that_make_no_sense(void **state)
{
    (void)state;
    const enum sw_coll_status invalid = SW_COLL_INVALID;
    expect_failure("RANK=1 WORLD_SIZE=2", invalid, "no launcher has started this process");
    expect_failure("PMI_RANK=0 PMI_SIZE=two", invalid, "PMI_SIZE=two is no number");
    expect_failure("PMI_RANK=2 PMI_SIZE=2", invalid, "PMI_RANK=2, but PMI_SIZE=2");
    expect_failure("PMI_RANK=0", invalid, "PMI_SIZE is not set");
    expect_failure("PMI_RANK=0 PMI_SIZE=2", invalid, "does not know where rank 0 is");
    expect_failure("PMI_RANK=0 PMI_SIZE=2 PMI_FD=900", invalid, "does not know where rank 0 is");
    expect_failure("SIDEWIRE_COLL_RANK=0 SIDEWIRE_COLL_SIZE=2", invalid, "SIDEWIRE_COLL_MEET");
    expect_failure("RANK=0 WORLD_SIZE=2 MASTER_ADDR=b MASTER_PORT=70000", invalid, "no port");
    expect_failure("RANK=0 WORLD_SIZE=2 MASTER_ADDR= MASTER_PORT=7", invalid, "no host");
    expect_failure("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NODELIST=n[", invalid,
                   "no first node");
    expect_failure("RANK=0 WORLD_SIZE=1025 MASTER_ADDR=b MASTER_PORT=7", SW_COLL_PROTOCOL,
                   "torchrun: this is rank 0 of 1025, and ranks are 1024 at most");
    expect_failure("RANK=0 WORLD_SIZE=0 MASTER_ADDR=b MASTER_PORT=7", invalid, "WORLD_SIZE=0");
}

/* They serve to choose addresses: a host that has more ranks than there are has none. */
static void launch__numbers_of_a_host_that_make_no_sense(void **state)
{
    (void)state;
    const char *const words[] = {"LOCAL_RANK=1 LOCAL_WORLD_SIZE=4",
                                 "LOCAL_RANK=2 LOCAL_WORLD_SIZE=2",
                                 "LOCAL_RANK=x LOCAL_WORLD_SIZE=-1", "LOCAL_RANK=4000000000"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        char all[200];
        snprintf(all, sizeof(all), "RANK=1 WORLD_SIZE=3 MASTER_ADDR=b MASTER_PORT=7 %s", words[i]);
        const struct sw_coll_launch launch = expect_launch(all);
        assert_int_equal(launch.local_size, 0);
        assert_int_equal(launch.local_rank, 0);
    }
}

static void launch__first_host_of_a_list(void **state)
{
    (void)state;
    const char *const cases[][2] = {
        {"node1", "node1"},       {"a,b", "a"},  {"node[07-9,12],x", "node07"}, {"n[3]", "n3"},
        {"n[1-2]-ib,m", "n1-ib"}, {"[4-5]", "4"}};
    const char *const wrong[] = {"", ",a", "n[", "n[x]", "n[1", "n[1]m[2]", "n[]"};
    char name[16];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(coll_launch_first_host(cases[i][0], name, sizeof(name)));
        assert_string_equal(name, cases[i][1]);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (coll_launch_first_host(wrong[i], name, sizeof(name)))
            fail_msg("'%s' has '%s'", wrong[i], name);
    assert_false(coll_launch_first_host("a-name-that-is-too-long", name, sizeof(name)));
}

/* ---- PMI ---- */

/* A script: what is answered to each line that comes. Behind it the server closes, or is silent. */
struct server {
    int fd;
    bool is_silent;
    const char *const *answers;
    char heard[2000];
};

static void *serve_pmi(void *context)
{
    struct server *server = context;
    size_t used = 0;
    for (const char *const *answer = server->answers; *answer; answer++) {
        do {
            if (read(server->fd, server->heard + used, 1) != 1)
                return NULL;
        } while (server->heard[used++] != '\n');
        /* In pieces, as a stream may come. */
        const size_t bytes = strlen(*answer);
        for (size_t at = 0; at < bytes; at += 5)
            if (send(server->fd, *answer + at, bytes - at < 5 ? bytes - at : 5, MSG_NOSIGNAL) < 0)
                return NULL;
    }
    if (!server->is_silent)
        shutdown(server->fd, SHUT_WR);
    return NULL;
}

static enum sw_coll_status ask_server(struct server *server, uint32_t rank, uint32_t timeout_ms,
                                      struct sw_coll_launch *launch, struct sw_coll_error *error)
{
    pthread_t thread;
    char words[100];
    int fds[2];
    assert_false(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
    snprintf(words, sizeof(words), "PMI_RANK=%u PMI_SIZE=2 PMI_FD=%d MPI_LOCALNRANKS=2", rank,
             fds[0]);
    set_variables(words);
    server->fd = fds[1];
    assert_false(pthread_create(&thread, NULL, serve_pmi, server));
    const enum sw_coll_status status = sw_coll_launch_find(launch, timeout_ms, error);
    close(fds[0]);
    pthread_join(thread, NULL);
    close(fds[1]);
    return status;
}

#define INIT "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n"
#define SPACE "cmd=my_kvsname kvsname=kvs_1\n"
#define BARRIER "cmd=barrier_out\n"
#define LONG_NUMBER "1000000000000000000000000000000000000000000000000000000000000000000000"

static void pmi__rank_0_puts_and_others_get(void **state)
{
    (void)state;
    const char *const first[] = {
        INIT, SPACE, "cmd=put_result rc=0 msg=success\n", "cmd=barrier_out\n", "cmd=finalize_ack\n",
        NULL};
    const char *const second[] = {INIT,
                                  SPACE,
                                  "cmd=barrier_out\n",
                                  "cmd=get_result rc=0 msg=success value=192.0.2.1:7/secret\n",
                                  "cmd=finalize_ack\n",
                                  NULL};
    struct server root = {.answers = first}, other = {.answers = second};
    struct sw_coll_launch launch;
    struct sw_coll_error error = {.text = ""};
    char put[300];
    if (ask_server(&root, 0, PATIENT_MS, &launch, &error))
        fail_msg("%s", error.text);
    assert_int_equal(strlen(launch.token), 32);
    snprintf(put, sizeof(put), "\ncmd=put kvsname=kvs_1 key=sidewire-coll-meet value=%s/%s\n",
             launch.meet, launch.token);
    assert_non_null(strstr(root.heard, put));
    assert_non_null(strstr(root.heard, "cmd=init pmi_version=1 pmi_subversion=1\n"));
    if (ask_server(&other, 1, PATIENT_MS, &launch, &error))
        fail_msg("%s", error.text);
    assert_string_equal(launch.meet, "192.0.2.1:7");
    assert_string_equal(launch.token, "secret");
    assert_string_equal(launch.launcher, "PMI of mpiexec");
    assert_int_equal(launch.local_size, 2);
    assert_non_null(strstr(other.heard, "\ncmd=get kvsname=kvs_1 key=sidewire-coll-meet\n"));
    assert_non_null(strstr(other.heard, "\ncmd=finalize\n"));
}

static void pmi__a_server_that_lies(void **state)
{
    (void)state;
    static char endless[4000];
    memset(endless, 'x', sizeof(endless) - 1);
    const struct {
        const char *answers[6];
        enum sw_coll_status status;
        const char *text;
    } cases[] = {
        {{"cmd=response_to_init rc=-1\n"}, SW_COLL_SYSTEM, "refuses"},
        {{"cmd=response_to_init rc=" LONG_NUMBER "\n"}, SW_COLL_SYSTEM, "refuses"},
        {{"cmd=\x1b[2J\n"}, SW_COLL_PROTOCOL, "answers 'cmd=?[2J'"},
        {{"hello\n"}, SW_COLL_PROTOCOL, "answers 'hello'"},
        {{endless}, SW_COLL_SYSTEM, "no end"},
        {{INIT}, SW_COLL_SYSTEM, "closed the connection"},
        {{INIT, "cmd=my_kvsname\n"}, SW_COLL_PROTOCOL, "without kvsname"},
        {{INIT, SPACE, BARRIER, "cmd=get_result rc=0\n"}, SW_COLL_PROTOCOL, "without value"},
        {{INIT, SPACE, BARRIER, "cmd=get_result rc=0 value=no-slash\n"},
         SW_COLL_PROTOCOL,
         "for where rank 0 is"},
        {{INIT, SPACE, BARRIER, "cmd=get_result rc=0 value=/t\n"},
         SW_COLL_PROTOCOL,
         "for where rank 0 is"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct server server = {.answers = cases[i].answers};
        struct sw_coll_launch launch = {.size = 77};
        struct sw_coll_error error = {.text = ""};
        const enum sw_coll_status status = ask_server(&server, 1, PATIENT_MS, &launch, &error);
        if (status != cases[i].status || !strstr(error.text, cases[i].text))
            fail_msg("case %zu: status %d, '%s'", i, status, error.text);
        assert_int_equal(launch.size, 77);
    }
}

static void pmi__a_barrier_has_an_end(void **state)
{
    (void)state;
    const char *const answers[] = {INIT, SPACE, NULL};
    struct server server = {.answers = answers, .is_silent = true};
    struct sw_coll_launch launch;
    struct sw_coll_error error = {.text = ""};
    assert_int_equal(ask_server(&server, 1, QUICK_MS, &launch, &error), SW_COLL_TIMEOUT);
    assert_non_null(strstr(error.text, "not all ranks have come"));
}

/* ---- options ---- */

static void options__asked_once(void **state)
{
    (void)state;
    struct sw_coll_options options;
    struct sw_coll_error error;
    sw_coll_options_init(&options);
    set_variables("PMI_RANK=5");
    assert_int_equal(sw_coll_options_from_launcher(&options, &error), SW_COLL_INVALID);
    set_variables("SIDEWIRE_COLL_RANK=2 SIDEWIRE_COLL_SIZE=4 SIDEWIRE_COLL_MEET=a:1");
    assert_int_equal(sw_coll_options_from_launcher(&options, NULL), SW_COLL_OK);
    clear_variables(NULL);
    assert_int_equal(sw_coll_options_from_launcher(&options, NULL), SW_COLL_OK);
    assert_int_equal(options.rank, 2);
    assert_int_equal(options.size, 4);
    assert_string_equal(options.meet, "a:1");
    assert_null(options.token);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launch__variables_of_each),
        cmocka_unit_test(launch__variables_that_make_no_sense),
        cmocka_unit_test(launch__numbers_of_a_host_that_make_no_sense),
        cmocka_unit_test(launch__first_host_of_a_list),
        cmocka_unit_test(pmi__rank_0_puts_and_others_get),
        cmocka_unit_test(pmi__a_server_that_lies),
        cmocka_unit_test(pmi__a_barrier_has_an_end),
        cmocka_unit_test(options__asked_once),
    };
    return cmocka_run_group_tests(tests, clear_variables, NULL);
}
