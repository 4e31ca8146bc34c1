/*
 * Sends and receives with liblcm, and prints as one line of JSON what it did.
 *
 *   live_c publish URL CHANNEL SIZE COUNT RATE [BURST PAUSE_MS]
 *   live_c subscribe URL CHANNEL-REGEX IDLE_SECONDS QUEUE
 *   live_c log FILE CHANNEL SIZE COUNT
 *
 * A payload is its number from 0, 8 bytes big-endian, and after that a pattern that is always the same.
 *
 * publish: RATE messages a second, as fast as it can if 0; after each BURST of them, a pause.
 * subscribe: sets the queue's capacity if QUEUE >= 0 (0 is no limit). Says "ready" on standard error once it
 * listens; ends when nothing came for so many seconds after the first message, or on SIGTERM.
 * log: writes to an LCM log what publish sends.
 */
#include <errno.h>
#include <inttypes.h>
#include <lcm/lcm.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#define NUMBER_LEN 8
/* How long it waits before it looks whether it is to end. */
#define TICK_MS 20
/* A sender with a pace sends what is due and sleeps for so many seconds: a sleep a message is all it would do. */
#define PACE_TICK 0.0002
/* When it got no core for a while, it catches up at so many times its pace: all at once would be a burst. */
#define CATCH_UP 4

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void) signal;
    stopped = 1;
}

