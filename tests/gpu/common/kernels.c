/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu/common/kernels.h"

#include "gpu/common/answer.h"
#include "gpu/common/samples.h"

enum { BLOCK_THREADS = 256, BLOCKS_MAX = 1024 };

static const char image[] =
    ".version 6.4\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry spin(.param .u64 ns, .param .u64 out)\n"
    "{\n"
    "  .reg .pred %p;\n"
    "  .reg .u64 %start, %now, %gone, %limit, %out;\n"
    "  ld.param.u64 %limit, [ns];\n"
    "  ld.param.u64 %out, [out];\n"
    "  mov.u64 %start, %globaltimer;\n"
    "again:\n"
    "  mov.u64 %now, %globaltimer;\n"
    "  sub.u64 %gone, %now, %start;\n"
    "  setp.lt.u64 %p, %gone, %limit;\n"
    "  @%p bra again;\n"
    "  st.volatile.global.u64 [%out], %start;\n"
    "  st.volatile.global.u64 [%out+8], %now;\n"
    "  membar.sys;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry store(.param .u64 to, .param .u64 value)\n"
    "{\n"
    "  .reg .u64 %to, %value;\n"
    "  ld.param.u64 %to, [to];\n"
    "  ld.param.u64 %value, [value];\n"
    "  st.volatile.global.u64 [%to], %value;\n"
    "  membar.sys;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry watch(.param .u64 at, .param .u64 value, .param .u64 limit,\n"
    "                      .param .u64 out)\n"
    "{\n"
    "  .reg .pred %p;\n"
    "  .reg .u64 %at, %value, %limit, %out, %seen, %start, %now, %gone, %looks;\n"
    "  ld.param.u64 %at, [at];\n"
    "  ld.param.u64 %value, [value];\n"
    "  ld.param.u64 %limit, [limit];\n"
    "  ld.param.u64 %out, [out];\n"
    "  mov.u64 %looks, 0;\n"
    "  mov.u64 %start, %globaltimer;\n"
    "  st.volatile.global.u64 [%out], %start;\n"
    "  membar.sys;\n"
    "again:\n"
    "  ld.volatile.global.u64 %seen, [%at];\n"
    "  mov.u64 %now, %globaltimer;\n"
    "  add.u64 %looks, %looks, 1;\n"
    "  setp.eq.u64 %p, %seen, %value;\n"
    "  @%p bra done;\n"
    "  sub.u64 %gone, %now, %start;\n"
    "  setp.lt.u64 %p, %gone, %limit;\n"
    "  @%p bra again;\n"
    "done:\n"
    "  st.volatile.global.u64 [%out+8], %now;\n"
    "  st.volatile.global.u64 [%out+16], %seen;\n"
    "  st.volatile.global.u64 [%out+24], %looks;\n"
    "  membar.sys;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry ticks(.param .u64 count, .param .u64 out)\n"
    "{\n"
    "  .reg .pred %p;\n"
    "  .reg .u64 %left, %out, %last, %now;\n"
    "  ld.param.u64 %left, [count];\n"
    "  ld.param.u64 %out, [out];\n"
    "  mov.u64 %last, %globaltimer;\n"
    "again:\n"
    "  mov.u64 %now, %globaltimer;\n"
    "  setp.eq.u64 %p, %now, %last;\n"
    "  @%p bra again;\n"
    "  st.volatile.global.u64 [%out], %now;\n"
    "  mov.u64 %last, %now;\n"
    "  add.u64 %out, %out, 8;\n"
    "  sub.u64 %left, %left, 1;\n"
    "  setp.ne.u64 %p, %left, 0;\n"
    "  @%p bra again;\n"
    "  membar.sys;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry sum(.param .u64 from, .param .u64 words, .param .u64 out)\n"
    "{\n"
    "  .reg .pred %p;\n"
    "  .reg .u32 %t, %b, %n, %g;\n"
    "  .reg .u64 %from, %words, %out, %at, %step, %total, %value, %address;\n"
    "  ld.param.u64 %from, [from];\n"
    "  ld.param.u64 %words, [words];\n"
    "  ld.param.u64 %out, [out];\n"
    "  mov.u32 %t, %tid.x;\n"
    "  mov.u32 %b, %ctaid.x;\n"
    "  mov.u32 %n, %ntid.x;\n"
    "  mov.u32 %g, %nctaid.x;\n"
    "  mad.lo.u32 %t, %b, %n, %t;\n"
    "  cvt.u64.u32 %at, %t;\n"
    "  mul.wide.u32 %step, %n, %g;\n"
    "  mov.u64 %total, 0;\n"
    "again:\n"
    "  setp.ge.u64 %p, %at, %words;\n"
    "  @%p bra done;\n"
    "  mad.lo.u64 %address, %at, 8, %from;\n"
    "  ld.global.u64 %value, [%address];\n"
    "  add.u64 %total, %total, %value;\n"
    "  add.u64 %at, %at, %step;\n"
    "  bra again;\n"
    "done:\n"
    "  red.global.add.u64 [%out], %total;\n"
    "  ret;\n"
    "}\n";

void kernels_load(struct kernels *kernels)
{
    const uint64_t start = clock_ns();
    gpu_must(gpu.module_load(&kernels->module, image), "cuModuleLoadData");
    void **functions[] = {&kernels->spin, &kernels->store, &kernels->watch, &kernels->ticks,
                          &kernels->sum};
    static const char *const names[] = {"spin", "store", "watch", "ticks", "sum"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        gpu_must(gpu.module_function(functions[i], kernels->module, names[i]),
                 "cuModuleGetFunction");
    answer_begin("module_load");
    answer_number("ns", clock_ns() - start);
    answer_end();
}

static int launch_one(void *function, void *stream, void **parameters)
{
    return gpu.launch(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

int kernels_spin(const struct kernels *kernels, void *stream, uint64_t ns, gpu_pointer out)
{
    return launch_one(kernels->spin, stream, (void *[]){&ns, &out});
}

int kernels_store(const struct kernels *kernels, void *stream, gpu_pointer to, uint64_t value)
{
    return launch_one(kernels->store, stream, (void *[]){&to, &value});
}

int kernels_watch(const struct kernels *kernels, void *stream, gpu_pointer at, uint64_t value,
                  uint64_t limit_ns, gpu_pointer out)
{
    return launch_one(kernels->watch, stream, (void *[]){&at, &value, &limit_ns, &out});
}

int kernels_ticks(const struct kernels *kernels, void *stream, uint64_t count, gpu_pointer out)
{
    return launch_one(kernels->ticks, stream, (void *[]){&count, &out});
}

int kernels_sum(const struct kernels *kernels, void *stream, gpu_pointer from, uint64_t words,
                gpu_pointer out)
{
    const uint64_t blocks = (words + BLOCK_THREADS - 1) / BLOCK_THREADS;
    return gpu.launch(kernels->sum, (unsigned)(blocks > BLOCKS_MAX ? BLOCKS_MAX : blocks), 1, 1,
                      BLOCK_THREADS, 1, 1, 0, stream, (void *[]){&from, &words, &out}, NULL);
}
