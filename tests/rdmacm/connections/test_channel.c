/* SPDX-License-Identifier: BSD-2-Clause */
/* The device of the connection manager as a file: what a program sees of it, and what a channel
 * does with events, descriptors and bad commands. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../rig.h"

#define DEVICE "/dev/infiniband/rdma_cm"

static void device__is_a_character_device(void **state)
{
    (void)state;
    struct stat by_path, by_fd;
    struct statx more;
    int fd = rig_open(0);
    assert_int_equal(stat(DEVICE, &by_path), 0);
    assert_int_equal(fstat(fd, &by_fd), 0);
    assert_true(S_ISCHR(by_path.st_mode));
    assert_true(S_ISCHR(by_fd.st_mode));
    assert_int_equal(by_fd.st_rdev, by_path.st_rdev);
    assert_int_equal(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &more), 0);
    assert_int_equal(more.stx_rdev_minor, minor(by_path.st_rdev));
    assert_int_equal(access(DEVICE, R_OK | W_OK), 0);
    close(fd);
}

static void device__is_in_its_directory_and_class(void **state)
{
    (void)state;
    char text[64] = {0}, number[32];
    struct stat status;
    bool found = false;
    DIR *dir = opendir("/dev/infiniband");
    for (struct dirent *entry; (entry = readdir(dir));)
        found |= !strcmp(entry->d_name, "rdma_cm") && entry->d_type == DT_CHR;
    closedir(dir);
    assert_true(found);
    int fd = open("/sys/class/misc/rdma_cm/abi_version", O_RDONLY);
    assert_int_equal(read(fd, text, sizeof(text)), 2);
    assert_string_equal(text, "4\n");
    close(fd);
    fd = open("/sys/class/misc/rdma_cm/dev", O_RDONLY);
    ssize_t len = read(fd, text, sizeof(text) - 1);
    close(fd);
    assert_true(len > 0);
    assert_int_equal(stat(DEVICE, &status), 0);
    snprintf(number, sizeof(number), "%u:%u\n", major(status.st_rdev), minor(status.st_rdev));
    assert_memory_equal(text, number, strlen(number));
}

static void write__of_bad_commands(void **state)
{
    (void)state;
    int fd = rig_open(O_NONBLOCK);
    struct rdma_ucm_cmd_hdr header = {RDMA_USER_CM_CMD_CREATE_ID, 0, 0};
    struct rdma_ucm_create_id in = {.ps = RDMA_PS_TCP};
    assert_int_equal(write(fd, &header, sizeof(header) - 1), -1);
    assert_int_equal(errno, EINVAL);
    void *volatile nowhere = (void *)8;
    assert_int_equal(write(fd, nowhere, 64), -1);
    assert_int_equal(errno, EFAULT);
    header.in = 1;
    assert_int_equal(write(fd, &header, sizeof(header)), -1); /* more than is there */
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rig_command(fd, 200, &in, sizeof(in), 0), EINVAL);
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_GET_OPTION, &in, sizeof(in), 64), ENOSYS);
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_CREATE_ID, &in, sizeof(in), 3), ENOSPC);
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_CREATE_ID, &in, sizeof(in), 4), EFAULT);
    in.ps = 0x107;
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_CREATE_ID, &in, sizeof(in), 4), EINVAL);
    close(fd);
}

/* A command at the end of a page reads nothing of the next. */
static void write__reads_no_more_than_given(void **state)
{
    (void)state;
    int fd = rig_open(O_NONBLOCK);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    for (uint32_t command = 0; command < 32; command++) {
        for (uint16_t len = 0; len < 64; len = (uint16_t)(len + 4)) {
            struct rdma_ucm_cmd_hdr header = {command, len, 64};
            uint8_t *at = pages + page - len - sizeof(header);
            memcpy(at, &header, sizeof(header));
            memset(at + sizeof(header), 0, len);
            ssize_t done = write(fd, at, sizeof(header) + len);
            assert_true(done < 0 || command == RDMA_USER_CM_CMD_LISTEN);
        }
    }
    munmap(pages, 2 * page);
    close(fd);
}

static void write__of_random_bytes_is_survived(void **state)
{
    (void)state;
    int fd = rig_open(O_NONBLOCK);
    uint64_t seed = 7;
    for (int i = 0; i < 50000; i++) {
        struct {
            struct rdma_ucm_cmd_hdr header;
            uint64_t body[60];
        } message;
        for (size_t j = 0; j < 60; j++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            message.body[j] = seed >> 60 ? (seed >> 33) % 3 : seed;
        }
        message.header = (struct rdma_ucm_cmd_hdr){(uint32_t)(seed >> 40) % 25,
                                                   (uint16_t)((seed >> 20) % 400), 400};
        ssize_t done = write(fd, &message, sizeof(message.header) + message.header.in);
        (void)done;
    }
    uint32_t id;
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0); /* and all is well */
    close(fd);
}

