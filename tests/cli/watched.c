/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens a device and registers memory, for test_checkers.py, which has it looked at by sanitizers
 * and valgrind. With "fault" it makes a fault of its own: it reads what it has freed. */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 20 };

static void *fill_memory(void *memory)
{
    memset(memory, 1, BYTES);
    return NULL;
}

int main(int argc, char **argv)
{
    int count = 0;
    pthread_t thread;
    struct ibv_device **devices = ibv_get_device_list(&count);
    if (!count)
        return 3;
    struct ibv_context *verbs = ibv_open_device(devices[0]);
    struct ibv_pd *pd = ibv_alloc_pd(verbs);
    char *memory = malloc(BYTES);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE);
    if (!mr || pthread_create(&thread, NULL, fill_memory, memory))
        return 4;
    pthread_join(thread, NULL);
    const int sum = memory[0] + memory[BYTES - 1];
    ibv_dereg_mr(mr);
    free(memory);
    ibv_dealloc_pd(pd);
    ibv_close_device(verbs);
    ibv_free_device_list(devices);
    printf("sum %d\n", sum);
    if (argc > 1 && !strcmp(argv[1], "fault"))
        printf("read %d\n", *(volatile char *)memory);
    return 0;
}
