/* SPDX-License-Identifier: BSD-2-Clause */
/* The C API of collectives, for integers.py: a library without structures. */
#include <sidewire/coll.h>
#include <stdio.h>

int integers_open(uint32_t rank, uint32_t size, const char *meet);
int integers_sum(int type, int op, const void *send, void *recv, uint64_t count);
void integers_close(void);

static struct sw_coll *coll;

static int say_status(enum sw_coll_status status, const struct sw_coll_error *error)
{
    if (status)
        fprintf(stderr, "%s\n", error->text);
    return (int)status;
}

int integers_open(uint32_t rank, uint32_t size, const char *meet)
{
    struct sw_coll_options options;
    struct sw_coll_error error;
    sw_coll_options_init(&options);
    options.rank = rank;
    options.size = size;
    options.meet = meet;
    return say_status(sw_coll_open(&options, &error, &coll), &error);
}

int integers_sum(int type, int op, const void *send, void *recv, uint64_t count)
{
    struct sw_coll_error error;
    return say_status(sw_coll_all_reduce(coll, send, recv, count, (enum sw_coll_type)type,
                                         (enum sw_coll_op)op, 0, &error),
                      &error);
}

void integers_close(void)
{
    sw_coll_close(coll);
}
