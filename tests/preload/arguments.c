/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every hook against libc's own function, with arguments that no sane program gives: NULL, bad
 * pointers, descriptors that are not open, flags that do not exist, paths without an end. A node
 * of ours is held to what the kernel answers for one of sysfs of the same kind.
 *
 * usage: arguments LIBRARY, with the library preloaded. Each call is made in a child of its own.
 * Where libc itself crashes, a hook may do as it likes. A hook without a row in the table fails.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arguments_kinds.h"

enum { ARGS_MAX = 6, CALLS_MAX = 800 };

/* Arguments, a letter each (arguments_kinds.c). The result: an int, a long, a descriptor, a pointer
 * (NULL or not), or nothing; upper case: of a call that changes what later ones see, so it gets a
 * child of its own. */
struct row {
    const char *function;
    char result; /* i, l, d, p, v; x: not called */
    const char *arguments;
};

static const struct row preload_rows[] = {
    {"open", 'd', "pom"},
    {"open64", 'd', "pom"},
    {"__open_2", 'd', "po"},
    {"__open64_2", 'd', "po"},
    {"openat", 'd', "dpom"},
    {"openat64", 'd', "dpom"},
    {"__openat_2", 'd', "dpo"},
    {"__openat64_2", 'd', "dpo"},
    {"creat", 'd', "pm"},
    {"creat64", 'd', "pm"},
    {"fopen", 'p', "pF"},
    {"fopen64", 'p', "pF"},
    {"freopen", 'P', "pFS"},
    {"freopen64", 'P', "pFS"},
    {"stat", 'i', "pb"},
    {"stat64", 'i', "pb"},
    {"lstat", 'i', "pb"},
    {"lstat64", 'i', "pb"},
    {"fstat", 'i', "fb"},
    {"fstat64", 'i', "fb"},
    {"fstatat", 'i', "dpbt"},
    {"fstatat64", 'i', "dpbt"},
    {"statx", 'i', "dptkb"},
    {"__xstat", 'i', "vpb"},
    {"__xstat64", 'i', "vpb"},
    {"__lxstat", 'i', "vpb"},
    {"__lxstat64", 'i', "vpb"},
    {"__fxstat", 'i', "vfb"},
    {"__fxstat64", 'i', "vfb"},
    {"__fxstatat", 'i', "vdpbt"},
    {"__fxstatat64", 'i', "vdpbt"},
    {"access", 'i', "pa"},
    {"faccessat", 'i', "dpat"},
    {"euidaccess", 'i', "pa"},
    {"eaccess", 'i', "pa"},
    {"getxattr", 'l', "pxbn"},
    {"lgetxattr", 'l', "pxbn"},
    {"listxattr", 'l', "pbn"},
    {"llistxattr", 'l', "pbn"},
    {"readlink", 'l', "pbn"},
    {"readlinkat", 'l', "dpbn"},
    {"__readlink_chk", 'l', "pbnN"},
    {"__readlinkat_chk", 'l', "dpbnN"},
    {"realpath", 'p', "pb"},
    {"__realpath_chk", 'p', "pbN"},
    {"canonicalize_file_name", 'p', "p"},
    {"opendir", 'p', "p"},
    {"fdopendir", 'P', "f"},
    {"closedir", 'I', "D"},
    {"readdir", 'P', "D"},
    {"readdir64", 'P', "D"},
    {"readdir_r", 'I', "Dbb"},
    {"readdir64_r", 'I', "Dbb"},
    {"rewinddir", 'V', "D"},
    {"seekdir", 'V', "Dn"},
    {"telldir", 'V', "D"},
    {"dirfd", 'D', "D"},
    {"chdir", 'I', "p"},
    {"fchdir", 'I', "f"},
    {"getcwd", 'p', "bn"},
    {"__getcwd_chk", 'p', "bnN"},
    {"get_current_dir_name", 'p', ""},
    {"scandir", 'i', "pB00"},
    {"scandir64", 'i', "pB00"},
    {"scandirat", 'i', "dpB00"},
    {"scandirat64", 'i', "dpB00"},
    {"glob", 'i', "pg0B"},
    {"glob64", 'i', "pg0B"},
    {"ftw", 'i', "pCw"},
    {"ftw64", 'i', "pCw"},
    {"nftw", 'i', "pCwg"},
    {"nftw64", 'i', "pCwg"},
    {"dlopen", 'p', "Lg"},
    {"write", 'l', "fbn"},
    {"close", 'I', "f"},
    {"close_range", 'I', "ffz"},
    {"closefrom", 'V', "f"},
    {"dup2", 'D', "ff"},
    {"dup3", 'D', "ffz"},
    {"madvise", 'I', "bnz"},
    {"mremap", 'P', "benz0"},
    {"process_madvise", 'L', "fVhz0"},
    {"poll", 'i', "bc0"},
    {"__poll_chk", 'i', "bc0N"},
    {"ppoll", 'i', "bcTb"},
    {"__ppoll_chk", 'i', "bcT0N"},
    {"epoll_ctl", 'i', "szsb"},
    {"epoll_wait", 'i', "sbz0"},
    {"epoll_pwait", 'i', "sbz0b"},
    {"sigaction", 'I', "zbB"},
    {"__sigaction", 'I', "zbB"},
    {"signal", 'L', "zU"},
    {"bsd_signal", 'L', "zU"},
    {"ssignal", 'L', "zU"},
    {"sysv_signal", 'L', "zU"},
    {"__sysv_signal", 'L', "zU"},
    {"sigset", 'L', "zU"},
    {"sigignore", 'I', "z"},
    {"siginterrupt", 'I', "zz"},
    {"pthread_sigmask", 'I', "zbb"},
    {"sigprocmask", 'I', "zbb"},
    {"sigblock", 'I', "z"},
    {"sigsetmask", 'I', "z"},
    {"sighold", 'I', "z"},
    {"sigrelse", 'I', "z"},
    {"pthread_create", 'x', ""}, /* its thread ends by what it is given */
    {"thrd_create", 'x', ""},
    {"posix_spawn", 'I', "bp0000"},
    {"posix_spawnp", 'I', "bp0000"},
    {"system", 'I', "p"},
    {"popen", 'P', "pF"},
};