/* The knowledge of a descriptor must not outlive it. */
static void write__to_a_file_with_the_number_of_a_channel(void **state)
{
    (void)state;
    char bytes[] = "as written", found[sizeof(bytes)];
    int ends[2], fd = rig_open(0), other = rig_open(0);
    uint32_t id;
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[1], fd), fd);
    assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
    assert_int_equal(read(ends[0], found, sizeof(found)), sizeof(found));
    assert_string_equal(found, bytes);
    assert_int_equal(dup2(ends[0], fd), fd);
    assert_int_equal(write(fd, bytes, sizeof(bytes)), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(dup2(other, fd), fd); /* another channel */
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
    assert_int_equal(rig_destroy(other, id, NULL), 0);
    close(fd);
    close(other);
    close(ends[0]);
    close(ends[1]);
}

static void get_event__follows_the_descriptor(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct rdma_ucm_get_event in = {.response = (uintptr_t)&event};
    int fd = rig_open(0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(rig_get_event(fd, &event), EAGAIN);
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_GET_EVENT, &in, sizeof(in), 16), ENOSPC);
    uint32_t id;
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
    assert_false(rig_has_event(fd));
    assert_int_equal(rig_resolve_addr(fd, id, NULL, "127.0.0.1", 7471), 0);
    assert_true(rig_has_event(fd));
    in.response = 8;
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_GET_EVENT, &in, sizeof(in), sizeof(event)),
                     EFAULT);
    assert_true(rig_has_event(fd)); /* it is not lost */
    assert_int_equal(rig_get_event(fd, &event), 0);
    assert_int_equal(event.event, ADDR_RESOLVED);
    assert_int_equal(event.id, id);
    assert_int_equal(event.status, 0);
    assert_int_equal(rig_get_event(fd, &event), EAGAIN);
    close(fd);
}

static void on_alarm(int number)
{
    (void)number;
}

static void get_event__is_interrupted(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct sigaction action = {.sa_handler = on_alarm}, before;
    int fd = rig_open(0);
    sigaction(SIGALRM, &action, &before);
    struct itimerspec in_20ms = {.it_value.tv_nsec = 20000000};
    timer_t timer;
    assert_int_equal(timer_create(CLOCK_MONOTONIC, NULL, &timer), 0);
    assert_int_equal(timer_settime(timer, 0, &in_20ms, NULL), 0);
    assert_int_equal(rig_get_event(fd, &event), EINTR);
    timer_delete(timer);
    sigaction(SIGALRM, &before, NULL);
    close(fd);
}

static void *get_one(void *arg)
{
    struct rdma_ucm_event_resp event;
    return (void *)(intptr_t)(rig_get_event(*(int *)arg, &event) ? -1 : (int)event.event);
}

static void get_event__wakes_each_sleeper_once(void **state)
{
    (void)state;
    enum { SLEEPERS = 4 };
    int fd = rig_open(0);
    pthread_t threads[SLEEPERS];
    for (int i = 0; i < SLEEPERS; i++)
        pthread_create(&threads[i], NULL, get_one, &fd);
    for (int i = 0; i < SLEEPERS; i++) {
        uint32_t id;
        assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
        assert_int_equal(rig_resolve_addr(fd, id, NULL, "127.0.0.1", 7471), 0);
    }
    for (int i = 0; i < SLEEPERS; i++) {
        void *got;
        pthread_join(threads[i], &got);
        assert_int_equal((intptr_t)got, ADDR_RESOLVED);
    }
    assert_false(rig_has_event(fd));
    close(fd);
}

static void epoll__tells_of_each_event_by_edge(void **state)
{
    (void)state;
    int fd = rig_open(O_NONBLOCK), epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
    assert_int_equal(epoll_wait(epoll, &event, 1, 0), 0);
    for (int i = 0; i < 3; i++) { /* also while one is waiting to be fetched */
        uint32_t id;
        assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
        assert_int_equal(rig_resolve_addr(fd, id, NULL, "127.0.0.1", 7471), 0);
        assert_int_equal(epoll_wait(epoll, &event, 1, 0), 1);
        assert_int_equal(epoll_wait(epoll, &event, 1, 0), 0);
    }
    close(epoll);
    close(fd);
}

