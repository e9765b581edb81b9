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
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum side { LIBC, HOOK, SIDES };
enum { VALUES_MAX = 20, ARGS_MAX = 6, BUFFER_BYTES = 4096, CALLS_MAX = 800 };

/* One thing that an argument can be; on either side it may have another value. */
struct value {
    const char *name;
    long on[SIDES];
    bool is_node; /* ours on one side, sysfs on the other: contents may differ */
};

struct kind {
    char letter;
    int count;
    struct value values[VALUES_MAX];
};

/* Arguments, a letter each, as prepare() has them. The result: an int, a long, a descriptor, a
 * pointer (NULL or not), or nothing; upper case: of a call that changes what later ones see, so it
 * gets a child of its own. */
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

static struct kind kinds[40];
static int kind_count;
static char *page;      /* readable and writable; nothing behind it can be read */
static char *hidden;    /* no access */
static char *read_only; /* zeros */
static DIR *streams[2][SIDES];

static struct kind *find_kind(char letter)
{
    for (int i = 0; i < kind_count; i++)
        if (kinds[i].letter == letter)
            return &kinds[i];
    fprintf(stderr, "no kind of argument is called '%c'\n", letter);
    abort();
}

static void add_both(char letter, const char *name, long libc, long hook, bool is_node)
{
    if (!kind_count || kinds[kind_count - 1].letter != letter)
        kinds[kind_count++].letter = letter;
    struct kind *kind = &kinds[kind_count - 1];
    kind->values[kind->count++] = (struct value){name, {libc, hook}, is_node};
}

static void add(char letter, const char *name, long value)
{
    add_both(letter, name, value, value, false);
}

static void add_address(char letter, const char *name, const void *address)
{
    add(letter, name, (long)(intptr_t)address);
}

static void add_paths(char letter, const char *name, const char *libc, const char *hook)
{
    add_both(letter, name, (long)(intptr_t)libc, (long)(intptr_t)hook, true);
}

static void add_opened(char letter, const char *name, const char *libc, const char *hook)
{
    const int flags = O_RDONLY | O_CLOEXEC;
    add_both(letter, name, open(libc, flags), open(hook, flags), true);
}

static char scratch[] = "/tmp/sidewire-arguments-XXXXXX";
static char file_path[64], none_path[64];

/* A string that ends where the page does. */
static char *at_end(const char *text)
{
    size_t len = strlen(text) + 1;
    char *own =
        mmap(NULL, 2 * BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(own + BUFFER_BYTES, BUFFER_BYTES, PROT_NONE);
    return memcpy(own + BUFFER_BYTES - len, text, len);
}

static char *repeated(const char *start, const char *part, size_t len)
{
    char *text = calloc(1, len + 64);
    strcpy(text, start);
    for (size_t used = strlen(text); used < len; used += strlen(part))
        strcpy(text + used, part);
    return text;
}

static char *without_end(const char *start)
{
    char *own = at_end("");
    memset(own + 1 - BUFFER_BYTES, '/', BUFFER_BYTES);
    return memcpy(own + 1 - 64, start, strlen(start));
}

static void add_bad_addresses(char letter)
{
    add_address(letter, "NULL", NULL);
    add_address(letter, "no access", hidden);
    add(letter, "8", 8);
    add(letter, "-1", -1);
    add(letter, "no address", (long)(1ul << 62));
}

static void add_path_kind(void)
{
    add_address('p', "a file", file_path);
    add_bad_addresses('p');
    add_address('p', "\"\"", "");
    add_address('p', "no end", without_end("infiniband"));
    add_address('p', "/sys without end", without_end("/sys/class/infiniband"));
    add_address('p', "long", repeated("/sys/class/infiniband", "/.", 6000));
    add_address('p', "long name", repeated("/sys/class/infiniband/", "x", 300));
    add_address('p', "long relative", repeated("infiniband", "x", 6000));
    add_address('p', "at the end", at_end("sw_"));
    add_address('p', "a directory", scratch);
    add_address('p', "nothing", none_path);
    add_paths('p', "node file", "/sys/class/net/lo/address",
              "/sys/class/infiniband/sw_lo/node_type");
    add_paths('p', "node directory", "/sys/devices/virtual/net/lo",
              "/sys/devices/virtual/infiniband/sw_lo");
    add_paths('p', "node link", "/sys/class/net/lo", "/sys/class/infiniband/sw_lo");
    add_paths('p', "node file/", "/sys/class/net/lo/address/",
              "/sys/class/infiniband/sw_lo/node_type/");
    add_paths('p', "no node", "/sys/class/net/lo/nothing", "/sys/class/infiniband/sw_lo/nothing");
}

static int file, null;
enum { EPOLL, UNIX, UNIX_PEER, TCP, LISTENER, SOCKETS };
static int sockets[SOCKETS] = {-1, -1, -1, -1, -1};

static void make_listener(void)
{
    close(sockets[LISTENER]);
    sockets[LISTENER] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listen(sockets[LISTENER], 1))
        abort();
}

