/* SPDX-License-Identifier: BSD-2-Clause */
/* pair.h, the sides: processes, threads and the socket between them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "verbs_util/crash.h"
#include "verbs_util/pair.h"

#define GET_TIMEOUT_MS 55000 /* who gives up fails its peer, which may be slow */

void vu_stop(pid_t pid)
{
    bool all = false;
    VU_EQ(kill(pid, SIGSTOP), 0);
    for (int ms = 0; ms < 5000 && !all; ms++) {
        char path[300];
        snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
        DIR *tasks = opendir(path);
        VU_TRUE(tasks);
        all = true;
        for (const struct dirent *task; (task = readdir(tasks));) {
            char state = 'T';
            snprintf(path, sizeof(path), "/proc/%d/task/%.20s/stat", (int)pid, task->d_name);
            FILE *stat = task->d_name[0] == '.' ? NULL : fopen(path, "re");
            all &= !stat || (fscanf(stat, "%*d (%*[^)]) %c", &state) == 1 && state == 'T');
            if (stat)
                fclose(stat);
        }
        closedir(tasks);
        vu_sleep_ms(1);
    }
    VU_TRUE(all);
}

void vu_socketpair(int socks[2])
{
    VU_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) == 0, "%s",
             strerror(errno));
}

pid_t vu_spawn(vu_side_fn fn, int sock, void *arg)
{
    fflush(NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    VU_CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing survives a killed test */
        if (getppid() != parent)
            _exit(1);
        vu_tell_of_crashes();
        fn(sock, arg);
        fflush(NULL);
        _exit(0);
    }
    return pid;
}

