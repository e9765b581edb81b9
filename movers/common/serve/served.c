/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/served.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum {
    FILE_NAME_BYTES = 64, /* "fe:00:5423147" */
    TRIES = 200,
    LOOKS = 3,         /* at who has it and does not seem to leave */
    UNSEEN_LOOKS = 30, /* for a holder that is not found */
    PROBES = 5,
    PAUSE_US = 10000,
    FLAG_EXITING = 4 /* PF_EXITING, proc(5) */
};

static const unsigned long long kill_mask = 1ull << (SIGKILL - 1);

/* Bytes that are locked as marks, far behind what programs lock in parts. The first one is locked
 * for a moment, to learn the file's name. A sharing server holds one of the next two: the first of
 * them if it may write, the second if nobody may. Descriptors for I/O have the last. */
static const int64_t name_offset = 1ll << 61, writers_offset = name_offset + 1,
                     unwritten_offset = name_offset + 2, io_offset = name_offset + 3;

struct served_holder {
    int pid; /* 0: not found */
    bool is_shared, is_ending, has_ended, is_stopped;
    char program[32];
};

static bool set_mark(int fd, short type, int64_t offset)
{
    struct flock mark = {.l_type = type, .l_start = offset, .l_len = 1};
    return !fcntl(fd, F_OFD_SETLK, &mark);
}

/* The kernel's name of the file. fstat() has another one on overlays and btrfs. So a lock of
 * another kind, which flock() does not meet, is taken: it is shown in our own descriptor's list. */
static bool read_marked_name(int fd, char name[FILE_NAME_BYTES])
{
    char path[64], line[256];
    bool found = false;
    if (!set_mark(fd, F_RDLCK, name_offset))
        return false;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    FILE *list = fopen(path, "re");
    while (list && !found && fgets(line, sizeof(line), list))
        found = sscanf(line, "lock: %*s OFDLCK %*s %*s %*s %63s", name) == 1;
    if (list)
        fclose(list);
    set_mark(fd, F_UNLCK, name_offset);
    return found;
}

static void served_name_file(int fd, char name[FILE_NAME_BYTES])
{
    struct stat st;
    if (read_marked_name(fd, name))
        return;
    name[0] = 0;
    if (!fstat(fd, &st))
        snprintf(name, FILE_NAME_BYTES, "%02x:%02x:%llu", major(st.st_dev), minor(st.st_dev),
                 (unsigned long long)st.st_ino);
}

/* Its own stat does not tell before it has run once more. */
static bool is_being_killed(int pid)
{
    char path[64], line[256];
    unsigned long long pending;
    bool is_killed = false;
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    while (file && !is_killed && fgets(line, sizeof(line), file))
        is_killed = (sscanf(line, "SigPnd: %llx", &pending) == 1 ||
                     sscanf(line, "ShdPnd: %llx", &pending) == 1) &&
                    pending & kill_mask;
    if (file)
        fclose(file);
    return is_killed;
}

static void describe_process(struct served_holder *holder)
{
    char path[64], text[512] = "";
    unsigned flags = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", holder->pid);
    FILE *file = fopen(path, "re");
    holder->has_ended = !file && errno == ENOENT;
    if (!file)
        return;
    if (!fgets(text, sizeof(text), file))
        text[0] = 0;
    fclose(file);
    /* "4711 (sidewire-pmem) S 1 2 3 4 5 FLAGS": a name may have parentheses. */
    char *start = strchr(text, '('), *end = strrchr(text, ')'), state = 0;
    if (!start || !end)
        return;
    *end = 0;
    snprintf(holder->program, sizeof(holder->program), "%.31s", start + 1);
    if (sscanf(end + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) == 2)
        holder->is_ending = state == 'Z' || state == 'X' || flags & FLAG_EXITING;
    holder->is_stopped = state == 'T' || state == 't';
    holder->is_ending = holder->is_ending || is_being_killed(holder->pid);
}

static struct served_holder find_holder(int fd)
{
    struct served_holder holder = {0};
    char name[FILE_NAME_BYTES], line[256], mode[16], of[FILE_NAME_BYTES];
    served_name_file(fd, name);
    FILE *locks = fopen("/proc/locks", "re");
    while (locks && !holder.pid && fgets(line, sizeof(line), locks)) {
        int pid;
        if (sscanf(line, "%*s FLOCK %*s %15s %d %63s", mode, &pid, of) != 3 || strcmp(of, name))
            continue;
        holder.pid = pid;
        holder.is_shared = !strcmp(mode, "READ");
    }
    if (locks)
        fclose(locks);
    if (holder.pid)
        describe_process(&holder);
    return holder;
}

/* What waits for a moment: a killed process whose files are not closed yet (io_uring closes them
 * behind its end), and udev, which reads block devices that have been written. */
static bool leaves_soon(const struct served_holder *holder)
{
    return holder->pid &&
           (holder->is_ending || holder->has_ended || strstr(holder->program, "udev") != NULL);
}

/* How often it is looked for before it is refused. A holder that is not found has often just gone;
 * one that does not seem to leave may have taken its SIGKILL, and not begun to end. */