static void destroy__takes_undelivered_events_back(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    uint32_t one, other, reported;
    int fd = rig_open(O_NONBLOCK);
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &one), 0);
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &other), 0);
    assert_int_equal(rig_resolve_addr(fd, one, NULL, "127.0.0.1", 7471), 0);
    rig_expect(fd, ADDR_RESOLVED, NULL);
    assert_int_equal(rig_resolve_route(fd, one), 0); /* stays undelivered */
    assert_int_equal(rig_resolve_addr(fd, other, NULL, "127.0.0.1", 7471), 0);
    assert_int_equal(rig_destroy(fd, one, &reported), 0);
    assert_int_equal(reported, 1);
    rig_expect(fd, ADDR_RESOLVED, &event);
    assert_int_equal(event.id, other);
    assert_false(rig_has_event(fd));
    assert_int_equal(rig_destroy(fd, one, NULL), ENOENT);
    assert_int_equal(rig_destroy(fd, other, &reported), 0);
    assert_int_equal(reported, 1);
    close(fd);
}

struct getter {
    int fd;
    atomic_bool has_event, may_work, is_back;
};

static void work(long for_ns)
{
    struct timespec used = {0};
    while (used.tv_sec == 0 && used.tv_nsec < for_ns)
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
}

static void *get_work_get(void *arg)
{
    struct getter *getter = arg;
    struct rdma_ucm_event_resp event;
    int rc = rig_get_event(getter->fd, &event);
    atomic_store(&getter->has_event, true);
    while (!atomic_load(&getter->may_work))
        ;
    work(5000000);
    atomic_store(&getter->is_back, true);
    return (void *)(intptr_t)(rc || rig_get_event(getter->fd, &event));
}

/* rping closes its channel when its IDs are destroyed, and its thread has to be back by then. */
static void destroy__of_the_last_id_waits_for_who_works_on_its_event(void **state)
{
    (void)state;
    struct getter getter = {.fd = rig_open(0)};
    pthread_t thread;
    uint32_t id;
    void *rc;
    pthread_create(&thread, NULL, get_work_get, &getter);
    assert_int_equal(rig_create(getter.fd, RDMA_PS_TCP, &id), 0);
    assert_int_equal(rig_resolve_addr(getter.fd, id, NULL, "127.0.0.1", 7471), 0);
    while (!atomic_load(&getter.has_event))
        usleep(100);
    atomic_store(&getter.may_work, true);
    assert_int_equal(rig_destroy(getter.fd, id, NULL), 0);
    assert_true(atomic_load(&getter.is_back));
    assert_int_equal(rig_create(getter.fd, RDMA_PS_TCP, &id), 0);
    assert_int_equal(rig_resolve_addr(getter.fd, id, NULL, "127.0.0.1", 7471), 0);
    pthread_join(thread, &rc);
    assert_null(rc);
    close(getter.fd);
}

/* Takes an event of one channel after the other, and does not come back for a second one. */
static void *get_get_work(void *arg)
{
    struct getter *getters = arg;
    struct rdma_ucm_event_resp event;
    for (int i = 0; i < 2; i++) {
        if (rig_get_event(getters[i].fd, &event))
            return arg;
        atomic_store(&getters[i].has_event, true);
    }
    while (!atomic_load(&getters[1].may_work))
        ;
    return NULL;
}