static const struct row sockets_rows[] = {
    {"socket", 'd', "ZzZ"},
    {"socketpair", 'i', "ZzZb"},
    {"connect", 'I', "sAz"},
    {"listen", 'I', "sz"},
    {"accept", 'd', "sby"},
    {"accept4", 'd', "sbyz"},
    {"shutdown", 'I', "sz"},
    {"getsockname", 'i', "sBy"},
    {"getpeername", 'i', "sby"},
    {"getsockopt", 'i', "sQQby"},
    {"setsockopt", 'i', "sQQbz"},
    {"close", 'I', "s"},
    {"close_range", 'I', "ssz"},
    {"fclose", 'I', "S"},
    {"dup", 'D', "s"},
    {"dup2", 'D', "ss"},
    {"dup3", 'D', "ssz"},
    {"fcntl", 'D', "szz"},
    {"fcntl64", 'D', "szz"},
    {"ioctl", 'I', "sIb"},
    {"read", 'l', "sbn"},
    {"__read_chk", 'l', "sbnN"},
    {"readv", 'l', "sVz"},
    {"recv", 'l', "sbnz"},
    {"__recv_chk", 'l', "sbnNz"},
    {"recvfrom", 'l', "sbnzby"},
    {"__recvfrom_chk", 'l', "sbnN0b"},
    {"recvmsg", 'l', "sMz"},
    {"recvmmsg", 'i', "sMcz0"},
    {"write", 'l', "sbn"},
    {"writev", 'l', "sVz"},
    {"send", 'l', "sbnz"},
    {"sendto", 'L', "sbnzAz"},
    {"sendmsg", 'l', "sMz"},
    {"sendmmsg", 'i', "sMcz"},
    {"sendfile", 'L', "ssbh"},
    {"sendfile64", 'L', "ssbh"},
    {"splice", 'L', "sbsbhz"},
    {"poll", 'i', "bc0"},
    {"__poll_chk", 'i', "bc0N"},
    {"ppoll", 'i', "bcTb"},
    {"__ppoll_chk", 'i', "bcT0N"},
    {"select", 'i', "cbbbT"},
    {"pselect", 'i', "cbbbTb"},
    {"epoll_create", 'd', "z"},
    {"epoll_create1", 'd', "z"},
    {"epoll_ctl", 'i', "szsb"},
    {"epoll_wait", 'i', "sbz0"},
    {"epoll_pwait", 'i', "sbz0b"},
    {"epoll_pwait2", 'i', "sbzTb"},
    {"fork", 'x', ""},   /* no arguments */
    {"daemon", 'x', ""}, /* two truth values */
};

