/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hosts PREFIX.0, PREFIX.1, ... of one address, each with a controller. In lines:
 *
 *   PREFIX.N lives      or: PREFIX.N is refused: WHY
 *   all                 of these
 *   live COUNT          (read: any line) so many are there
 *
 * It ends with its input. usage: many_hosts ADDR PORT NQN OWN-ADDR PREFIX COUNT
 */
#include <stdio.h>
#include <stdlib.h>

#include "sidewire/nvme.h"

enum { HOSTS = 128, NQN_BYTES = 224, CONNECT_MS = 30000 };

static struct sw_nvme_controller *controllers[HOSTS];

static void connect_one(char **argv, int number)
{
    char nqn[NQN_BYTES];
    struct sw_nvme_options options;
    struct sw_nvme_error error;
    snprintf(nqn, sizeof(nqn), "%s.%d", argv[5], number);
    sw_nvme_options_init(&options);
    options.traddr = argv[1];
    options.trsvcid = argv[2];
    options.subsysnqn = argv[3];
    options.host_traddr = argv[4];
    options.hostnqn = nqn;
    options.ctrl_loss_tmo_s = 0;
    options.connect_timeout_ms = CONNECT_MS;
    options.background = true;
    if (sw_nvme_connect(&options, &error, &controllers[number])) {
        controllers[number] = NULL;
        printf("%s is refused: %s\n", nqn, error.text);
    } else {
        printf("%s lives\n", nqn);
    }
}

int main(int argc, char **argv)
{
    char line[16];
    const int count = argc == 7 ? atoi(argv[6]) : 0;
    if (count < 1 || count > HOSTS)
        return 2;
    for (int i = 0; i < count; i++)
        connect_one(argv, i);
    puts("all");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        int live = 0;
        for (int i = 0; i < count; i++)
            live += controllers[i] && sw_nvme_state_of(controllers[i]) == SW_NVME_LIVE;
        printf("live %d\n", live);
        fflush(stdout);
    }
    for (int i = 0; i < count; i++)
        if (controllers[i])
            sw_nvme_disconnect(controllers[i]);
    return 0;
}
