/* SPDX-License-Identifier: BSD-2-Clause */
/* The processes that are proven to be trusted. Each case is a child that has become what the case
 * is about, and runs its end of the proof against the other end here. */
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "link/direct/process/proof.h"
#include "link_rig.h"

enum { NOBODY = 65534, CANNOT = 77 };

static struct sockaddr_un address;
static socklen_t address_len;

static int listen_here(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    address.sun_family = AF_UNIX;
    address_len = sizeof(sa_family_t);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, address_len), 0); /* any name */
    address_len = sizeof(address);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &address_len), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static int call(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return fd >= 0 && !connect(fd, (struct sockaddr *)&address, address_len) ? fd : -1;
}

/* In a child that `become` has changed; it exits with 0 if it takes the other end for trusted, 1 if
 * it is refused. */
static pid_t start_caller(int (*become)(void))
{
    pid_t child = fork();
    if (child)
        return child;
    pid_t pid;
    int rc = become();
    if (rc)
        _exit(rc);
    int fd = call();
    if (fd < 0)
        _exit(3);
    rc = sw_proof_run(fd, 5000, &pid);
    _exit(rc == 0 ? 0 : rc == -EACCES || rc == -ECONNRESET || rc == -EPERM ? 1 : 4);
}

struct outcome {
    int here;  /* of sw_proof_run() */
    int there; /* exit status of the caller */
};

static struct outcome meet(int (*become)(void))
{
    struct outcome outcome = {.here = -1};
    pid_t pid = 0;
    int listener = listen_here(), status = 0;
    pid_t child = start_caller(become);
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    if (poll(&ready, 1, 5000) == 1 || waitpid(child, &status, WNOHANG) == 0) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            outcome.here = sw_proof_run(fd, 5000, &pid);
            close(fd);
        }
    }
    close(listener);
    waitpid(child, &status, 0);
    outcome.there = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (outcome.there == CANNOT)
        skip();
    return outcome;
}

static void trusts(int (*become)(void))
{
    struct outcome outcome = meet(become);
    assert_int_equal(outcome.here, 0);
    assert_int_equal(outcome.there, 0);
}

static void refuses(int (*become)(void))
{
    struct outcome outcome = meet(become);
    assert_true(outcome.here < 0);
    assert_int_equal(outcome.there, 1);
}

/* ---- who calls ---- */

static int stay(void)
{
    return 0;
}

static int drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    return syscall(SYS_capset, &header, none) ? CANNOT : 0;
}

static int make_undumpable(void)
{
    return prctl(PR_SET_DUMPABLE, 0) ? CANNOT : 0;
}

static int become_nobody(void)
{
    return setgid(NOBODY) || setuid(NOBODY) || prctl(PR_SET_DUMPABLE, 1) ? CANNOT : 0;
}

/* Goes on in a child that is the first process of another PID namespace. */
static int enter_pid_namespace(void)
{
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return CANNOT;
    pid_t child = fork();
    if (child < 0)
        return CANNOT;
    if (child > 0) {
        int status = 0;
        waitpid(child, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 5);
    }
    return mount("proc", "/proc", "proc", 0, NULL) ? CANNOT : 0;
}

static int be_in_another_container(void)
{
    int rc = enter_pid_namespace();
    return rc ? rc : drop_capabilities();
}

static int lose_proc(void)
{
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return CANNOT;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    return mount("none", "/proc", "tmpfs", 0, NULL) ? CANNOT : 0;
}

static int be_blind(void)
{
    return unshare(CLONE_NEWUSER) ? CANNOT : 0; /* no user is mapped: all show as the overflow */
}

static void only_root(void)
{
    if (geteuid() != 0)
        skip();
}

/* ---- cases ---- */

static void sw_proof_run__own_process(void **state)
{
    (void)state;
    trusts(stay);
}

