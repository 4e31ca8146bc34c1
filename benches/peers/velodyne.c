/* Packets of a Velodyne HDL-64E into columns of points, as plain C with tables made beforehand. Reads a log of
 * such packets into memory, and prints a JSON line with the best of some rounds of each batch, and the sums of the
 * points. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LASERS = 64, LANES = 32, BLOCKS = 12, TURN = 36000, HEADER = 28, MESSAGE = 20, PACKET = 1206 };
/* Bytes of payload that are decoded at a time: what a block of a log holds. */
enum { BATCH = 2 << 20, MOST = (BATCH / (MESSAGE + PACKET) + 1) * BLOCKS * LANES };

struct laser {
    double along, across, sine, ahead, offset, scale;
};

static struct laser lasers[LASERS];
static double cosines[TURN], sines[TURN];
static float intensities[256];

static double *x, *y, *z;
static float *intensity, *azimuth;
static uint16_t *laser;
static int64_t *when;

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t) p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

static int64_t be64(const uint8_t *p)
{
    return (int64_t) ((uint64_t) be32(p) << 32 | be32(p + 4));
}

static uint16_t le16(const uint8_t *p)
{
    return p[0] | p[1] << 8;
}

static int read_table(const char *path)
{
    char line[256];
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file))
        return 0;
    int found = 0;
    while (fgets(line, sizeof line, file)) {
        int number;
        double rcf, vcf, hcf, offset, scale;
        if (sscanf(line, "%d,%*[^,],%*d,%lf,%lf,%lf,%lf,%lf", &number, &rcf, &vcf, &hcf, &offset, &scale) != 6)
            return 0;
        lasers[number] = (struct laser) { cos(rcf) * cos(vcf), sin(rcf) * cos(vcf), sin(vcf), hcf, offset, 1 + scale };
        found++;
    }
    fclose(file);
    return found == LASERS;
}

static void make_tables(void)
{
    for (int n = 0; n < TURN; n++) {
        double angle = n ? 2 * M_PI - n * 0.00017453293 : 0;
        cosines[n] = cos(angle);
        sines[n] = sin(angle);
    }
    for (int n = 0; n < 256; n++)
        intensities[n] = n / 255.0f;
    x = malloc(MOST * sizeof *x), y = malloc(MOST * sizeof *y), z = malloc(MOST * sizeof *z);
    intensity = malloc(MOST * sizeof *intensity), azimuth = malloc(MOST * sizeof *azimuth);
    laser = malloc(MOST * sizeof *laser), when = malloc(MOST * sizeof *when);
}

/* The points of a packet from point `n` on; gives how many there are then. */
static size_t decode(const uint8_t *message, int drop_empty, size_t n)
{
    int64_t began = be64(message + 8) * 1000 - 6 * 64000;
    const uint8_t *block = message + MESSAGE;
    for (int b = 0; b < BLOCKS; b++, block += 100) {
        uint16_t id = le16(block), turn = le16(block + 2);
        if (id != 0xEEFF && id != 0xDDFF)
            break;
        if (turn >= TURN)
            continue;
        int first = id == 0xEEFF ? LANES : 0;
        double c = cosines[turn], s = sines[turn];
        float degrees = turn / 100.0f;
        int64_t slot = began + b / 2 * 64000;
        for (int k = 0; k < LANES; k++) {
            const uint8_t *sample = block + 4 + 3 * k;
            const struct laser *l = &lasers[first + k];
            int count = le16(sample);
            double range = (count * 0.002 + l->offset) * l->scale;
            if ((drop_empty && !count) || range < 0.01)
                continue;
            x[n] = range * (c * l->along - s * l->across) - l->ahead * c;
            y[n] = range * (s * l->along + c * l->across) - l->ahead * s;
            z[n] = range * l->sine;
            intensity[n] = intensities[sample[2]];
            laser[n] = first + k;
            azimuth[n] = degrees;
            when[n] = slot + k * 2000;
            n++;
        }
    }
    return n;
}

static uint64_t points, sums[7];

static void add(size_t n)
{
    for (size_t k = 0; k < n; k++) {
        sums[0] += llround(x[k] * 1e6), sums[1] += llround(y[k] * 1e6), sums[2] += llround(z[k] * 1e6);
        sums[3] += lroundf(intensity[k] * 255), sums[4] += laser[k];
        sums[5] += lroundf(azimuth[k] * 100), sums[6] += when[k];
    }
    points += n;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int count, char **words)
{
    if (count != 5 || !read_table(words[1])) {
        fprintf(stderr, "usage: velodyne TABLE LOG all|drop ROUNDS\n");
        return 1;
    }
    make_tables();
    FILE *file = fopen(words[2], "rb");
    if (!file)
        return 1;
    fseek(file, 0, SEEK_END);
    size_t length = ftell(file), packets = 0;
    rewind(file);
    uint8_t *log = malloc(length);
    const uint8_t **messages = malloc((length / PACKET + 1) * sizeof *messages);
    if (fread(log, 1, length, file) != length)
        return 1;
    for (size_t at = 0; at + HEADER < length; packets++) {
        uint32_t channel = be32(log + at + 20), payload = be32(log + at + 24);
        messages[packets] = log + at + HEADER + channel;
        at += HEADER + channel + payload;
    }
    int drop_empty = !strcmp(words[3], "drop"), rounds = atoi(words[4]);
    size_t batch = BATCH / (MESSAGE + PACKET) + 1;
    double *bests = malloc((packets / batch + 1) * sizeof *bests), total = 0;
    for (int round = 0; round < rounds; round++)
        for (size_t from = 0; from < packets; from += batch) {
            double start = now(), *best = &bests[from / batch];
            size_t n = 0, to = from + batch < packets ? from + batch : packets;
            for (size_t at = from; at < to; at++)
                n = decode(messages[at], drop_empty, n);
            double took = now() - start;
            if (!round || took < *best)
                *best = took;
            if (!round)
                add(n);
        }
    /* Others may have the core now and then. */
    for (size_t from = 0; from < packets; from += batch)
        total += bests[from / batch];
    printf("{\"rows\":%zu,\"seconds\":%.9f,\"points\":%llu,\"sums\":[", packets, total, (unsigned long long) points);
    for (int n = 0; n < 7; n++)
        printf("%s%lld", n ? "," : "", (long long) sums[n]);
    printf("],\"points_per_second\":%.1f}\n", points / total);
    return 0;
}
