/*
 * Lets the wall clock of one process be set wrong from outside, for tests of clock steps. Preloaded into a service by
 * the launcher. The file that APPORTION_CLOCK_OFFSET names holds one signed 64-bit number, in the machine's byte order:
 * nanoseconds by which the wall clock is ahead. It may change at any time, and the clock steps then. The monotonic clock
 * is left alone, as a step of a machine's clock leaves it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NANOS_PER_S 1000000000LL

typedef int clock_reader(clockid_t, struct timespec *);

static clock_reader *next_reader;
static const volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
    next_reader = (clock_reader *)dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("APPORTION_CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *shown) {
    /* Other libraries read the clock before this one has begun. */
    int failed = next_reader ? next_reader(clock, shown) : (int)syscall(SYS_clock_gettime, clock, shown);
    if (failed || !offset || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t nanos = shown->tv_nsec + *offset % NANOS_PER_S;
    int64_t carry = nanos < 0 ? -1 : nanos >= NANOS_PER_S;
    shown->tv_sec += *offset / NANOS_PER_S + carry;
    shown->tv_nsec = nanos - carry * NANOS_PER_S;
    return 0;
}