/* Each child has its own, under the same numbers; but for the listener, which takes long. */
static void make_sockets(void)
{
    for (int i = 0; i < LISTENER; i++)
        close(sockets[i]);
    sockets[EPOLL] = epoll_create1(EPOLL_CLOEXEC);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, &sockets[UNIX]))
        abort();
    sockets[TCP] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
}

static void add_descriptor_kinds(void)
{
    int pipes[2];
    const int none = 999;
    file = open(file_path, O_RDWR | O_CLOEXEC);
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    add('d', "AT_FDCWD", AT_FDCWD);
    add('d', "-1", -1);
    add('d', "not open", none);
    add('d', "INT_MIN", INT_MIN);
    add('d', "a file", file);
    add_opened('d', "a node directory", "/sys/devices/virtual/net/lo",
               "/sys/devices/virtual/infiniband/sw_lo");
    if (pipe2(pipes, O_NONBLOCK | O_CLOEXEC))
        abort();
    for (const char *letter = "fs"; *letter; letter++) {
        add(*letter, "a file", file);
        add(*letter, "-1", -1);
        add(*letter, "not open", none);
        add(*letter, "INT_MAX", INT_MAX);
        add(*letter, "INT_MIN", INT_MIN);
        add(*letter, "a pipe", pipes[0]);
        add(*letter, "a directory", open(scratch, O_RDONLY | O_CLOEXEC));
        if (*letter == 's')
            break;
        add_opened('f', "a node", "/sys/class/net/lo/address",
                   "/sys/class/infiniband/sw_lo/node_type");
        add_opened('f', "a node directory", "/sys/devices/virtual/net/lo",
                   "/sys/devices/virtual/infiniband/sw_lo");
    }
    make_sockets();
    make_listener();
    add('s', "an epoll set", sockets[EPOLL]);
    add('s', "a Unix socket", sockets[UNIX]);
    add('s', "a TCP socket", sockets[TCP]);
    add('s', "a TCP listener", sockets[LISTENER]);
}

static int visit(void)
{
    return 1;
}

static void add_numbers(char letter, const long *numbers, size_t count)
{
    static char names[400][16];
    static int used;
    for (size_t i = 0; i < count; i++) {
        snprintf(names[used], sizeof(names[used]), "%#lx", numbers[i]);
        add(letter, names[used++], numbers[i]);
    }
}
#define ADD_NUMBERS(letter, ...)                     \
    add_numbers(letter, (const long[]){__VA_ARGS__}, \
                sizeof((const long[]){__VA_ARGS__}) / sizeof(long))