static void fail(const char *what)
{
    fprintf(stderr, "live_c: %s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void wait_until(double when)
{
    struct timespec t = {.tv_sec = (time_t) when};
    t.tv_nsec = (long) ((when - t.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR && !stopped)
        ;
}

static double cpu_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

static uint8_t pattern(size_t at)
{
    return (uint8_t) (at * 131 + at / 251);
}

static uint8_t *new_payload(size_t size)
{
    uint8_t *payload = size < NUMBER_LEN ? NULL : malloc(size);
    if (!payload)
        fail("a payload has to have 8 bytes for its number");
    for (size_t at = NUMBER_LEN; at < size; at++)
        payload[at] = pattern(at);
    return payload;
}

static void set_number(uint8_t *payload, uint64_t number)
{
    for (int at = NUMBER_LEN - 1; at >= 0; at--, number >>= 8)
        payload[at] = (uint8_t) number;
}

static uint64_t number_of(const uint8_t *payload)
{
    uint64_t number = 0;
    for (int at = 0; at < NUMBER_LEN; at++)
        number = number << 8 | payload[at];
    return number;
}

/* ---- publish ---- */

struct pace {
    double rate, began, ticked;
};

/* Waits until something is due, and says how many messages may be sent now. */
static long wait_for_due(struct pace *pace, long sent)
{
    double due = pace->began + sent / pace->rate, tick = pace->ticked + PACE_TICK;
    wait_until(due > tick ? due : tick);
    pace->ticked = now();
    long behind = (long) ((pace->ticked - pace->began) * pace->rate) - sent + 1;
    long most = (long) (CATCH_UP * pace->rate * PACE_TICK) + 1;
    return behind < 1 ? 1 : behind > most ? most : behind;
}

static int publish(lcm_t *lcm, const char *channel, size_t size, long count, double rate, long burst, long pause_ms)
{
    uint8_t *payload = new_payload(size);
    long sent = 0, allowed = 0;
    /* Sleeps end up to 50 us late unless told otherwise. */
    prctl(PR_SET_TIMERSLACK, 1);
    double began = now();
    struct pace pace = {rate, began, began};
    for (; sent < count && !stopped; sent++) {
        if (rate > 0 && allowed-- == 0)
            allowed = wait_for_due(&pace, sent) - 1;
        if (burst && sent && sent % burst == 0)
            wait_until(now() + pause_ms * 1e-3);
        set_number(payload, (uint64_t) sent);
        if (lcm_publish(lcm, channel, payload, (unsigned) size))
            break;
    }
    printf("{\"sent\": %ld, \"seconds\": %.6f, \"cpu\": %.6f}\n", sent, now() - began, cpu_seconds());
    free(payload);
    return sent == count ? 0 : 1;
}

/* ---- subscribe ---- */

struct received {
    long messages, bytes, distinct, out_of_order, wrong;
    uint64_t highest;
    /* One bit a number. */
    uint8_t *seen;
    uint64_t seen_len;
    double first, last;
};

/* Whether a number was not seen before. */
static int is_new(struct received *r, uint64_t number)
{
    uint64_t at = number / 8, len = r->seen_len ? r->seen_len : 1 << 16;
    while (at >= len)
        len *= 2;
    if (len > r->seen_len) {
        r->seen = realloc(r->seen, len);
        if (!r->seen)
            fail("no memory");
        memset(r->seen + r->seen_len, 0, len - r->seen_len);
        r->seen_len = len;
    }
    uint8_t bit = (uint8_t) (1 << number % 8);
    int new = !(r->seen[at] & bit);
    r->seen[at] |= bit;
    return new;
}

/* Looks at the ends of the pattern only: looking at all of it would cost what is measured. */
static int is_whole(const uint8_t *payload, size_t size)
{
    if (size < NUMBER_LEN || number_of(payload) >= (uint64_t) 1 << 32)
        return 0;
    size_t last = size - 1;
    return size == NUMBER_LEN || (payload[NUMBER_LEN] == pattern(NUMBER_LEN) && payload[last] == pattern(last));
}

static void on_message(const lcm_recv_buf_t *message, const char *channel, void *user)
{
    (void) channel;
    struct received *r = user;
    r->last = now();
    if (!r->messages)
        r->first = r->last;
    r->messages++;
    r->bytes += message->data_size;
    if (!is_whole(message->data, message->data_size)) {
        r->wrong++;
        return;
    }
    uint64_t number = number_of(message->data);
    if (is_new(r, number))
        r->distinct++;
    if (number < r->highest)
        r->out_of_order++;
    else
        r->highest = number;
}

static int subscribe(lcm_t *lcm, const char *regex, double idle, int queue)
{
    struct received r = {0};
    lcm_subscription_t *subscription = lcm_subscribe(lcm, regex, on_message, &r);
    if (!subscription || (queue >= 0 && lcm_subscription_set_queue_capacity(subscription, queue)))
        fail("cannot subscribe");
    /* By now liblcm has heard itself: subscribing waits for that. */
    fprintf(stderr, "ready\n");
    while (!stopped && !(r.messages && now() - r.last > idle))
        if (lcm_handle_timeout(lcm, TICK_MS) < 0 && !stopped)
            fail("cannot receive");
    printf("{\"received\": %ld, \"bytes\": %ld, \"distinct\": %ld, \"out_of_order\": %ld, \"wrong\": %ld, "
           "\"seconds\": %.6f, \"cpu\": %.6f}\n",
           r.messages, r.bytes, r.distinct, r.out_of_order, r.wrong, r.last - r.first, cpu_seconds());
    free(r.seen);
    return 0;
}

/* ---- log ---- */

static int write_log(const char *path, const char *channel, size_t size, long count)
{
    lcm_eventlog_t *log = lcm_eventlog_create(path, "w");
    if (!log)
        fail("cannot write the log");
    uint8_t *payload = new_payload(size);
    lcm_eventlog_event_t event = {.channel = (char *) channel, .channellen = (int32_t) strlen(channel)};
    event.data = payload;
    event.datalen = (int32_t) size;
    for (long number = 0; number < count; number++) {
        set_number(payload, (uint64_t) number);
        event.timestamp = 1194098400000000 + number;
        if (lcm_eventlog_write_event(log, &event))
            fail("cannot write the log");
    }
    lcm_eventlog_destroy(log);
    free(payload);
    return 0;
}

static lcm_t *opened(const char *url)
{
    lcm_t *lcm = lcm_create(url);
    if (!lcm)
        fail("cannot open the URL");
    return lcm;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "publish") && (argc == 7 || argc == 9)) {
        long burst = argc == 9 ? atol(argv[7]) : 0, pause_ms = argc == 9 ? atol(argv[8]) : 0;
        lcm_t *lcm = opened(argv[2]);
        int status = publish(lcm, argv[3], strtoul(argv[4], NULL, 10), atol(argv[5]), atof(argv[6]), burst, pause_ms);
        lcm_destroy(lcm);
        return status;
    }
    if (!strcmp(what, "subscribe") && argc == 6) {
        lcm_t *lcm = opened(argv[2]);
        int status = subscribe(lcm, argv[3], atof(argv[4]), atoi(argv[5]));
        lcm_destroy(lcm);
        return status;
    }
    if (!strcmp(what, "log") && argc == 6)
        return write_log(argv[2], argv[3], strtoul(argv[4], NULL, 10), atol(argv[5]));
    fprintf(stderr, "usage: live_c publish URL CHANNEL SIZE COUNT RATE [BURST PAUSE_MS]\n"
                    "       live_c subscribe URL CHANNEL-REGEX IDLE_SECONDS QUEUE\n"
                    "       live_c log FILE CHANNEL SIZE COUNT\n");
    return 2;
}
