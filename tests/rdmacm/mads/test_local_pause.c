/* SPDX-License-Identifier: BSD-2-Clause */
/* A process of this host calls for connection management where there is no descriptor for it: the
 * engine does not try again and again, and lets it in later. In a network of the test's own. */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../preload/namespace.h"
#include "../rig.h"

enum { SHORT_MS = 400, TRIES_MAX = 100, PATIENCE_MS = 30000 };

/* The engine's calls come here: what is linked first counts. */
static atomic_uint tries;
__attribute__((visibility("default"))) int accept4(int listener, struct sockaddr *address,
                                                   socklen_t *len, int flags)
{
    atomic_fetch_add(&tries, 1);
    return (int)syscall(SYS_accept4, listener, address, len, flags);
}

static void set_descriptors(rlim_t most)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = most;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Finds the socket of the one process that this network has. */
static socklen_t find_process(struct sockaddr_un *out)
{
    char line[256], *name = NULL;
    FILE *file = fopen("/proc/net/unix", "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = 0;
        const size_t len = strlen(line);
        name = strchr(line, '@');
        if (name && !strncmp(name, "@sidewire.", 10) && !strcmp(line + len - 3, ".cm"))
            break;
        name = NULL;
    }
    fclose(file);
    assert_non_null(name);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    const size_t len = strlen(name);
    memcpy(out->sun_path + 1, name + 1, len - 1);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
}

static void local_accept__pauses_without_a_descriptor(void **state)
{
    (void)state;
    struct rlimit before;
    struct sockaddr_un to;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const int fd = rig_open(O_NONBLOCK);
    const uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4);
    const socklen_t to_len = find_process(&to);
    const int client = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    set_descriptors(3);
    atomic_store(&tries, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&to, to_len), 0);
    for (int ms = 0; !atomic_load(&tries) && ms < PATIENCE_MS; ms++)
        usleep(1000);
    usleep(SHORT_MS * 1000);
    const unsigned seen = atomic_load(&tries);
    set_descriptors(before.rlim_cur);
    assert_in_range(seen, 1, TRIES_MAX);
    struct pollfd asked = {.fd = client, .events = POLLIN}; /* for its proof */
    assert_int_equal(poll(&asked, 1, PATIENCE_MS), 1);
    close(client);
    assert_int_equal(rig_destroy(fd, listener, NULL), 0);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_accept__pauses_without_a_descriptor),
    };
    if (!namespace_own_network()) {
        printf("SKIP: no network namespace\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
