/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/stock.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/log.h"

static pthread_once_t library_once = PTHREAD_ONCE_INIT;
static void *library; /* NULL: the next object after us has the symbols, or there is none */

static pthread_once_t table_once = PTHREAD_ONCE_INIT;
static struct sw_stock table;

static long missing_errno(void)
{
    return EOPNOTSUPP;
}

static long missing_minus(void)
{
    errno = EOPNOTSUPP;
    return -1;
}

static void *missing_null(void)
{
    errno = EOPNOTSUPP;
    return NULL;
}

#define MISSING_ERRNO ((void *)missing_errno)
#define MISSING_MINUS ((void *)missing_minus)
#define MISSING_NULL ((void *)missing_null)

static const struct entry {
    const char *name;
    const char *version;
    size_t offset;
    void *missing;
} entries[] = {
#define ENTRY(name, version, kind) \
    {"ibv_" #name, version, offsetof(struct sw_stock, name), MISSING_##kind},
    SW_STOCK_FUNCTIONS(ENTRY)
#undef ENTRY
};

/* A program that loads libibverbs with dlopen has it outside the global scope, where RTLD_NEXT does
 * not look. Our own dlopen hook would answer with ourselves, hence the libc's. */
static void stock_load_library(void)
{
    if (dlvsym(RTLD_NEXT, "ibv_alloc_pd", "IBVERBS_1.1"))
        return;
    void *(*libc_dlopen)(const char *, int) =
        (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    if (libc_dlopen)
        library = libc_dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        sw_info("no libibverbs.so.1 beside us: real RDMA devices stay out of reach");
}

void *sw_stock_find(const char *name, const char *version)
{
    pthread_once(&library_once, stock_load_library);
    void *from = library ? library : RTLD_NEXT;
    return version ? dlvsym(from, name, version) : dlsym(from, name);
}

static void fill_table(void)
{
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        void *symbol = sw_stock_find(entries[i].name, entries[i].version);
        if (!symbol)
            symbol = entries[i].missing;
        memcpy((char *)&table + entries[i].offset, &symbol, sizeof(symbol));
    }
}

const struct sw_stock *sw_stock(void)
{
    pthread_once(&table_once, fill_table);
    return &table;
}