struct answer {
    long result;
    int error;
    uint64_t contents;
    bool has_come;
    int status; /* of a child that ended before it came */
};

/* The calls of a row. */
static struct plan {
    int count;
    int chosen[CALLS_MAX][ARGS_MAX];
} plan;
static struct answer (*answers)[CALLS_MAX]; /* of each side; shared with the children */

static uint64_t hash_page(void)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    for (int i = 0; i < BUFFER_BYTES; i++)
        hash = (hash ^ (uint8_t)kinds_page[i]) * 0x100000001b3ull;
    return hash;
}

typedef long any_fn(long, long, long, long, long, long, long);

static long shown_result(const struct row *row, long result)
{
    switch (row->result | 0x20) {
    case 'i':
        return (int)result;
    case 'p':
        return result && result != -1 ? 0 : -1; /* MAP_FAILED */
    case 'd':
        return (int)result < 0 ? -1 : 0;
    case 'v':
        return 0;
    }
    return result;
}

static void make_call(const struct row *row, any_fn *function, enum side side, int number)
{
    struct answer *answer = &answers[side][number];
    long a[ARGS_MAX + 1] = {0};
    for (int i = 0; row->arguments[i]; i++)
        a[i] = kinds_find(row->arguments[i])->values[plan.chosen[number][i]].on[side];
    memset(kinds_page, 0, BUFFER_BYTES);
    alarm(5);
    errno = 0;
    const long result = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
    const int error = errno;
    answer->result = shown_result(row, result);
    answer->error = answer->result == -1 ? error : 0;
    answer->contents = hash_page();
    answer->has_come = true;
    if (row->result == 'd' && answer->result == 0)
        syscall(SYS_close, (int)result);
    kinds_remove_made();
}

/* The calls from `first` on, as far as they go in one child. Returns how many were made. */
static int make_calls(const struct row *row, any_fn *function, enum side side, int first)
{
    const int limit = isupper((unsigned char)row->result) ? first + 1 : plan.count;
    int status;
    const pid_t pid = fork();
    if (pid == 0) {
        kinds_renew(side, strchr(row->arguments, 's') || strchr(row->arguments, 'c'),
                    !strcmp(row->function, "shutdown")); /* is felt by all who have it */
        for (int i = first; i < limit; i++)
            make_call(row, function, side, i);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    int next = first;
    while (next < limit && answers[side][next].has_come)
        next++;
    if (next < limit)
        answers[side][next++].status = status;
    return next - first;
}

static void describe_answer(const char *whose, const struct answer *answer)
{
    if (answer->has_come)
        printf("  %s: %ld, %s\n", whose, answer->result,
               answer->error ? strerrorname_np(answer->error) : "no error");
    else if (WIFSIGNALED(answer->status))
        printf("  %s: ends by SIG%s\n", whose, sigabbrev_np(WTERMSIG(answer->status)));
    else
        printf("  %s: exits with %d\n", whose, WEXITSTATUS(answer->status));
}

static void describe(const struct row *row, int number)
{
    printf("FAILED: %s(", row->function);
    for (int i = 0; row->arguments[i]; i++)
        printf("%s%s", i ? ", " : "",
               kinds_find(row->arguments[i])->values[plan.chosen[number][i]].name);
    printf(")\n");
    describe_answer("libc", &answers[LIBC][number]);
    describe_answer("hook", &answers[HOOK][number]);
}

/* The content of a node of ours is its own: only whether it is answered is compared. */
static bool agree(const struct row *row, int number)
{
    const struct answer *libc = &answers[LIBC][number], *hook = &answers[HOOK][number];
    bool is_node = false;
    for (int i = 0; row->arguments[i]; i++)
        is_node |= kinds_find(row->arguments[i])->values[plan.chosen[number][i]].is_node;
    if (!libc->has_come)
        return true; /* libc crashes: so may the hook */
    if (!hook->has_come || libc->error != hook->error)
        return false;
    if (is_node)
        return (libc->result < 0) == (hook->result < 0);
    return libc->result == hook->result &&
           (strchr(row->arguments, 'B') || libc->contents == hook->contents);
}

static int failures, calls;

static void add_call(const int *chosen)
{
    if (plan.count == CALLS_MAX)
        abort();
    memcpy(plan.chosen[plan.count++], chosen, sizeof(plan.chosen[0]));
}

/* The argument that says what the call is about. */
static int find_object(const struct row *row)
{
    const char *letters = row->arguments;
    for (int i = 0; letters[i]; i++)
        if (strchr("pfsD", letters[i]))
            return i;
    return 0;
}

/* All that the call can be about, and with each all that each other argument can be, while the rest
 * are what they should be. */
static void plan_row(const struct row *row)
{
    const char *letters = row->arguments;
    const int object = find_object(row);
    int chosen[ARGS_MAX] = {0};
    plan.count = 0;
    if (!letters[0])
        add_call(chosen);
    const struct kind *objects = letters[0] ? kinds_find(letters[object]) : NULL;
    for (int of = 0; objects && of < objects->count; of++) {
        chosen[object] = of;
        add_call(chosen);
        /* Calls that make RDMA sockets take longer: only a file and one of ours have it all. */
        if (letters[object] == 's' && of && strcmp(objects->values[of].name, "a TCP socket"))
            continue;
        for (int i = 0; letters[i]; i++) {
            const int count = i == object ? 0 : kinds_find(letters[i])->count;
            for (int value = 1; value < count; value++) {
                chosen[i] = value;
                add_call(chosen);
            }
            chosen[i] = i == object ? of : 0;
        }
    }
}

static void try_row(const struct row *row, any_fn *const functions[SIDES])
{
    plan_row(row);
    memset(answers, 0, SIDES * sizeof(answers[0]));
    for (enum side side = LIBC; side < SIDES; side++)
        for (int first = 0; first < plan.count;)
            first += make_calls(row, functions[side], side, first);
    calls += plan.count;
    for (int i = 0; i < plan.count; i++) {
        if (agree(row, i))
            continue;
        failures++;
        describe(row, i);
    }
}

static const struct row *find_row(const char *function, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(rows[i].function, function))
            return &rows[i];
    return NULL;
}

