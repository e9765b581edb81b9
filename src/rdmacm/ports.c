/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/ports.h"

#include <errno.h>
#include <stdlib.h>

struct sw_cm_port {
    struct sw_cm_port_name name;
};

int sw_cm_port_claim(struct sw_cm_port_name *name, struct sw_cm_port **out)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return -ENOMEM;
    (*out)->name = *name;
    return 0;
}

void sw_cm_port_release(struct sw_cm_port *claim)
{
    free(claim);
}

int sw_cm_port_listen(struct sw_cm_port *claim, uint64_t service_id)
{
    (void)claim;
    (void)service_id;
    return 0;
}

void sw_cm_port_fork_child(void)
{
}
