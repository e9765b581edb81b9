/* SPDX-License-Identifier: BSD-2-Clause */
/* log TEXT PORT...: appends TEXT to a log with a copy at each port of this host, and prints all. */
#include <stdio.h>
#include <string.h>

#include <sidewire/pmem_log.h>

enum { RECORD_BYTES = 4096, PATIENCE_MS = 30000 };

static int tell_failure(enum sw_pmem_log_status status, const struct sw_pmem_error *error)
{
    const char *why = error && error->text[0] ? error->text : sw_pmem_log_status_text(status);
    fprintf(stderr, "%s\n", why);
    return 1;
}

int main(int argc, char **argv)
{
    struct sw_pmem_options copies[SW_PMEM_LOG_COPIES_MAX];
    struct sw_pmem_log_options options;
    struct sw_pmem_error error = {.status = SW_PMEM_OK};
    struct sw_pmem_log_mark mark;
    struct sw_pmem_log *log;
    char record[RECORD_BYTES];
    uint32_t bytes;
    if (argc < 3 || argc - 2 > SW_PMEM_LOG_COPIES_MAX)
        return 2;
    sw_pmem_log_options_init(&options);
    options.copies = copies;
    for (int i = 2; i < argc; i++) {
        struct sw_pmem_options *copy = &copies[options.copies_count++];
        sw_pmem_options_init(copy);
        copy->address = "127.0.0.1";
        copy->port = argv[i];
    }
    const uint64_t deadline_ns = sw_pmem_deadline_ms(PATIENCE_MS);
    enum sw_pmem_log_status status = sw_pmem_log_open(&options, deadline_ns, &error, &log);
    if (status) /* 'sidewire pmem log create' makes a log */
        return tell_failure(status, &error);
    status = sw_pmem_log_append(log, argv[1], (uint32_t)strlen(argv[1]), deadline_ns, &mark);
    if (status) /* acknowledged: it is persistent on more than half of the copies */
        return tell_failure(status, NULL);
    sw_pmem_log_head(log, &mark);
    while (!(status = sw_pmem_log_read(log, &mark, record, sizeof(record), &bytes, deadline_ns)))
        printf("%.*s\n", (int)bytes, record);
    sw_pmem_log_close(log);
    return status == SW_PMEM_LOG_END ? 0 : tell_failure(status, NULL);
}