static uint32_t count_looks(const struct served_holder *holder)
{
    if (leaves_soon(holder))
        return TRIES;
    return holder->pid ? LOOKS : UNSEEN_LOOKS;
}

static void say_who(const struct served_holder *holder, char *who, size_t who_bytes)
{
    if (!holder->pid)
        snprintf(who, who_bytes, "a process that is not seen from here (another container's?)");
    else if (holder->pid == getpid())
        snprintf(who, who_bytes, "this process (PID %d)", holder->pid);
    else if (holder->has_ended)
        snprintf(who, who_bytes, "a child that process %d, which has ended, left behind",
                 holder->pid);
    else
        snprintf(who, who_bytes, "%s (PID %d%s)", *holder->program ? holder->program : "a process",
                 holder->pid, holder->is_stopped ? ", stopped" : "");
}

/* False: another server has that mark. A file system without such locks has none. */
static bool is_unmarked(int fd, int64_t offset)
{
    struct flock mark = {.l_type = F_WRLCK, .l_start = offset, .l_len = 1};
    return fcntl(fd, F_OFD_GETLK, &mark) || mark.l_type == F_UNLCK;
}

/* A server that shares it where nobody writes is joined by none that does. */
static int refuse_served(int fd, const struct served_holder *holder, const char *path,
                         const struct mover_serving *how, char *error, size_t error_bytes)
{
    char who[128], help[128] = "";
    const bool is_joined = holder->is_shared && is_unmarked(fd, unwritten_offset);
    say_who(holder, who, sizeof(who));
    if (holder->pid == getpid()) {
        snprintf(error, error_bytes, "%.150s: %s has it locked already; serve it once%s%s", path,
                 who, how->share_option ? ", or each time with " : "",
                 how->share_option ? how->share_option : "");
        return -EBUSY;
    }
    if (how->share_option)
        snprintf(help, sizeof(help), is_joined ? ", or share it: %s" : ", or start both with %s",
                 how->share_option);
    snprintf(error, error_bytes, "%.150s: %s has it locked%s; stop that one%s", path, who,
             holder->is_shared ? ", shared" : "", help);
    return -EBUSY;
}

static int try_lock(int fd, bool is_shared)
{
    if (!flock(fd, (is_shared ? LOCK_SH : LOCK_EX) | LOCK_NB))
        return 0;
    /* An NFS locks for one alone by writing descriptors only. */
    if (errno == EBADF && !is_shared)
        return try_lock(fd, true);
    return -errno;
}

static bool lacks_locks(int code)
{
    return code == -ENOLCK || code == -EOPNOTSUPP || code == -ENOSYS;
}

/* It is tried behind each look too: the holder may have gone in between. */
static int wait_for_lock(int fd, bool is_shared, struct served_holder *holder)
{
    uint32_t looks = 1;
    int code = try_lock(fd, is_shared);
    for (uint32_t i = 0; code == -EWOULDBLOCK && i < looks; i++) {
        if (i)
            usleep(PAUSE_US);
        *holder = find_holder(fd);
        looks = count_looks(holder);
        code = try_lock(fd, is_shared);
    }
    return code;
}

/* Shared locks do not tell a server that writes from one that only reads: marks do. Two that come
 * at once may both be refused. */
static bool mark_share(int fd, const struct mover_serving *how)
{
    const int64_t own = how->is_unwritten ? unwritten_offset : writers_offset,
                  other = how->is_unwritten ? writers_offset : unwritten_offset;
    set_mark(fd, F_UNLCK, other);
    if (how->is_shared && set_mark(fd, F_RDLCK, own))
        return is_unmarked(fd, other);
    set_mark(fd, F_UNLCK, own);
    return true;
}

static int refuse_share(int fd, const char *path, const struct mover_serving *how, char *error,
                        size_t error_bytes)
{
    char who[128];
    flock(fd, LOCK_UN); /* so that it is not found itself */
    const struct served_holder holder = find_holder(fd);
    say_who(&holder, who, sizeof(who));
    snprintf(error, error_bytes,
             how->is_unwritten
                 ? "%.150s: %s shares it to write; stop that one, or share it, too: %s"
                 : "%.150s: %s has it where nobody writes; stop that one, or start it with %s, too",
             path, who, how->share_option ? how->share_option : "its option");
    return -EBUSY;
}

int mover_served_lock(int fd, const char *path, const struct mover_serving *how, char *error,
                      size_t error_bytes)
{
    struct served_holder holder;
    const int code = wait_for_lock(fd, how->is_shared, &holder);
    if (code == -EWOULDBLOCK)
        return refuse_served(fd, &holder, path, how, error, error_bytes);
    if (!code && !mark_share(fd, how))
        return refuse_share(fd, path, how, error, error_bytes);
    if (!code || (how->is_shared && lacks_locks(code)))
        return 0;
    snprintf(error, error_bytes, "%.150s: cannot be locked: %s%s%s", path, strerror(-code),
             how->share_option && lacks_locks(code) ? "; without a lock: " : "",
             how->share_option && lacks_locks(code) ? how->share_option : "");
    return code;
}

/* ---- I/O ---- */

