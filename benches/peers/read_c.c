/* Reads a log with liblcm and prints events and bytes of payload by channel, like the other readers. */
#include <lcm/lcm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A power of two, far above the number of channels: finding one must not cost what is measured. */
#define SLOTS 4096

struct count {
    char *channel;
    long events, bytes;
};

static struct count counts[SLOTS];

static struct count *count_of(const char *channel)
{
    unsigned slot = 0;
    for (const char *c = channel; *c; c++)
        slot = slot * 31 + (unsigned char) *c;
    for (;; slot++) {
        struct count *count = &counts[slot % SLOTS];
        if (!count->channel)
            count->channel = strdup(channel);
        if (!strcmp(count->channel, channel))
            return count;
    }
}

static int by_name(const void *a, const void *b)
{
    const char *left = ((const struct count *) a)->channel, *right = ((const struct count *) b)->channel;
    return left && right ? strcmp(left, right) : !left - !right;
}

int main(int argc, char **argv)
{
    lcm_eventlog_t *log = argc == 2 ? lcm_eventlog_create(argv[1], "r") : NULL;
    if (!log) {
        fprintf(stderr, "usage: read_c LOG\n");
        return 1;
    }
    for (lcm_eventlog_event_t *e; (e = lcm_eventlog_read_next_event(log)); lcm_eventlog_free_event(e)) {
        struct count *count = count_of(e->channel);
        count->events++;
        count->bytes += e->datalen;
    }
    lcm_eventlog_destroy(log);
    qsort(counts, SLOTS, sizeof counts[0], by_name);
    for (struct count *c = counts; c->channel; c++)
        printf("%s\t%ld\t%ld\n", c->channel, c->events, c->bytes);
    return 0;
}
