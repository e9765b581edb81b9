/* SPDX-License-Identifier: BSD-2-Clause */
/* The lock on what is served: between processes, in all the ways in which they end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/serve/served.h"

static const struct mover_serving alone = {.share_option = "--shared"};
static const struct mover_serving shared = {.is_shared = true, .share_option = "--shared"};
static const struct mover_serving only_read = {
    .is_shared = true, .is_unwritten = true, .share_option = "--shared"};
static const struct mover_serving only_alone = {0};
static char path[64], error[512];

/* Another process that serves `what`, or its status if it cannot. */
struct server {
    pid_t pid;
    int code, stop_fd;
};

static struct server start_server(const char *what, const struct mover_serving *how, bool forks)
{
    int answer[2], stop[2];
    struct server server = {.code = -EIO};
    assert_int_equal(pipe2(answer, O_CLOEXEC) | pipe2(stop, O_CLOEXEC), 0);
    server.pid = fork();
    assert_true(server.pid >= 0);
    if (!server.pid) {
        char byte;
        close(stop[1]);
        const int fd = mover_served_open(what, O_RDWR, how, error, sizeof(error));
        if (forks && fork())
            _exit(write(answer[1], &fd, sizeof(fd)) != sizeof(fd));
        _exit((!forks && write(answer[1], &fd, sizeof(fd)) != sizeof(fd)) ||
              read(stop[0], &byte, 1) < 0);
    }
    close(answer[1]);
    close(stop[0]);
    server.stop_fd = stop[1];
    assert_int_equal(read(answer[0], &server.code, sizeof(server.code)), sizeof(server.code));
    close(answer[0]);
    return server;
}

static void end_server(struct server *server, int signal)
{
    if (signal)
        kill(server->pid, signal);
    close(server->stop_fd);
    waitpid(server->pid, NULL, 0);
}

static int try_to_serve(int flags, const struct mover_serving *how)
{
    error[0] = 0;
    const int fd = mover_served_open(path, flags, how, error, sizeof(error));
    if (fd >= 0)
        close(fd);
    return fd < 0 ? fd : 0;
}

static void says(const char *word)
{
    if (!strstr(error, word))
        fail_msg("\"%s\" is not said in \"%s\"", word, error);
}

static void served_open__once(void **state)
{
    (void)state;
    char pid[32];
    struct server other = start_server(path, &alone, false);
    assert_true(other.code >= 0);
    assert_int_equal(try_to_serve(O_RDWR, &alone), -EBUSY);
    snprintf(pid, sizeof(pid), "(PID %d)", other.pid);
    says(path);
    says(pid);
    says("test_movers_ser"); /* the kernel keeps 15 characters */
    says("--shared");
    assert_int_equal(try_to_serve(O_RDWR, &only_alone), -EBUSY);
    assert_null(strstr(error, "--shared"));
    assert_int_equal(try_to_serve(O_RDONLY, &alone), -EBUSY);
    assert_int_equal(try_to_serve(O_RDONLY, &shared), -EBUSY);
    end_server(&other, 0);
    assert_int_equal(try_to_serve(O_RDONLY, &alone), 0);
}

static void served_open__once_in_a_process(void **state)
{
    (void)state;
    const int fd = mover_served_open(path, O_RDWR, &alone, error, sizeof(error));
    assert_true(fd >= 0);
    assert_int_equal(try_to_serve(O_RDWR, &alone), -EBUSY);
    says("this process");
    says("serve it once, or each time with --shared");
    assert_null(strstr(error, "stop that one")); /* which would stop all */
    close(open(path, O_RDWR));                   /* which loses locks of fcntl() */
    assert_int_equal(try_to_serve(O_RDWR, &alone), -EBUSY);
    close(fd);
    assert_int_equal(try_to_serve(O_RDWR, &alone), 0);
}

static void served_open__again_after_a_kill(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct server other = start_server(path, &alone, false);
        assert_true(other.code >= 0);
        kill(other.pid, SIGKILL); /* not waited for yet */
        if (try_to_serve(O_RDWR, &alone))
            fail_msg("%s", error);
        end_server(&other, 0);
    }
}