int vu_reap(pid_t pid, int timeout_s)
{
    uint64_t deadline = vu_now_ms() + (uint64_t)timeout_s * 1000;
    for (;;) {
        int status;
        pid_t done = waitpid(pid, &status, WNOHANG);
        if (done == pid)
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        VU_CHECK(done == 0, "waitpid: %s", strerror(errno));
        if (vu_now_ms() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        vu_sleep_ms(1);
    }
}

struct side_thread {
    vu_side_fn fn;
    const char *name;
    int sock;
    void *arg;
};

static void *side_thread_main(void *arg)
{
    struct side_thread *side = arg;
    vu_set_side(side->name);
    side->fn(side->sock, side->arg);
    close(side->sock); /* as the end of a process would */
    return NULL;
}

struct both {
    vu_side_fn a, b;
    int socks[2];
    void *arg;
};

static void both_in_threads(int sock, void *arg)
{
    (void)sock;
    struct both *both = arg;
    struct side_thread sides[2] = {{both->a, "side a", both->socks[0], both->arg},
                                   {both->b, "side b", both->socks[1], both->arg}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        VU_EQ(pthread_create(&threads[i], NULL, side_thread_main, &sides[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* VU_HOSTS="one,other": each side has its network in the namespace of that name, where it uses the
 * device of the interface of the same name, unless VU_DEVICE says another. */
void vu_enter_host(bool is_a)
{
    const char *hosts = getenv("VU_HOSTS");
    if (!hosts)
        return;
    char name[64], path[96], device[80];
    const char *comma = strchr(hosts, ',');
    VU_CHECK(comma, "VU_HOSTS=%s", hosts);
    int len = is_a ? (int)(comma - hosts) : (int)strlen(comma + 1);
    snprintf(name, sizeof(name), "%.*s", len, is_a ? hosts : comma + 1);
    snprintf(path, sizeof(path), "/run/netns/%s", name);
    snprintf(device, sizeof(device), "sw_%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    VU_CHECK(fd >= 0 && setns(fd, CLONE_NEWNET) == 0, "%s: %s", path, strerror(errno));
    close(fd);
    VU_EQ(setenv("VU_DEVICE", device, 0), 0);
}

/* VU_STRANGERS: each side is in a user namespace of its own, so neither may look into the other. */
static void become_stranger(void)
{
    if (getenv("VU_STRANGERS") && unshare(CLONE_NEWUSER))
        vu_skip("user namespaces are not allowed here");
}

static void one_in_process(int sock, void *arg)
{
    struct both *both = arg;
    bool is_a = sock == both->socks[0];
    close(both->socks[is_a]); /* the other end, so that EOF is seen */
    vu_set_side(is_a ? "side a" : "side b");
    vu_enter_host(is_a);
    become_stranger();
    (is_a ? both->a : both->b)(sock, both->arg);
}

static int judge(int status, const char *what)
{
    if (status == 0 || status == VU_SKIPPED)
        return status;
    if (status == -1)
        fprintf(stderr, "  %s: hung, killed\n", what);
    else if (status > 128)
        fprintf(stderr, "  %s: killed by signal %d (%s)\n", what, status - 128,
                strsignal(status - 128));
    return 1;
}

int vu_run_pair(enum vu_mode mode, vu_side_fn a, vu_side_fn b, void *arg, int timeout_s)
{
    struct both both = {.a = a, .b = b, .arg = arg};
    vu_socketpair(both.socks);
    if (mode == VU_THREADS) {
        pid_t pid = vu_spawn(both_in_threads, -1, &both);
        close(both.socks[0]);
        close(both.socks[1]);
        return judge(vu_reap(pid, timeout_s), "both sides");
    }
    pid_t pid_a = vu_spawn(one_in_process, both.socks[0], &both);
    pid_t pid_b = vu_spawn(one_in_process, both.socks[1], &both);
    close(both.socks[0]);
    close(both.socks[1]);
    int ra = judge(vu_reap(pid_a, timeout_s), "side a");
    int rb = judge(vu_reap(pid_b, ra == 1 ? 2 : timeout_s), "side b");
    return ra == 1 || rb == 1 ? 1 : ra == VU_SKIPPED || rb == VU_SKIPPED ? VU_SKIPPED : 0;
}

bool vu_try_put(int sock, const void *buf, size_t len_bytes)
{
    return send(sock, buf, len_bytes, MSG_NOSIGNAL) == (ssize_t)len_bytes;
}

static bool wait_readable(int sock, unsigned int timeout_ms)
{
    struct pollfd pfd = {.fd = sock, .events = POLLIN};
    int ready;
    do {
        ready = poll(&pfd, 1, (int)timeout_ms);
    } while (ready < 0 && errno == EINTR);
    return ready == 1;
}

bool vu_try_get(int sock, void *buf, size_t len_bytes, unsigned int timeout_ms)
{
    return wait_readable(sock, timeout_ms) && recv(sock, buf, len_bytes, 0) == (ssize_t)len_bytes;
}

void vu_put(int sock, const void *buf, size_t len_bytes)
{
    VU_CHECK(vu_try_put(sock, buf, len_bytes), "send to the other side: %s", strerror(errno));
}

void vu_get(int sock, void *buf, size_t len_bytes)
{
    VU_CHECK(wait_readable(sock, GET_TIMEOUT_MS), "the other side said nothing for %d s",
             GET_TIMEOUT_MS / 1000);
    ssize_t n = recv(sock, buf, len_bytes, 0);
    VU_CHECK(n == (ssize_t)len_bytes, "the other side ended (%zd of %zu bytes)", n, len_bytes);
}

union fd_control {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
};

void vu_put_fd(int sock, int fd)
{
    union fd_control control;
    char byte = 'f';
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    memset(&control, 0, sizeof(control));
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
    VU_CHECK(sendmsg(sock, &msg, MSG_NOSIGNAL) == 1, "handing over a descriptor: %s",
             strerror(errno));
}

int vu_get_fd(int sock)
{
    union fd_control control;
    char byte;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != 1)
        return -1;
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    VU_TRUE(cmsg && cmsg->cmsg_type == SCM_RIGHTS);
    int fd;
    memcpy(&fd, CMSG_DATA(cmsg), sizeof(int));
    return fd;
}

void vu_barrier(int sock)
{
    char mine = 'b', other = 0;
    vu_put(sock, &mine, 1);
    vu_get(sock, &other, 1);
    VU_EQ(other, 'b');
}

int vu_seeded_pair(const char *name, int argc, char **argv, vu_side_fn a, vu_side_fn b)
{
    struct vu_seeded options = {(uint64_t)time(NULL), 5};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
            options.seed = strtoull(argv[i + 1], NULL, 0);
        else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0)
            options.seconds = atoi(argv[i + 1]);
        else
            VU_FAIL("usage: %s [--seed N] [--seconds N]", name);
    }
    int rc = vu_run_pair(VU_PROCESSES, a, b, &options, options.seconds + 40);
    if (rc == 1)
        fprintf(stderr, "%s failed with --seed %llu\n", name, (unsigned long long)options.seed);
    return rc;
}