int mover_served_mark_io(int fd)
{
    return set_mark(fd, F_RDLCK, io_offset) ? 0 : -errno;
}

bool mover_served_has_io(int fd)
{
    return !is_unmarked(fd, io_offset);
}

/* Bytes from 2^62 on. */
static int64_t offset_of_process(uint64_t process)
{
    const uint64_t first = 1ull << 62;
    return (int64_t)(first | (process & (first - 1)));
}

int mover_served_mark_process(int fd, uint64_t process)
{
    return set_mark(fd, F_RDLCK, offset_of_process(process)) ? 0 : -errno;
}

/* A file system without such locks marks nothing: the mark could not be set either. */
bool mover_served_has_process(int fd, uint64_t process)
{
    return !is_unmarked(fd, offset_of_process(process));
}

/* ---- block devices ---- */

static bool find_mount(const struct stat *st, char *where, size_t where_bytes)
{
    char line[1024], point[256];
    unsigned a, b;
    bool found = false;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    while (mounts && !found && fgets(line, sizeof(line), mounts))
        found = sscanf(line, "%*d %*d %u:%u %*s %255s", &a, &b, point) == 3 &&
                makedev(a, b) == st->st_rdev;
    if (mounts)
        fclose(mounts);
    if (found)
        snprintf(where, where_bytes, "it is mounted at %s; umount it first", point);
    return found;
}

/* EBUSY of an open for us alone. */
static int refuse_claimed(const char *path, const struct stat *st, const struct mover_serving *how,
                          char *error, size_t error_bytes)
{
    char where[320];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && try_lock(fd, how->is_shared) == -EWOULDBLOCK) {
        const struct served_holder holder = find_holder(fd);
        const int code = refuse_served(fd, &holder, path, how, error, error_bytes);
        close(fd);
        return code;
    }
    if (fd >= 0)
        close(fd);
    if (!find_mount(st, where, sizeof(where)))
        snprintf(where, sizeof(where),
                 "it, or a partition of it, is mounted, swap, part of a RAID "
                 "or a volume, or another program's alone; lsblk shows it");
    snprintf(error, error_bytes, "%.100s: in use: %s", path, where);
    return -EBUSY;
}

static int open_claimed(const char *path, int flags)
{
    const int fd = open(path, flags | O_EXCL | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* How often a claim that fails is tried: the claim goes a moment after the lock. */
static uint32_t count_claims(const char *path)
{
    struct served_holder holder;
    uint32_t tries = PROBES;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && try_lock(fd, true) == -EWOULDBLOCK) {
        holder = find_holder(fd);
        tries = count_looks(&holder);
    }
    if (fd >= 0)
        close(fd);
    return tries;
}

/* The process that has it claimed may be ending. */
static int wait_for_claim(const char *path, int flags)
{
    int code = open_claimed(path, flags);
    for (uint32_t i = 0; code == -EBUSY && i < count_claims(path); i++) {
        usleep(PAUSE_US);
        code = open_claimed(path, flags);
    }
    return code;
}

/* Shared by several servers it cannot be claimed, but looked at: a system that mounts it has it
 * claimed. That claim is ours for a moment, in which another one's look fails. */
static int open_shared_device(const char *path, int flags)
{
    const int probe = wait_for_claim(path, flags);
    if (probe < 0)
        return probe;
    const int fd = open(path, flags | O_CLOEXEC);
    const int code = fd < 0 ? -errno : fd;
    close(probe);
    return code;
}

static int open_to_serve(const char *path, int flags, const struct mover_serving *how, char *error,
                         size_t error_bytes)
{
    struct stat st = {.st_mode = 0};
    int fd;
    const bool is_block = !stat(path, &st) && S_ISBLK(st.st_mode);
    if (S_ISFIFO(st.st_mode)) { /* opening one waits for a writer, and for no signal of ours */
        snprintf(error, error_bytes, "%.150s: is a pipe: only files and devices are served", path);
        return -EINVAL;
    }
    if (!is_block) {
        fd = open(path, flags | O_CLOEXEC);
        fd = fd < 0 ? -errno : fd;
    } else {
        fd = how->is_shared ? open_shared_device(path, flags) : wait_for_claim(path, flags);
    }
    if (fd == -EBUSY && is_block)
        return refuse_claimed(path, &st, how, error, error_bytes);
    if (fd < 0)
        snprintf(error, error_bytes, "%.150s: %s", path, strerror(-fd));
    return fd;
}

int mover_served_claim(const char *path, int flags, const struct mover_serving *how, int *fd,
                       char *error, size_t error_bytes)
{
    struct stat st;
    *fd = -1;
    if (stat(path, &st) || !S_ISBLK(st.st_mode))
        return 0;
    *fd = open_to_serve(path, flags, how, error, error_bytes);
    return *fd < 0 ? *fd : 0;
}

int mover_served_open(const char *path, int flags, const struct mover_serving *how, char *error,
                      size_t error_bytes)
{
    const int fd = open_to_serve(path, flags, how, error, error_bytes);
    if (fd < 0)
        return fd;
    const int code = mover_served_lock(fd, path, how, error, error_bytes);
    if (!code)
        return fd;
    close(fd);
    return code;
}