/* ---- a holder that goes while it is looked at ---- */

/* What stands in for a file of /proc: who reads it waits for what is written there. */
struct stand_in {
    const char *answer; /* to each look, and then the lock goes */
    int looks;
    char of[64], fifo[96];
};

static pid_t answer_looks(const struct stand_in *in, int lock)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    for (int i = 0; i < in->looks; i++) {
        const int fd = open(in->fifo, O_WRONLY);
        const size_t bytes = strlen(in->answer);
        if (i == in->looks - 1)
            flock(lock, LOCK_UN);
        if (fd < 0 || write(fd, in->answer, bytes) != (ssize_t)bytes)
            _exit(1);
        close(fd);
        usleep(2000); /* so that the reader meets the end of it before the next writer comes */
    }
    _exit(0);
}

/* The result of mover_served_open() where the file of /proc is that; 1: this cannot be had here. */
static int serve_behind(const struct stand_in *in)
{
    int code = -EIO, answer[2];
    assert_int_equal(pipe2(answer, O_CLOEXEC), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        code = 1;
        if (!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
            !mount(in->fifo, in->of, NULL, MS_BIND, NULL))
            code = try_to_serve(O_RDWR, &alone);
        _exit(write(answer[1], &code, sizeof(code)) != sizeof(code));
    }
    close(answer[1]);
    assert_int_equal(read(answer[0], &code, sizeof(code)), sizeof(code));
    close(answer[0]);
    waitpid(pid, NULL, 0);
    return code;
}

static void serve_while_it_goes(struct stand_in *in)
{
    const int lock = open(path, O_RDWR | O_CLOEXEC);
    snprintf(in->fifo, sizeof(in->fifo), "%s-proc", path);
    assert_int_equal(flock(lock, LOCK_EX | LOCK_NB) | mkfifo(in->fifo, 0600), 0);
    const pid_t pid = answer_looks(in, lock);
    const int code = serve_behind(in);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(lock);
    unlink(in->fifo);
    if (code == 1)
        skip();
    assert_int_equal(code, 0);
}

static void served_open__it_goes_before_it_is_found(void **state)
{
    (void)state;
    struct stand_in in = {.answer = "", .looks = 1, .of = "/proc/locks"};
    serve_while_it_goes(&in);
}

/* By a kill that it has not met yet. */
static void served_open__it_is_being_killed(void **state)
{
    (void)state;
    struct stand_in in = {.answer = "SigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n",
                          .looks = 6};
    snprintf(in.of, sizeof(in.of), "/proc/%d/status", getpid());
    serve_while_it_goes(&in);
    in.answer = "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n";
    serve_while_it_goes(&in);
}

static void served_open__shared(void **state)
{
    (void)state;
    struct server one = start_server(path, &shared, false);
    struct server two = start_server(path, &shared, false);
    assert_true(one.code >= 0 && two.code >= 0);
    assert_int_equal(try_to_serve(O_RDONLY, &shared), 0);
    assert_int_equal(try_to_serve(O_RDWR, &alone), -EBUSY);
    says("shared");
    end_server(&one, SIGKILL);
    assert_int_equal(try_to_serve(O_RDWR, &alone), -EBUSY);
    end_server(&two, SIGKILL);
    assert_int_equal(try_to_serve(O_RDWR, &alone), 0);
}

/* The option alone would not help: the other one has to share it to write, too. */
static void served_open__where_nobody_writes(void **state)
{
    (void)state;
    struct server one = start_server(path, &only_read, false);
    assert_true(one.code >= 0);
    assert_int_equal(try_to_serve(O_RDWR, &alone), -EBUSY);
    says("start both with --shared");
    end_server(&one, SIGKILL);
}

