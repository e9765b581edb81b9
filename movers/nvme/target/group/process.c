/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/group/process.h"

#include <sys/random.h>
#include <unistd.h>

#include "common/serve/process_mark.h"

uint64_t nvg_draw(void)
{
    uint64_t number = 0;
    while (getrandom(&number, sizeof(number), 0) != sizeof(number) || !number)
        ;
    return number;
}

void nvg_process_describe(struct nvg_former *who)
{
    mover_boot_id(who->boot_id);
    who->start_ticks = mover_process_start(0);
    who->pid = getpid();
    who->incarnation = nvg_draw();
}
