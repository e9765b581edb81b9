/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that load libibverbs by hand, in the way of collective libraries: dlopen, then dlvsym
 * for each function. And that the hook in between changes nothing for other libraries.
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *library_of(const void *symbol)
{
    Dl_info info;
    assert_true(dladdr(symbol, &info));
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

static const char *library_of_handle(void *handle)
{
    struct link_map *map;
    if (!handle)
        fail_msg("%s", dlerror());
    assert_int_equal(dlinfo(handle, RTLD_DI_LINKMAP, &map), 0);
    const char *slash = strrchr(map->l_name, '/');
    return slash ? slash + 1 : map->l_name;
}

static void dlopen__gives_our_library_for_libibverbs(void **state)
{
    (void)state;
    static const char *const names[] = {
        "libibverbs.so",
        "libibverbs.so.1",
        "libibverbs.so.1.14.44.0",
        "/usr/lib/x86_64-linux-gnu/libibverbs.so.1",
        "/no/such/folder/libibverbs.so.1",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *handle = dlopen(names[i], RTLD_NOW);
        assert_string_equal(library_of_handle(handle), "libsidewire.so");
        assert_int_equal(dlclose(handle), 0);
    }
}

static void dlopen__leaves_other_names_alone(void **state)
{
    (void)state;
    assert_null(dlopen("libibverbs.so.2", RTLD_NOW));
    assert_non_null(strstr(dlerror(), "libibverbs.so.2"));
    assert_null(dlopen("xlibibverbs.so.1", RTLD_NOW));
    void *handle = dlopen("libm.so.6", RTLD_NOW);
    assert_string_equal(library_of_handle(handle), "libm.so.6");
    dlclose(handle);
    handle = dlopen(NULL, RTLD_NOW);
    assert_non_null(dlsym(handle, "getpid"));
    dlclose(handle);
}

/* The sanitizers have a dlopen of their own, which calls libc's: whatever we do, the caller is then
 * theirs. */
#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* libc finds the caller's RUNPATH by the return address: the hook must not be there instead of us.
 */
static void dlopen__searches_the_callers_runpath(void **state)
{
    (void)state;
    if (SANITIZED) {
        print_message("skipped: a sanitizer's dlopen is between the caller and libc's\n");
        skip();
    }
    void *handle = dlopen("libsidewire-test-runpath.so", RTLD_NOW);
    assert_string_equal(library_of_handle(handle), "libsidewire-test-runpath.so");
    int (*answer)(void) = (int (*)(void))dlsym(handle, "runpath_answer");
    assert_int_equal(answer(), 42);
    dlclose(handle);
}

static void dlvsym__finds_what_collective_libraries_ask_for(void **state)
{
    (void)state;
    static const struct {
        const char *name, *version;
    } symbols[] = {
        {"ibv_get_device_list", "IBVERBS_1.1"},
        {"ibv_free_device_list", "IBVERBS_1.1"},
        {"ibv_get_device_name", "IBVERBS_1.1"},
        {"ibv_open_device", "IBVERBS_1.1"},
        {"ibv_close_device", "IBVERBS_1.1"},
        {"ibv_get_async_event", "IBVERBS_1.1"},
        {"ibv_ack_async_event", "IBVERBS_1.1"},
        {"ibv_query_device", "IBVERBS_1.1"},
        {"ibv_query_port", "IBVERBS_1.1"},
        {"ibv_query_gid", "IBVERBS_1.1"},
        {"ibv_query_qp", "IBVERBS_1.1"},
        {"ibv_alloc_pd", "IBVERBS_1.1"},
        {"ibv_dealloc_pd", "IBVERBS_1.1"},
        {"ibv_reg_mr", "IBVERBS_1.1"},
        {"ibv_reg_mr_iova2", "IBVERBS_1.8"},
        {"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
        {"ibv_dereg_mr", "IBVERBS_1.1"},
        {"ibv_create_comp_channel", "IBVERBS_1.0"},
        {"ibv_destroy_comp_channel", "IBVERBS_1.0"},
        {"ibv_create_cq", "IBVERBS_1.1"},
        {"ibv_destroy_cq", "IBVERBS_1.1"},
        {"ibv_create_qp", "IBVERBS_1.1"},
        {"ibv_modify_qp", "IBVERBS_1.1"},
        {"ibv_destroy_qp", "IBVERBS_1.1"},
        {"ibv_fork_init", "IBVERBS_1.1"},
        {"ibv_event_type_str", "IBVERBS_1.1"},
        {"ibv_query_ece", "IBVERBS_1.10"},
        {"ibv_set_ece", "IBVERBS_1.10"},
    };
    void *handle = dlopen("libibverbs.so.1", RTLD_NOW);
    assert_non_null(handle);
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlvsym(handle, symbols[i].name, symbols[i].version);
        if (!symbol)
            fail_msg("%s", dlerror());
        assert_string_equal(library_of(symbol), "libsidewire.so");
    }
    dlclose(handle);
}

static void dlvsym__the_functions_show_our_devices(void **state)
{
    (void)state;
    void *handle = dlopen("libibverbs.so.1", RTLD_NOW);
    struct ibv_device **(*get_list)(int *) =
        (struct ibv_device * *(*)(int *)) dlvsym(handle, "ibv_get_device_list", "IBVERBS_1.1");
    void (*free_list)(struct ibv_device **) =
        (void (*)(struct ibv_device **))dlsym(handle, "ibv_free_device_list");
    const char *(*get_name)(struct ibv_device *) =
        (const char *(*)(struct ibv_device *))dlsym(handle, "ibv_get_device_name");
    assert_true(get_list && free_list && get_name);
    int count = 0, loopbacks = 0;
    struct ibv_device **list = get_list(&count);
    assert_non_null(list);
    for (int i = 0; i < count; i++) {
        loopbacks += !strcmp(get_name(list[i]), "sw_lo");
        char path[128]; /* as NCCL does, for the place of the NIC */
        snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", get_name(list[i]));
        char *place = realpath(path, NULL);
        assert_non_null(place);
        free(place);
    }
    assert_int_equal(loopbacks, 1);
    free_list(list);
    dlclose(handle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dlopen__gives_our_library_for_libibverbs),
        cmocka_unit_test(dlopen__leaves_other_names_alone),
        cmocka_unit_test(dlopen__searches_the_callers_runpath),
        cmocka_unit_test(dlvsym__finds_what_collective_libraries_ask_for),
        cmocka_unit_test(dlvsym__the_functions_show_our_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