static void sw_proof_run__same_user_and_not_dumpable(void **state)
{
    (void)state;
    only_root();
    /* Root with its capabilities may look into it, so it is the other direction that counts. */
    assert_int_equal(meet(make_undumpable).here, 0);
    pid_t child = fork();
    if (child == 0) {
        struct outcome outcome;
        if (become_nobody())
            _exit(CANNOT);
        outcome = meet(make_undumpable);
        _exit(outcome.here < 0 && outcome.there == 1 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The same number without its capabilities, against one that has them. */
static void sw_proof_run__same_user_with_fewer_capabilities(void **state)
{
    (void)state;
    only_root();
    refuses(drop_capabilities);
}

static void sw_proof_run__same_user_in_another_container(void **state)
{
    (void)state;
    only_root();
    refuses(be_in_another_container);
    pid_t child = fork(); /* against one that forbids to be looked into, too */
    if (child == 0) {
        make_undumpable();
        struct outcome outcome = meet(be_in_another_container);
        _exit(outcome.here < 0 && outcome.there == 1 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

/* Not even with all capabilities: it does not see us. */
static void sw_proof_run__another_pid_namespace(void **state)
{
    (void)state;
    only_root();
    refuses(enter_pid_namespace);
}

static void sw_proof_run__another_user(void **state)
{
    (void)state;
    only_root();
    refuses(become_nobody);
}

static void sw_proof_run__nobody_to_nobody(void **state)
{
    (void)state;
    only_root();
    pid_t child = fork();
    if (child == 0) {
        if (become_nobody())
            _exit(CANNOT);
        struct outcome outcome = meet(stay);
        _exit(outcome.here == 0 && outcome.there == 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

/* A namespace in which all users look alike: the kernel still tells them apart. */
static void sw_proof_run__blind_user_namespace(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        if (be_blind())
            _exit(CANNOT);
        struct outcome outcome = meet(stay);
        _exit(outcome.here == 0 && outcome.there == 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT)
        skip();
    assert_int_equal(status, 0);
}

static void sw_proof_run__without_proc(void **state)
{
    (void)state;
    only_root();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    trusts(lose_proc);
}

/* ---- what is said ---- */

struct message { /* as proof.c has it */
    uint64_t magic;
    uint32_t kind;
    int32_t file;
    uint64_t address, dev, ino;
    uint8_t nonce[SW_PROOF_NONCE_BYTES];
};

struct pair {
    int ours, theirs;
    struct sw_proof proof;
    struct message challenge;
};

static void open_pair(struct pair *pair)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    pair->ours = fds[0];
    pair->theirs = fds[1];
    assert_int_equal(sw_proof_begin(&pair->proof, pair->ours), 0);
    assert_int_equal(recv(pair->theirs, &pair->challenge, sizeof(pair->challenge), 0),
                     sizeof(pair->challenge));
    assert_int_equal(pair->challenge.kind, 0);
}

static void close_pair(struct pair *pair)
{
    sw_proof_end(&pair->proof);
    close(pair->ours);
    close(pair->theirs);
}

static void say(int fd, const struct message *message, size_t len, int passed)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec iov = {(void *)message, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    memcpy(CMSG_DATA(&control.head), &passed, sizeof(passed));
    if (passed >= 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof(control.bytes);
    }
    assert_int_equal(sendmsg(fd, &msg, MSG_NOSIGNAL), (ssize_t)len);
}

/* They let us look: their challenge is a file and a nonce of this process. */
static void let_look(struct pair *pair)
{
    struct stat info;
    int file = memfd_create("theirs", MFD_CLOEXEC);
    assert_int_equal(fstat(file, &info), 0);
    struct message out = {
        .magic = pair->challenge.magic, .file = file, .dev = info.st_dev, .ino = info.st_ino};
    say(pair->theirs, &out, sizeof(out), -1);
    assert_int_equal(sw_proof_step(&pair->proof, pair->ours), 0);
    assert_true(pair->proof.looked_in);
    close(file);
}

/* What does not prove anything: a descriptor of another file, no nonce, another one. */
static void sw_proof_step__false_answers(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct pair pair;
        open_pair(&pair);
        let_look(&pair);
        struct message out = {.magic = pair.challenge.magic, .kind = 1};
        int other = how == 0 ? memfd_create("other", MFD_CLOEXEC) : -1;
        if (how == 2)
            memset(out.nonce, 0x55, sizeof(out.nonce));
        if (how == 3) {
            memcpy(out.nonce, pair.proof.nonce, sizeof(out.nonce));
            out.nonce[15] ^= 1;
        }
        say(pair.theirs, &out, sizeof(out), other);
        assert_int_equal(sw_proof_step(&pair.proof, pair.ours), -EACCES);
        if (other >= 0)
            close(other);
        close_pair(&pair);
    }
}

static void sw_proof_step__true_answers(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct pair pair;
        char path[64];
        open_pair(&pair);
        let_look(&pair);
        struct message out = {.magic = pair.challenge.magic, .kind = 1};
        snprintf(path, sizeof(path), "/proc/self/fd/%d", pair.challenge.file);
        int file = how == 0 ? open(path, O_PATH | O_CLOEXEC) : -1;
        if (how == 1)
            memcpy(out.nonce, (void *)(uintptr_t)pair.challenge.address, sizeof(out.nonce));
        say(pair.theirs, &out, sizeof(out), file);
        assert_int_equal(sw_proof_step(&pair.proof, pair.ours), 1);
        if (file >= 0)
            close(file);
        close_pair(&pair);
    }
}

/* A good answer is not enough: we must have looked in, too. */
static void sw_proof_step__one_direction(void **state)
{
    (void)state;
    struct pair pair;
    open_pair(&pair);
    struct message out = {.magic = pair.challenge.magic, .kind = 1};
    memcpy(out.nonce, pair.proof.nonce, sizeof(out.nonce));
    say(pair.theirs, &out, sizeof(out), -1);
    assert_int_equal(sw_proof_step(&pair.proof, pair.ours), -EACCES);
    close_pair(&pair);
}

/* The announced file must be what is found there: no file of ours goes to a process that names its
 * number. */
static void sw_proof_step__another_file_at_that_number(void **state)
{
    (void)state;
    struct pair pair;
    open_pair(&pair);
    struct message in, out = {.magic = pair.challenge.magic, .file = 0, .dev = 1, .ino = 1};
    say(pair.theirs, &out, sizeof(out), -1);
    assert_int_equal(sw_proof_step(&pair.proof, pair.ours), 0);
    assert_false(pair.proof.looked_in);
    _Alignas(struct cmsghdr) char control[64];
    struct iovec iov = {&in, sizeof(in)};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = 64};
    assert_int_equal(recvmsg(pair.theirs, &msg, 0), sizeof(in));
    assert_int_equal(msg.msg_controllen, 0);
    close_pair(&pair);
}

static void sw_proof_step__malformed(void **state)
{
    (void)state;
    for (int how = 0; how < 6; how++) {
        struct pair pair;
        open_pair(&pair);
        struct message out = {.magic = pair.challenge.magic, .kind = how == 1 ? 2 : 0};
        if (how == 0)
            out.magic++;
        char larger[sizeof(out) + 8] = {0};
        memcpy(larger, &out, sizeof(out));
        size_t len = how == 2 ? sizeof(out) - 1 : how == 3 ? sizeof(larger) : sizeof(out);
        if (how == 5)
            let_look(&pair); /* and once more */
        say(pair.theirs, (const struct message *)larger, len, how == 4 ? 0 : -1);
        assert_int_equal(sw_proof_step(&pair.proof, pair.ours), -EPROTO);
        close_pair(&pair);
    }
    struct pair pair;
    open_pair(&pair);
    shutdown(pair.theirs, SHUT_RDWR);
    assert_int_equal(sw_proof_step(&pair.proof, pair.ours), -ECONNRESET);
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_proof_run__own_process),
        cmocka_unit_test(sw_proof_run__same_user_and_not_dumpable),
        cmocka_unit_test(sw_proof_run__same_user_with_fewer_capabilities),
        cmocka_unit_test(sw_proof_run__same_user_in_another_container),
        cmocka_unit_test(sw_proof_run__another_pid_namespace),
        cmocka_unit_test(sw_proof_run__another_user),
        cmocka_unit_test(sw_proof_run__nobody_to_nobody),
        cmocka_unit_test(sw_proof_run__blind_user_namespace),
        cmocka_unit_test(sw_proof_run__without_proc),
        cmocka_unit_test(sw_proof_step__false_answers),
        cmocka_unit_test(sw_proof_step__true_answers),
        cmocka_unit_test(sw_proof_step__one_direction),
        cmocka_unit_test(sw_proof_step__another_file_at_that_number),
        cmocka_unit_test(sw_proof_step__malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