static void add_number_kinds(void)
{
    ADD_NUMBERS('0', 0);
    ADD_NUMBERS('o', O_RDONLY, O_WRONLY, O_RDWR | O_TRUNC, O_RDWR | O_CREAT | O_EXCL, O_DIRECTORY,
                O_RDONLY | O_CREAT, O_NOFOLLOW, O_PATH, O_PATH | O_NOFOLLOW, O_PATH | O_DIRECTORY,
                O_TMPFILE | O_RDWR, O_DIRECTORY | O_CREAT, O_TMPFILE, -1, 1 << 30);
    ADD_NUMBERS('m', 0600, 0, -1);
    ADD_NUMBERS('a', F_OK, R_OK, X_OK, R_OK | X_OK, 8, 1 << 20); /* root may do more to sysfs */
    ADD_NUMBERS('t', 0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_EACCESS, AT_REMOVEDIR << 20,
                AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, -1);
    ADD_NUMBERS('k', STATX_BASIC_STATS, 0, STATX__RESERVED, -1);
    ADD_NUMBERS('v', 1, 0, 3, -1);
    ADD_NUMBERS('n', 64, 0, 1, BUFFER_BYTES, INT_MAX, -1);
    /* Of a mapping: INT_MAX would take away what lies above, the libraries or not, as it comes. */
    ADD_NUMBERS('e', 64, 0, 1, BUFFER_BYTES, -1);
    ADD_NUMBERS('N', BUFFER_BYTES, 0, 63, -1);
    ADD_NUMBERS('U', 0, 1, 2, -1); /* what a signal does */
    ADD_NUMBERS('z', 0, 1, 2, 5, SIGBUS, 64, 1 << 20, INT_MAX, INT_MIN, -1);
    ADD_NUMBERS('Z', 0, AF_UNIX, AF_INET, AF_INET6, 99, -1);
    ADD_NUMBERS('c', 100, 0, 1, INT_MAX, -1);
    ADD_NUMBERS('g', 1, 0, 2, 16, 1 << 20, -1);
    ADD_NUMBERS('h', 64, 0, 1);
    ADD_NUMBERS('w', 20, 1, 0, -1);
    ADD_NUMBERS('I', FIONREAD, FIONBIO, TIOCGWINSZ, 0, -1);
    ADD_NUMBERS('Q', SOL_SOCKET, SO_ERROR, SO_RCVTIMEO, IPPROTO_TCP, 0, -1);
}

static void add_pointer_kinds(void)
{
    static const char *modes[] = {"r", "w", "a", "", "r+", "z", "rxe"};
    static int four;
    static struct iovec parts[64], bad_parts[64];
    static struct msghdr messages[64];
    static struct timespec no_time;
    static struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = 0x0100};
    four = 4;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    parts[0] = (struct iovec){page, 64};
    bad_parts[0] = (struct iovec){hidden, 64};
    for (const char *letter = "bB"; *letter; letter++) {
        add_address(*letter, "a page", page);
        add_address(*letter, "the end of a page", page + BUFFER_BYTES - 8);
        add_address(*letter, "read-only", read_only);
        add_bad_addresses(*letter);
    }
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        add_address('F', modes[i], modes[i]);
    add_bad_addresses('F');
    add_address('S', "a stream", fopen(file_path, "r+e"));
    add_address('S', "NULL", NULL);
    add_address('x', "an attribute", "user.none");
    add_bad_addresses('x');
    add_address('L', "a library", "libc.so.6");
    add_address('L', "no library", "/nothing.so");
    add_bad_addresses('L');
    add_address('C', "a function", (const void *)visit);
    add_address('y', "4", &four);
    add_bad_addresses('y');
    add_address('V', "a part", parts);
    add_address('V', "a bad part", bad_parts);
    add_bad_addresses('V');
    add_address('M', "messages", messages);
    add_bad_addresses('M');
    add_address('T', "no time", &no_time);
    add_address('T', "no access", hidden);
    add_address('A', "an address", &to);
    add_address('A', "zeros", read_only);
    add_bad_addresses('A');
    add_both('D', "a stream", (long)(intptr_t)streams[0][LIBC], (long)(intptr_t)streams[0][HOOK],
             false);
    add_both('D', "of a node", (long)(intptr_t)streams[1][LIBC], (long)(intptr_t)streams[1][HOOK],
             true);
    add_bad_addresses('D');
}

