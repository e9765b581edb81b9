/* SPDX-License-Identifier: BSD-2-Clause */
/* Which driver and which device this is: its name, where it is, all its attributes by number. */
#include <stdio.h>
#include <string.h>

#include "gpu/common/answer.h"
#include "gpu/common/driver.h"

enum { ATTRIBUTES_MAX = 160, UUID_BYTES = 16 };

static void answer_uuid(void)
{
    unsigned char uuid[UUID_BYTES] = {0};
    char text[2 * UUID_BYTES + 1];
    if (gpu.device_uuid(uuid, gpu.device))
        return;
    for (int i = 0; i < UUID_BYTES; i++)
        snprintf(text + (size_t)i * 2, 3, "%02x", uuid[i]);
    answer_text("uuid", text);
}

static void answer_attributes(void)
{
    for (int i = 1; i <= ATTRIBUTES_MAX; i++) {
        int value = 0;
        const int code = gpu.device_attribute(&value, i, gpu.device);
        if (code)
            continue;
        answer_begin("attribute");
        answer_number("number", (uint64_t)i);
        answer_signed("value", value);
        answer_end();
    }
}

int main(void)
{
    int version = 0;
    char name[128] = "", bus[32] = "";
    size_t total = 0;
    gpu_load();
    gpu.version(&version);
    gpu.device_name(name, sizeof(name), gpu.device);
    gpu.device_bus(bus, sizeof(bus), gpu.device);
    gpu.device_total(&total, gpu.device);
    answer_begin("device");
    answer_signed("cuda_version", version);
    answer_text("name", name);
    answer_text("bus", bus);
    answer_uuid();
    answer_number("total_bytes", total);
    answer_end();
    answer_attributes();
    return 0;
}
