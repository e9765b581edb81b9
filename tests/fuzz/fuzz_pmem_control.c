/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control protocol of pmem: the first byte says what the rest is taken for. A message that was
 * taken is within its bounds, and encoded again and parsed again it is the same.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pmem/wire/control.h"

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static void check_request(const uint8_t *data, size_t size)
{
    struct pmf_request one, two;
    if (pmf_get_request(data, size, &one))
        return;
    uint8_t bytes[PMF_REQUEST_MAX];
    const size_t len = pmf_put_request(bytes, &one);
    demand(len == size && !pmf_get_request(bytes, len, &two) && !memcmp(&one, &two, sizeof(one)));
}

static void check_answer(const uint8_t *data, size_t size)
{
    static struct pmf_answer one, two;
    if (!pmf_get_answer(data, size, &one))
        return;
    for (uint32_t i = 0; one.type == PMF_OPEN && i < one.count; i++)
        demand(one.ranges[i].offset + one.ranges[i].bytes <= one.regions[0].bytes &&
               one.ranges[i].bytes);
    uint8_t bytes[PMF_ANSWER_MAX];
    const size_t len = pmf_put_answer(bytes, &one);
    demand(len == size && pmf_get_answer(bytes, len, &two) && !memcmp(&one, &two, sizeof(one)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char label[PMF_NAME_BYTES];
    uint8_t instance[16];
    if (!size)
        return 0;
    const uint8_t what = data[0] % 5;
    data++;
    size--;
    if (what == 0 && !pmf_get_connect(data, size, label))
        demand(strlen(label) < sizeof(label));
    else if (what == 1)
        pmf_get_accept(data, size, instance);
    else if (what == 2)
        demand(pmf_reason_text(pmf_get_reject(data, size)) != NULL);
    else if (what == 3)
        check_request(data, size);
    else if (what == 4)
        check_answer(data, size);
    return 0;
}