/* A server of rsockets is one: each connection that ends would cost it the time. */
static void destroy__waits_for_a_thread_in_vain_once(void **state)
{
    (void)state;
    struct getter getters[2] = {{.fd = rig_open(0)}, {.fd = rig_open(0)}};
    struct timespec begin, end;
    pthread_t thread;
    uint32_t ids[2];
    void *rc;
    pthread_create(&thread, NULL, get_get_work, getters);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rig_create(getters[i].fd, RDMA_PS_TCP, &ids[i]), 0);
        assert_int_equal(rig_resolve_addr(getters[i].fd, ids[i], NULL, "127.0.0.1", 7471), 0);
        while (!atomic_load(&getters[i].has_event))
            usleep(100);
    }
    assert_int_equal(rig_destroy(getters[0].fd, ids[0], NULL), 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin); /* which the other thread uses up meanwhile */
    assert_int_equal(rig_destroy(getters[1].fd, ids[1], NULL), 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    assert_true((end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec < 100000000);
    atomic_store(&getters[1].may_work, true);
    pthread_join(thread, &rc);
    assert_null(rc);
    close(getters[0].fd);
    close(getters[1].fd);
}

static void id__belongs_to_its_channel(void **state)
{
    (void)state;
    int one = rig_open(0), other = rig_open(0);
    uint32_t id;
    assert_int_equal(rig_create(one, RDMA_PS_TCP, &id), 0);
    assert_int_equal(rig_bind(other, id, "0.0.0.0", 0), EINVAL);
    assert_int_equal(rig_destroy(other, id, NULL), EINVAL);
    assert_int_equal(rig_destroy(one, id, NULL), 0);
    close(one);
    close(other);
}

static int migrate(int to, int from, uint32_t id, uint32_t *reported)
{
    struct rdma_ucm_migrate_resp response = {0};
    struct rdma_ucm_migrate_id in = {
        .response = (uintptr_t)&response, .id = id, .fd = (uint32_t)from};
    int rc = rig_command(to, RDMA_USER_CM_CMD_MIGRATE_ID, &in, sizeof(in), sizeof(response));
    *reported = response.events_reported;
    return rc;
}

static void migrate__takes_undelivered_events_along(void **state)
{
    (void)state;
    int from = rig_open(O_NONBLOCK), to = rig_open(O_NONBLOCK), pipe_fd[2];
    uint32_t id, reported;
    assert_int_equal(pipe(pipe_fd), 0);
    assert_int_equal(rig_create(from, RDMA_PS_TCP, &id), 0);
    assert_int_equal(rig_resolve_addr(from, id, NULL, "127.0.0.1", 7471), 0);
    rig_expect(from, ADDR_RESOLVED, NULL);
    assert_int_equal(rig_resolve_route(from, id), 0);
    assert_int_equal(migrate(to, 9999, id, &reported), ENOENT);
    assert_int_equal(migrate(to, pipe_fd[0], id, &reported), EINVAL);
    assert_int_equal(migrate(to, from, 60000, &reported), ENOENT);
    assert_int_equal(migrate(to, from, id, &reported), 0);
    assert_int_equal(reported, 1);
    assert_false(rig_has_event(from));
    rig_expect(to, ROUTE_RESOLVED, NULL);
    assert_int_equal(rig_destroy(from, id, NULL), EINVAL);
    assert_int_equal(rig_destroy(to, id, &reported), 0);
    assert_int_equal(reported, 2);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    close(from);
    close(to);
}

static void fork__leaves_the_channel_to_the_parent(void **state)
{
    (void)state;
    int fd = rig_open(O_NONBLOCK);
    uint32_t id;
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
    pid_t child = fork();
    if (child == 0) {
        uint32_t own;
        int rc = rig_create(fd, RDMA_PS_TCP, &own) == EBADF ? 0 : 1;
        int fresh = open(DEVICE, O_RDWR | O_NONBLOCK);
        rc |= rig_create(fresh, RDMA_PS_TCP, &own) ? 2 : 0;
        rc |= rig_resolve_addr(fresh, own, NULL, "127.0.0.1", 7471) ? 4 : 0;
        _exit(rc);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(rig_resolve_addr(fd, id, NULL, "127.0.0.1", 7471), 0);
    rig_expect(fd, ADDR_RESOLVED, NULL);
    close(fd);
}

static int count_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void channels__leave_no_descriptors(void **state)
{
    (void)state;
    int before = -1;
    for (int round = 0; round < 3; round++) {
        int fds[100], wait = 500;
        for (int i = 0; i < 100; i++) {
            uint32_t id;
            fds[i] = rig_open(0);
            assert_int_equal(rig_create(fds[i], RDMA_PS_TCP, &id), 0);
            assert_int_equal(rig_bind(fds[i], id, "127.0.0.1", 0), 0);
        }
        for (int i = 0; i < 100; i++)
            close(fds[i]);
        while (round && count_descriptors() > before && wait--)
            usleep(10000);
        if (!round)
            usleep(200000);
        int after = count_descriptors();
        if (round)
            assert_true(after <= before);
        before = after;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device__is_a_character_device),
        cmocka_unit_test(device__is_in_its_directory_and_class),
        cmocka_unit_test(write__of_bad_commands),
        cmocka_unit_test(write__reads_no_more_than_given),
        cmocka_unit_test(write__of_random_bytes_is_survived),
        cmocka_unit_test(write__to_a_file_with_the_number_of_a_channel),
        cmocka_unit_test(get_event__follows_the_descriptor),
        cmocka_unit_test(get_event__is_interrupted),
        cmocka_unit_test(get_event__wakes_each_sleeper_once),
        cmocka_unit_test(epoll__tells_of_each_event_by_edge),
        cmocka_unit_test(destroy__takes_undelivered_events_back),
        cmocka_unit_test(destroy__of_the_last_id_waits_for_who_works_on_its_event),
        cmocka_unit_test(destroy__waits_for_a_thread_in_vain_once),
        cmocka_unit_test(id__belongs_to_its_channel),
        cmocka_unit_test(migrate__takes_undelivered_events_along),
        cmocka_unit_test(fork__leaves_the_channel_to_the_parent),
        cmocka_unit_test(channels__leave_no_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
