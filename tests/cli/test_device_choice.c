/* SPDX-License-Identifier: BSD-2-Clause */
/* Which device of a made-up kernel an address belongs to. The only interface here is "lo". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../preload/namespace.h"
#include "cli/device_choice.h"

static const struct sw_address_option options[] = {{"-l", "--listen", true},
                                                   {"-w", "--host-traddr", true},
                                                   {"-a", "--traddr", false},
                                                   {NULL, NULL, false}};

static char sysfs[] = "/tmp/sw-device-choice-XXXXXX";

static void put(const char *path, const char *text)
{
    char full[256];
    snprintf(full, sizeof(full), "%s/%s", sysfs, path);
    for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    fclose(file);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(sysfs + sizeof(sysfs) - 7, "XXXXXX");
    assert_non_null(mkdtemp(sysfs));
    put("mlx5_0/ports/1/state", "4: ACTIVE");
    put("mlx5_0/ports/1/gid_attrs/ndevs/0", "eth9");
    put("rxe_lo/ports/1/state", "4: ACTIVE");
    put("rxe_lo/ports/1/gid_attrs/ndevs/0", "eth9");
    put("rxe_lo/ports/1/gid_attrs/ndevs/1", "lo");
    return 0;
}

static int remove_one(const char *path, const struct stat *stat, int kind, struct FTW *ftw)
{
    (void)stat, (void)kind, (void)ftw;
    return remove(path);
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(sysfs, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *choose(const char *line)
{
    static char text[256], name[SW_DEVICE_NAME_MAX];
    char *words[16];
    int count = 0;
    snprintf(text, sizeof(text), "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        words[count++] = word;
    return sw_device_choose(sysfs, words, count, options, name) ? name : "";
}

static void choice__by_each_way_to_say_it(void **state)
{
    (void)state;
    assert_string_equal(choose("target --listen 127.0.0.1 --namespace ram:1M"), "rxe_lo");
    assert_string_equal(choose("target --listen=127.0.0.1:4420"), "rxe_lo");
    assert_string_equal(choose("target -l 127.0.0.1"), "rxe_lo");
    assert_string_equal(choose("discover -a 127.0.0.1 -s 4420"), "rxe_lo");
    assert_string_equal(choose("discover -a127.0.0.1"), "rxe_lo");
    assert_string_equal(choose("discover -a 127.0.0.1/region"), "rxe_lo");
    assert_string_equal(choose("discover -a 127.0.0.1:4430/region"), "rxe_lo");
    assert_string_equal(choose("discover --traddr 127.0.0.1 --host-traddr 127.0.0.1"), "rxe_lo");
}

static void choice__none(void **state)
{
    (void)state;
    assert_string_equal(choose("target --namespace ram:1M"), "");
    assert_string_equal(choose("target --listen 0.0.0.0"), "");
    assert_string_equal(choose("target --listen 192.0.2.77"), "");
    assert_string_equal(choose("target --listen"), "");
    assert_string_equal(choose("target --listen :::::"), "");
    assert_string_equal(choose("target --listen ["), "");
    assert_string_equal(choose("discover --traddrs 127.0.0.1"), "");
}

static void choice__own_address_goes_first(void **state)
{
    (void)state;
    assert_string_equal(choose("discover -a 127.0.0.1 -w 192.0.2.77"), "");
}

static void choice__port_is_down(void **state)
{
    (void)state;
    put("rxe_lo/ports/1/state", "1: DOWN");
    assert_string_equal(choose("target --listen 127.0.0.1"), "");
}

static void choice__no_devices(void **state)
{
    (void)state;
    char name[SW_DEVICE_NAME_MAX] = "x";
    char *words[] = {(char *)"-l", (char *)"127.0.0.1"};
    assert_false(sw_device_choose("/not/there", words, 2, options, name));
    assert_string_equal(name, "");
    assert_true(sw_device_of_netdev(sysfs, "lo", name));
    assert_false(sw_device_of_netdev(sysfs, "eth", name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(choice__by_each_way_to_say_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(choice__none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(choice__own_address_goes_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(choice__port_is_down, set_up, tear_down),
        cmocka_unit_test_setup_teardown(choice__no_devices, set_up, tear_down),
    };
    /* A network where addresses for documentation are nobody's. Where it is refused, they rarely
     * are anybody's in that of the machine. */
    (void)namespace_own_network();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
