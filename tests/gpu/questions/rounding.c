/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How cuMemAlloc rounds: pieces of one size are allocated until they take some MiB, and what each
 * takes by the driver and by the management library is told; how far pointers lie from each other;
 * which range the driver gives for one; which sizes are refused, and how.
 */
#include <unistd.h>

#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/nvml.h"
#include "gpu/common/samples.h"

enum { PIECES_MAX = 512, MIB = 1 << 20 };

static const size_t sizes[] = {
    1,           256,     511,     512,         513,      4096,        65536,
    65537,       262144,  MIB - 1, MIB,         MIB + 1,  2 * MIB - 1, 2 * MIB,
    2 * MIB + 1, 3 * MIB, 5 * MIB, 8 * MIB + 1, 32 * MIB, 33 * MIB,
};

static uint64_t nearest_distance(const gpu_pointer *pieces, size_t count)
{
    uint64_t nearest = UINT64_MAX;
    for (size_t i = 1; i < count; i++) {
        const uint64_t distance =
            pieces[i] > pieces[i - 1] ? pieces[i] - pieces[i - 1] : pieces[i - 1] - pieces[i];
        nearest = distance < nearest ? distance : nearest;
    }
    return nearest;
}

static size_t pieces_of(size_t bytes)
{
    const size_t wanted = 64 * (size_t)MIB / (bytes > 4096 ? bytes : 4096);
    return wanted < 2 ? 2 : wanted > PIECES_MAX ? PIECES_MAX : wanted;
}

static void ask_size(size_t bytes)
{
    static gpu_pointer pieces[PIECES_MAX];
    static struct samples allocs, frees;
    const size_t wanted = is_brief() ? 2 : pieces_of(bytes);
    const size_t before = gpu_free_bytes();
    const uint64_t used_before = nvml_used_bytes();
    size_t count = 0, after_first = before;
    int code = GPU_OK;
    allocs.count = frees.count = 0;
    for (; count < wanted && !code; count += !code) {
        const uint64_t start = clock_ns();
        code = gpu.alloc(&pieces[count], bytes);
        samples_add(&allocs, clock_ns() - start);
        if (!count)
            after_first = gpu_free_bytes();
    }
    answer_begin("alloc");
    answer_number("bytes", bytes);
    answer_code("code", code);
    answer_number("pieces", count);
    answer_number("first_took", before - after_first);
    answer_number("all_took", before - gpu_free_bytes());
    answer_signed("nvml_took", (int64_t)(nvml_used_bytes() - used_before));
    if (count > 1)
        answer_number("nearest_distance", nearest_distance(pieces, count));
    gpu_pointer base = 0;
    size_t range = 0;
    if (count && !gpu.range(&base, &range, pieces[0])) {
        answer_number("range_bytes", range);
        answer_number("range_offset", pieces[0] - base);
        answer_number("alignment", pieces[0] & -pieces[0]);
    }
    for (size_t i = 0; i < count; i++) {
        const uint64_t start = clock_ns();
        gpu.free(pieces[i]);
        samples_add(&frees, clock_ns() - start);
    }
    samples_answer(&allocs, "alloc");
    samples_answer(&frees, "free");
    answer_signed("kept_after_free", (int64_t)(before - gpu_free_bytes()));
    answer_end();
}

static void ask_refusal(const char *why, size_t bytes)
{
    gpu_pointer pointer = 0;
    const int code = gpu.alloc(&pointer, bytes);
    answer_begin("alloc_refused");
    answer_text("why", why);
    answer_number("bytes", bytes);
    answer_code("code", code);
    answer_end();
    if (!code)
        gpu.free(pointer);
}

int main(void)
{
    gpu_open();
    nvml_open();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        ask_size(sizes[i]);
    const size_t free_bytes = gpu_free_bytes();
    ask_refusal("nothing", 0);
    ask_refusal("more than is free", free_bytes + 64 * (size_t)MIB);
    ask_refusal("more than can be addressed", (size_t)1 << 60);
    answer_begin("free_of_nonsense");
    answer_code("code", gpu.free(0x1234));
    answer_end();
    answer_begin("free_of_null");
    answer_code("code", gpu.free(0));
    answer_end();
    return 0;
}
