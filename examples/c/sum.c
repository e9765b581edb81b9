/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>

#include <sidewire/coll.h>

enum { COUNT = 1000 };

int main(int argc, char **argv)
{
    static float mine[COUNT], sum[COUNT];
    struct sw_coll_options options;
    struct sw_coll_error error;
    struct sw_coll *coll;
    sw_coll_options_init(&options);
    if (argc == 4) {
        options.rank = (uint32_t)atoi(argv[1]);
        options.size = (uint32_t)atoi(argv[2]);
        options.meet = argv[3]; /* "192.0.2.1:4450", where rank 0 is */
    } else if (sw_coll_options_from_launcher(&options, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    if (sw_coll_open(&options, &error, &coll)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    for (int i = 0; i < COUNT; i++)
        mine[i] = (float)options.rank + (float)i;
    if (sw_coll_all_reduce(coll, mine, sum, COUNT, SW_COLL_F32, SW_COLL_SUM, 0, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    printf("rank %u: %g, ..., %g\n", options.rank, (double)sum[0], (double)sum[COUNT - 1]);
    sw_coll_close(coll);
    return 0;
}