/* What the library exports and libc has, too. */
static void try_library(const char *library, const struct row *rows, size_t count)
{
    char command[PATH_MAX + 64], name[256];
    void *hooks = dlopen(library, RTLD_NOW | RTLD_NOLOAD), *libc = dlopen("libc.so.6", RTLD_NOW);
    snprintf(command, sizeof(command), "nm -D --defined-only '%s' | sed 's/.* //; s/@.*//'",
             library);
    FILE *names = popen(command, "re");
    answers = mmap(NULL, SIDES * sizeof(answers[0]), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!hooks || !libc || !names || answers == MAP_FAILED) {
        fprintf(stderr, "%s must be preloaded, and nm there\n", library);
        abort();
    }
    size_t tried = 0;
    while (fscanf(names, "%255s", name) == 1) {
        any_fn *functions[SIDES] = {(any_fn *)dlsym(libc, name), (any_fn *)dlsym(hooks, name)};
        const struct row *row = find_row(name, rows, count);
        if (!functions[LIBC])
            continue;
        tried++;
        if (row && row->result != 'x')
            try_row(row, functions);
        failures += !row;
        if (!row)
            printf("FAILED: the hook %s is tried nowhere: it needs a row in this table\n", name);
    }
    pclose(names);
    if (tried != count)
        printf("FAILED: %zu rows, and %zu hooks\n", count, tried), failures++;
}

int main(int argc, char **argv)
{
    struct stat info;
    if (argc != 2)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (stat("/sys/class/infiniband/sw_lo", &info)) {
        puts("SKIP: there is no loopback interface that is up");
        return 77;
    }
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(SIGPIPE, SIG_IGN);
    kinds_prepare();
    const bool is_sockets = strstr(argv[1], "libsidewire-sockets") != NULL;
    if (is_sockets)
        try_library(argv[1], sockets_rows, sizeof(sockets_rows) / sizeof(sockets_rows[0]));
    else
        try_library(argv[1], preload_rows, sizeof(preload_rows) / sizeof(preload_rows[0]));
    kinds_clean();
    printf("%d calls tried, %d answered otherwise than by libc\n", calls, failures);
    return failures != 0;
}
