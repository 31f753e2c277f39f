/*
 * Keeps what a power cut would leave of a server's files for certain: each file's content when it was last synced.
 * Preloaded into a server by a test. APPORTION_SYNC_ROOT names the directory of its files, APPORTION_SYNC_KEPT the one
 * for what is kept; there, a file has its path below the root for a name, with % for /. Names are taken to be on the
 * disk at once, as by a file system whose journal was just written. A sync whose content cannot be kept fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK 65536

static int (*next_fsync)(int), (*next_fdatasync)(int), (*next_unlink)(const char *);
static int (*next_rename)(const char *, const char *);
static const char *root, *kept;

__attribute__((constructor)) static void begin(void) {
    next_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    next_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    next_unlink = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    next_rename = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    /* Postgres writes its title over the environment. */
    kept = getenv("APPORTION_SYNC_KEPT") ? strdup(getenv("APPORTION_SYNC_KEPT")) : NULL;
    root = kept && getenv("APPORTION_SYNC_ROOT") ? strdup(getenv("APPORTION_SYNC_ROOT")) : NULL;
}

/* Where the content of a file is kept; 0 for a file that is not below the root. */
static int place(const char *path, char found[PATH_MAX]) {
    char whole[PATH_MAX];
    size_t length = root ? strlen(root) : 0;
    if (path[0] != '/') {
        if (!root || !getcwd(whole, sizeof whole) || strlen(whole) + strlen(path) + 2 > sizeof whole)
            return 0;
        strcat(strcat(whole, "/"), path);
        path = whole;
    }
    if (!root || strncmp(path, root, length) || path[length] != '/')
        return 0;
    int begins = snprintf(found, PATH_MAX, "%s/", kept);
    if (snprintf(found + begins, PATH_MAX - begins, "%s", path + length + 1) >= PATH_MAX - begins)
        return 0;
    for (char *at = found + begins; *at; at++)
        if (*at == '/')
            *at = '%';
    return 1;
}

/* Writes only what differs: a log's file is large, and most syncs are of its last page. */
static int copy(int from, int to) {
    char now[CHUNK], then[CHUNK];
    off_t at = 0;
    ssize_t count;
    while ((count = pread(from, now, CHUNK, at)) > 0) {
        if (pread(to, then, count, at) != count || memcmp(now, then, count))
            if (pwrite(to, now, count, at) != count)
                return -1;
        at += count;
    }
    return count < 0 ? -1 : ftruncate(to, at);
}

static int keep(int file) {
    char link[64], path[PATH_MAX], name[PATH_MAX];
    struct stat about;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = root ? readlink(link, path, sizeof path - 1) : -1;
    if (length < 0 || fstat(file, &about) || !S_ISREG(about.st_mode) || !about.st_nlink)
        return 0;
    path[length] = 0;
    if (!place(path, name))
        return 0;
    int from = open(link, O_RDONLY | O_CLOEXEC), to = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    /* Who syncs first writes first, so that what is kept never becomes older. */
    int failed = from < 0 || to < 0 || flock(to, LOCK_EX) || copy(from, to);
    close(from);
    close(to);
    if (failed)
        errno = EIO;
    return failed ? -1 : 0;
}

int fsync(int file) {
    return next_fsync(file) ? -1 : keep(file);
}

int fdatasync(int file) {
    return next_fdatasync(file) ? -1 : keep(file);
}

int unlink(const char *path) {
    char name[PATH_MAX];
    int failed = next_unlink(path);
    if (!failed && place(path, name)) {
        next_unlink(name);
        errno = 0;
    }
    return failed;
}

int rename(const char *from, const char *to) {
    char old[PATH_MAX], new[PATH_MAX];
    int failed = next_rename(from, to);
    if (!failed && place(from, old) && place(to, new)) {
        if (next_rename(old, new))
            next_unlink(new);
        errno = 0;
    }
    return failed;
}
