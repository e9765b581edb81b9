/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/config/spec.h"
#include "nvme/wire/fabrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "nvme/target/config/identity.h"

#define MACHINE "00112233445566778899aabbccddeeff"

static char error[512];

static struct nvt_backend_spec spec; /* of the last parse() */

static const struct nvt_backend_spec *parse(const char *text)
{
    error[0] = '\0';
    assert_int_equal(nvt_backend_spec_parse(text, &spec, error, sizeof(error)), 0);
    return &spec;
}

static void refuse(const char *text, const char *why)
{
    assert_true(nvt_backend_spec_parse(text, &spec, error, sizeof(error)) < 0);
    if (!strstr(error, why))
        fail_msg("%s: %s, not %s", text, error, why);
}

static void size_parse__units_and_limits(void **state)
{
    (void)state;
    uint64_t size = 0;
    assert_int_equal(nvt_size_parse("512", &size), 0);
    assert_int_equal(size, 512);
    assert_int_equal(nvt_size_parse("4k", &size), 0);
    assert_int_equal(size, 4096);
    assert_int_equal(nvt_size_parse("3T", &size), 0);
    assert_int_equal(size, 3ULL << 40);
    static const char *const bad[] = {"",    "K",    "-1",  " 1",       "1KB",
                                      "1.5", "0x10", "1 K", "9999999T", "18446744073709551616"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_true(nvt_size_parse(bad[i], &size) < 0);
    assert_int_equal(size, 3ULL << 40);
}

static void uuid_parse__forms(void **state)
{
    (void)state;
    static const uint8_t want[NVT_UUID_BYTES] = {0xd5, 0x92, 0xcd, 0xf3, 0x5d, 0x1c, 0x44, 0xe0,
                                                 0x84, 0x12, 0x3f, 0xcf, 0x7d, 0x99, 0xdf, 0x27};
    uint8_t uuid[NVT_UUID_BYTES] = {0};
    char text[37];
    assert_int_equal(nvt_uuid_parse("d592cdf3-5d1c-44e0-8412-3fcf7d99df27", uuid), 0);
    assert_memory_equal(uuid, want, sizeof(want));
    assert_int_equal(nvt_uuid_parse("D592CDF35D1C44E084123FCF7D99DF27", uuid), 0);
    nvt_uuid_format(uuid, text);
    assert_string_equal(text, "d592cdf3-5d1c-44e0-8412-3fcf7d99df27");
    assert_true(nvt_uuid_parse("", uuid) < 0);
    assert_true(nvt_uuid_parse("d592cdf3-5d1c-44e0-8412-3fcf7d99df2", uuid) < 0);
    assert_true(nvt_uuid_parse("d592cdf3-5d1c-44e0-8412-3fcf7d99df27-", uuid) < 0);
    assert_true(nvt_uuid_parse("d592cdf3--5d1c-44e0-8412-3fcf7d99df27", uuid) < 0);
    assert_true(nvt_uuid_parse("d592cdf3-5d1c-44e0-8412-3fcf7d99df2700", uuid) < 0);
}

static void backend_spec_parse__kinds(void **state)
{
    (void)state;
    parse("ram:1G");
    assert_int_equal(spec.kind, NVT_BACKEND_RAM);
    assert_int_equal(spec.size_bytes, 1ULL << 30);
    assert_string_equal(spec.path, "");
    assert_int_equal(parse("null:512")->kind, NVT_BACKEND_NULL);
    parse("file:disk.img");
    assert_int_equal(spec.kind, NVT_BACKEND_FILE);
    assert_string_equal(spec.path, "disk.img");
    assert_int_equal(spec.block_bytes, 0);
    assert_int_equal(parse("block:/dev/sdb")->kind, NVT_BACKEND_BLOCK);
    assert_int_equal(parse("nvme:/dev/ng0n1")->kind, NVT_BACKEND_NVME);
    assert_int_equal(parse("nvram:/dev/dax0.0")->kind, NVT_BACKEND_NVRAM);
    assert_string_equal(nvt_backend_kind_name(NVT_BACKEND_NVRAM), "nvram");
}

static void backend_spec_parse__plain_path(void **state)
{
    (void)state;
    char path[] = "/tmp/spec-XXXXXX", with_option[64];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(parse(path)->kind, NVT_BACKEND_FILE);
    snprintf(with_option, sizeof(with_option), "%s,ro", path);
    assert_true(parse(with_option)->read_only);
    close(fd);
    unlink(path);
    refuse(path, "No such file");
    refuse("/", "neither a block device nor a file");
    refuse("/dev/null", "neither a block device nor a file");
    refuse("disk.img", "is no backend");
    refuse("scsi:/dev/sdb", "is no backend");
    refuse("", "path is missing");
    refuse("file:", "write file:/PATH");
}

static void backend_spec_parse__options(void **state)
{
    (void)state;
    parse("file:/srv/a,,b.img,bs=4096,ro,uuid=d592cdf3-5d1c-44e0-8412-3fcf7d99df27,"
          "nguid=ef90689c6c46d44c89c14067801309a8,nsid=7,error=1%,short=0.25%,delay=10us");
    assert_string_equal(spec.path, "/srv/a,b.img");
    assert_int_equal(spec.block_bytes, 4096);
    assert_true(spec.read_only && spec.has_uuid && spec.has_nguid);
    assert_int_equal(spec.uuid[0], 0xd5);
    assert_int_equal(spec.nguid[15], 0xa8);
    assert_int_equal(spec.nsid, 7);
    assert_int_equal(spec.error_ppm, 10000);
    assert_int_equal(spec.short_ppm, 2500);
    assert_int_equal(spec.delay_ns, 10000);
    assert_int_equal(parse("ram:1M,error=100%")->error_ppm, NVT_PPM);
    assert_int_equal(parse("ram:1M,delay=60s")->delay_ns, 60000000000);
}

static void backend_spec_parse__images(void **state)
{
    (void)state;
    const struct nvt_backend_spec *found =
        parse("rbd:pool/image@snap,conf=/etc/c.conf,id=me,fence");
    assert_int_equal(found->kind, NVT_BACKEND_RBD);
    assert_string_equal(found->path, "pool/image@snap");
    assert_string_equal(found->conf, "/etc/c.conf");
    assert_string_equal(found->id, "me");
    assert_true(found->fence);
    found = parse("rbd:pool/space/image");
    assert_string_equal(found->path, "pool/space/image");
    assert_false(found->fence || *found->conf || *found->id);
    static const char *const wrong[] = {"rbd:pool",        "rbd:pool/",     "rbd:/image",
                                        "rbd:pool//image", "rbd:a/b/c/d",   "rbd:pool/@snap",
                                        "rbd:pool/image@", "rbd:a@b/image", "rbd:pool/image@a@b"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        refuse(wrong[i], "is no image");
    refuse("rbd:", "rbd:POOL/IMAGE");
    refuse("rbd:pool/image,conf=c.conf", "from / on");
    refuse("rbd:pool/image,id=", "id=");
    refuse("file:/dev/null,id=me", "rbd:POOL/IMAGE alone");
    refuse("file:/dev/null,fence", "no option \"fence\"");
}

static void backend_spec_parse__faults(void **state)
{
    (void)state;
    static const char *const faults[][2] = {
        {"ram:", "not a size"},
        {"ram:0", "not a size"},
        {"ram:1X", "not a size"},
        {"ram:100", "multiple of the block size"},
        {"ram:512,bs=4096", "multiple"},
        {"ram:1M,bs=1024", "not a block size"},
        {"ram:1M,", "empty"},
        {"ram:1M,ro,", "empty"},
        {"ram:1M,fast", "no option"},
        {"ram:1M,ro=1", "no option"},
        {"file:a,shared=1", "no option"},
        {"ram:1M,nsid=0", "nsid=0"},
        {"ram:1M,nsid=4294967295", "nsid="},
        {"ram:1M,uuid=12", "uuid=12"},
        {"ram:1M,error=101%", "not a share"},
        {"ram:1M,error=1", "not a share"},
        {"ram:1M,short=100.1%", "not a share"},
        {"ram:1M,delay=61s", "delay="},
        {"ram:1M,delay=10", "delay="},
        {"file:", "path is missing"},
        {"file:,ro", "path is missing"},
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        refuse(faults[i][0], faults[i][1]);
    char text[PATH_MAX + 16];
    memset(text, 'a', sizeof(text));
    memcpy(text, "file:", 5);
    text[5 + PATH_MAX] = '\0';
    refuse(text, "longer than");
    text[5 + PATH_MAX - 1] = '\0';
    assert_int_equal(strlen(parse(text)->path), PATH_MAX - 1);
}

static void listen_parse__forms(void **state)
{
    (void)state;
    static const struct {
        const char *text, *addr;
        uint16_t port;
        uint8_t adrfam;
    } forms[] = {
        {"192.0.2.1", "192.0.2.1", 4420, NVMF_ADDR_FAMILY_IP4},
        {"192.0.2.1:1", "192.0.2.1", 1, NVMF_ADDR_FAMILY_IP4},
        {"0.0.0.0:65535", "0.0.0.0", 65535, NVMF_ADDR_FAMILY_IP4},
        {"::1", "::1", 4420, NVMF_ADDR_FAMILY_IP6},
        {"[::1]", "::1", 4420, NVMF_ADDR_FAMILY_IP6},
        {"[2001:DB8::0:1]:4421", "2001:db8::1", 4421, NVMF_ADDR_FAMILY_IP6},
        {"[fe80::1%eth0]:4420", "fe80::1%eth0", 4420, NVMF_ADDR_FAMILY_IP6},
    };
    struct nvt_listen listen;
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        assert_int_equal(nvt_listen_parse(forms[i].text, &listen, error, sizeof(error)), 0);
        assert_string_equal(listen.traddr, forms[i].addr);
        assert_int_equal(listen.port, forms[i].port);
        assert_int_equal(listen.adrfam, forms[i].adrfam);
    }
}

static void listen_parse__faults(void **state)
{
    (void)state;
    static const char *const faults[] = {
        "",
        ":4420",
        "localhost",
        "192.0.2.1:",
        "192.0.2.1:0",
        "192.0.2.1:65536",
        "1.2.3",
        "192.0.2.1:x",
        "[::1",
        "[::1]4420",
        "[192.0.2.1]",
        "[::1]:",
        "::1%eth",
        "fe80::1%",
        "[fe80::1%aaaaaaaaaaaaaaaaaaaaaaaa]:1",
        "[]:1",
        "1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111",
    };
    struct nvt_listen listen;
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        error[0] = '\0';
        assert_true(nvt_listen_parse(faults[i], &listen, error, sizeof(error)) < 0);
        assert_true(error[0]);
    }
}

static void default_uuid__stays(void **state)
{
    (void)state;
    uint8_t first[NVT_UUID_BYTES], other[NVT_UUID_BYTES];
    parse("file:/srv/disk.img");
    nvt_default_uuid(MACHINE, "nqn.a", 1, &spec, first);
    assert_int_equal(first[6] >> 4, 8);
    assert_int_equal(first[8] >> 6, 2);
    assert_true(parse("file:a,shared")->shared);
    parse("file:/srv/disk.img,ro,bs=4096");
    nvt_default_uuid(MACHINE, "nqn.a", 1, &spec, other);
    assert_memory_equal(first, other, sizeof(first));
    nvt_default_uuid(MACHINE, "nqn.a", 2, &spec, other);
    assert_memory_not_equal(first, other, sizeof(first));
    nvt_default_uuid(MACHINE, "nqn.b", 1, &spec, other);
    assert_memory_not_equal(first, other, sizeof(first));
    nvt_default_uuid("another", "nqn.a", 1, &spec, other);
    assert_memory_not_equal(first, other, sizeof(first));
    parse("file:/srv/other.img");
    nvt_default_uuid(MACHINE, "nqn.a", 1, &spec, other);
    assert_memory_not_equal(first, other, sizeof(first));
}

static void default_names__forms(void **state)
{
    (void)state;
    char serial[NVT_SERIAL_BYTES], again[NVT_SERIAL_BYTES], id[NVT_MACHINE_ID_BYTES];
    nvt_default_serial(MACHINE, "nqn.a", serial);
    nvt_default_serial(MACHINE, "nqn.a", again);
    assert_string_equal(serial, again);
    assert_int_equal(strlen(serial), 20);
    nvt_default_serial(MACHINE, "nqn.b", again);
    assert_string_not_equal(serial, again);
    nvt_machine_id(id);
    assert_true(*id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_parse__units_and_limits),
        cmocka_unit_test(uuid_parse__forms),
        cmocka_unit_test(backend_spec_parse__kinds),
        cmocka_unit_test(backend_spec_parse__plain_path),
        cmocka_unit_test(backend_spec_parse__options),
        cmocka_unit_test(backend_spec_parse__images),
        cmocka_unit_test(backend_spec_parse__faults),
        cmocka_unit_test(listen_parse__forms),
        cmocka_unit_test(listen_parse__faults),
        cmocka_unit_test(default_uuid__stays),
        cmocka_unit_test(default_names__forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
