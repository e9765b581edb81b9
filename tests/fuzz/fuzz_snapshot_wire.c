/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the server of a peer's memory and its clients read of each other: the first byte says which.
 * A message that was taken is within its bounds, and encoded again and parsed again it is the same.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/wire/message.h"

static void demand_of_wire(bool holds)
{
    if (!holds)
        abort();
}

static void read_request(const uint8_t *data, size_t size)
{
    static struct snap_wire_request one, two;
    static uint8_t bytes[SNAP_WIRE_MESSAGE_MAX];
    if (snap_wire_get_request(data, size, &one))
        return;
    demand_of_wire(one.leaves_count <= SNAP_WIRE_LEAVES_MAX);
    const bool has_name = one.type == SNAP_WIRE_OPEN || one.type == SNAP_WIRE_REMOVE;
    demand_of_wire(!has_name || snap_wire_name_is_fit(one.name));
    const size_t length = snap_wire_put_request(bytes, &one);
    demand_of_wire(length == size && !snap_wire_get_request(bytes, length, &two) &&
                   !memcmp(&one, &two, sizeof(one)));
}

static void read_answer(const uint8_t *data, size_t size)
{
    static struct snap_wire_answer one, two;
    static uint8_t bytes[SNAP_WIRE_MESSAGE_MAX];
    if (!snap_wire_get_answer(data, size, &one))
        return;
    demand_of_wire(one.count <= SNAP_WIRE_LIST_MAX && snap_wire_status_text(one.status));
    for (uint32_t i = 0; i < one.count; i++)
        demand_of_wire(snap_wire_name_is_fit(one.volumes[i].name));
    const size_t length = snap_wire_put_answer(bytes, &one);
    demand_of_wire(length == size && snap_wire_get_answer(bytes, length, &two) &&
                   !memcmp(&one, &two, sizeof(one)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] % 2)
        read_answer(data + 1, size - 1);
    else
        read_request(data + 1, size - 1);
    return 0;
}