static void prepare(void)
{
    char *area = mmap(NULL, 4 * BUFFER_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page = area;
    hidden = area + BUFFER_BYTES;
    read_only = area + 2 * BUFFER_BYTES;
    if (area == MAP_FAILED || mprotect(page, BUFFER_BYTES, PROT_READ | PROT_WRITE) ||
        mprotect(read_only, BUFFER_BYTES, PROT_READ) || !mkdtemp(scratch) || chdir(scratch))
        abort();
    snprintf(file_path, sizeof(file_path), "%s/file", scratch);
    snprintf(none_path, sizeof(none_path), "%s/none", scratch);
    const int fd = open(file_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (write(fd, "text\n", 5) != 5 || close(fd))
        abort();
    for (int side = LIBC; side < SIDES; side++) {
        streams[0][side] = opendir(scratch);
        streams[1][side] = opendir(side == LIBC ? "/sys/devices/virtual/net/lo"
                                                : "/sys/devices/virtual/infiniband/sw_lo");
    }
    add_path_kind();
    add_descriptor_kinds();
    add_number_kinds();
    add_pointer_kinds();
}

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
        hash = (hash ^ (uint8_t)page[i]) * 0x100000001b3ull;
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
        a[i] = find_kind(row->arguments[i])->values[plan.chosen[number][i]].on[side];
    memset(page, 0, BUFFER_BYTES);
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
    syscall(SYS_unlinkat, AT_FDCWD, none_path, 0);
}

/* The calls from `first` on, as far as they go in one child. Returns how many were made. */
static int make_calls(const struct row *row, any_fn *function, enum side side, int first)
{
    const int limit = isupper((unsigned char)row->result) ? first + 1 : plan.count;
    int status;
    const pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 2; i++)
            rewinddir(streams[i][side]);
        lseek(file, 0, SEEK_SET);
        dup2(null, STDERR_FILENO); /* libc says why it ends a program */
        if (strchr(row->arguments, 's') || strchr(row->arguments, 'c'))
            make_sockets();
        if (!strcmp(row->function, "shutdown")) /* is felt by all who have it */
            make_listener();
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
               find_kind(row->arguments[i])->values[plan.chosen[number][i]].name);
    printf(")\n");
    describe_answer("libc", &answers[LIBC][number]);
    describe_answer("hook", &answers[HOOK][number]);
}

/* What a node of ours has in it is its own: only whether it is answered is compared. */
static bool agree(const struct row *row, int number)
{
    const struct answer *libc = &answers[LIBC][number], *hook = &answers[HOOK][number];
    bool is_node = false;
    for (int i = 0; row->arguments[i]; i++)
        is_node |= find_kind(row->arguments[i])->values[plan.chosen[number][i]].is_node;
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
    const struct kind *objects = letters[0] ? find_kind(letters[object]) : NULL;
    for (int of = 0; objects && of < objects->count; of++) {
        chosen[object] = of;
        add_call(chosen);
        /* What makes RDMA sockets takes longer: only a file and one of ours have it all. */
        if (letters[object] == 's' && of && strcmp(objects->values[of].name, "a TCP socket"))
            continue;
        for (int i = 0; letters[i]; i++) {
            const int count = i == object ? 0 : find_kind(letters[i])->count;
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
    prepare();
    const bool is_sockets = strstr(argv[1], "libsidewire-sockets") != NULL;
    if (is_sockets)
        try_library(argv[1], sockets_rows, sizeof(sockets_rows) / sizeof(sockets_rows[0]));
    else
        try_library(argv[1], preload_rows, sizeof(preload_rows) / sizeof(preload_rows[0]));
    unlink(file_path);
    unlink(none_path);
    unlink("sw_"); /* a path that was given */
    if (chdir("/") || rmdir(scratch))
        perror(scratch);
    printf("%d calls tried, %d answered otherwise than by libc\n", calls, failures);
    return failures != 0;
}