/* A copy of the descriptor lives on in it. What is executed has none. */
static void served_open__a_child_keeps_it(void **state)
{
    (void)state;
    struct server other = start_server(path, &alone, true);
    assert_true(other.code >= 0);
    waitpid(other.pid, NULL, 0);
    assert_int_equal(try_to_serve(O_RDWR, &alone), -EBUSY);
    says("a child");
    close(other.stop_fd);
    int code = -EBUSY;
    for (int tries = 0; code == -EBUSY && tries < 100; tries++)
        code = try_to_serve(O_RDWR, &alone);
    assert_int_equal(code, 0);
    const int fd = mover_served_open(path, O_RDWR, &alone, error, sizeof(error));
    assert_true(fd >= 0 && fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
}

static void served_open__not_there(void **state)
{
    (void)state;
    assert_int_equal(mover_served_open("/nowhere/at/all", O_RDWR, &alone, error, sizeof(error)),
                     -ENOENT);
    says("/nowhere/at/all");
}

/* ---- a block device: its loop device ---- */

static bool make_loop(char name[32], int *loop)
{
    const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    const int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    struct loop_config config = {.fd = (uint32_t)file, .info.lo_flags = LO_FLAGS_AUTOCLEAR};
    snprintf(name, 32, "/dev/loop%d", number);
    *loop = number < 0 ? -1 : open(name, O_RDWR | O_CLOEXEC);
    const bool is_made = *loop >= 0 && !ioctl(*loop, LOOP_CONFIGURE, &config);
    if (*loop >= 0 && !is_made)
        close(*loop);
    close(file);
    if (control >= 0)
        close(control);
    return is_made;
}

static void served_open__a_device_once(void **state)
{
    (void)state;
    char name[32], node[64];
    struct stat st;
    int loop, claim;
    if (!make_loop(name, &loop)) {
        print_message("no loop device here\n");
        skip();
    }
    struct server other = start_server(name, &alone, false);
    assert_true(other.code >= 0);
    assert_true(mover_served_open(name, O_RDWR, &shared, error, sizeof(error)) == -EBUSY);
    says("(PID ");
    /* Another node of the device, which has no lock to be seen. */
    snprintf(node, sizeof(node), "%.50s-node", path);
    assert_int_equal(fstat(loop, &st), 0);
    if (!mknod(node, S_IFBLK | 0600, st.st_rdev)) {
        const int fd = mover_served_open(node, O_RDWR, &alone, error, sizeof(error));
        unlink(node);
        if (fd != -EACCES && fd != -EPERM) {
            assert_int_equal(fd, -EBUSY);
            says("in use");
        }
    }
    for (int i = 0; i < 10; i++) { /* again after a kill, which is not waited for */
        kill(other.pid, SIGKILL);
        struct server next = start_server(name, &alone, false);
        assert_true(next.code >= 0);
        end_server(&other, 0);
        other = next;
    }
    end_server(&other, SIGKILL);
    struct server one = start_server(name, &shared, false);
    struct server two = start_server(name, &shared, false);
    assert_true(one.code >= 0 && two.code >= 0);
    assert_true(mover_served_open(name, O_RDWR, &alone, error, sizeof(error)) == -EBUSY);
    end_server(&one, SIGKILL);
    end_server(&two, SIGKILL);
    assert_int_equal(mover_served_claim(name, O_RDWR, &alone, &claim, error, sizeof(error)), 0);
    assert_true(open(name, O_RDWR | O_EXCL | O_CLOEXEC) < 0 && errno == EBUSY);
    close(claim);
    close(loop);
}

static int make_file(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "/var/tmp/served-XXXXXX");
    const int fd = mkstemp(path);
    const int code = fd < 0 || ftruncate(fd, 1 << 20);
    close(fd);
    return code;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(served_open__once),
        cmocka_unit_test(served_open__once_in_a_process),
        cmocka_unit_test(served_open__again_after_a_kill),
        cmocka_unit_test(served_open__it_goes_before_it_is_found),
        cmocka_unit_test(served_open__it_is_being_killed),
        cmocka_unit_test(served_open__shared),
        cmocka_unit_test(served_open__where_nobody_writes),
        cmocka_unit_test(served_open__a_child_keeps_it),
        cmocka_unit_test(served_open__not_there),
        cmocka_unit_test(served_open__a_device_once),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
