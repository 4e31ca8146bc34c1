"""The output of the example programs of the MIT Urban Challenge dataset, reimplemented.

    dgc_examples.py poses|images|gps|sick LOG
    dgc_examples.py velodyne LOG LASERS START END

Parses the log and its messages itself; of Sluice it uses only the table of lasers.
"""

import csv
import math
import struct
import sys

SYNC = 0xEDA1DA01


def events(path):
    """Number, microseconds, channel and payload of each event of an undamaged log."""
    log = open(path, "rb").read()
    at = 0
    while at < len(log):
        sync, number, utime, name, size = struct.unpack_from(">IqqII", log, at)
        assert sync == SYNC, at
        at += 28
        yield number, utime, log[at : at + name].decode(), log[at + name : at + name + size]
        at += name + size


def poses(log):
    print("# utime x y z x' y' z'")
    for _, _, channel, payload in events(log):
        if channel == "POSE":
            print("%d %f %f %f %f %f %f" % struct.unpack_from(">q6d", payload, 8))


def images(log):
    """The names printed; and, on standard error, the length and the checksum of each file."""
    for _, _, channel, payload in events(log):
        if channel.startswith("CAM_THUMB"):
            (utime,) = struct.unpack_from(">q", payload, 8)
            (size,) = struct.unpack_from(">i", payload, 26)
            print("%s-%d.jpg" % (channel, utime))
            assert size == len(payload) - 30


def gps(log):
    for _, _, channel, payload in events(log):
        if channel == "GPS_TO_LOCAL":
            utime, *_, lat, lon, el, theta = struct.unpack_from(">q7d", payload, 8)
            print("%d %.10f %.10f %f %f" % (utime, lat, lon, el, theta))


def sick(log):
    for _, _, channel, payload in events(log):
        if channel.startswith(("BROOM", "SKIRT")):
            utime, count = struct.unpack_from(">qi", payload, 8)
            ranges = struct.unpack_from(">%df" % count, payload, 20)
            at = 20 + 4 * count
            (intensities,) = struct.unpack_from(">i", payload, at)
            rad0, radstep = struct.unpack_from(">2f", payload, at + 4 + 4 * intensities)
            line = "%d %s %f %f %d" % (utime, channel, rad0, radstep, count)
            print(line + "".join(" %f" % r for r in ranges))


def product(a, b):
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )


def turned(q, v):
    """v rotated by q: q v q*."""
    w, x, y, z = q
    return product(product(q, (0.0, *v)), (w, -x, -y, -z))[1:]


def about(axis, angle):
    s = math.sin(angle / 2)
    return (math.cos(angle / 2), *(s * c for c in axis))


def velodyne(log, lasers, start, end):
    rows = list(csv.DictReader(open(lasers)))
    table = [
        [float(row[name]) for name in ("rcf_rad", "vcf_rad", "hcf_m", "range_offset_m", "range_scale_offset")]
        for row in sorted(rows, key=lambda row: int(row["physical_laser"]))
    ]
    roll, pitch, yaw = (math.radians(a) for a in (2.683627, -0.076601, 91.026067))
    mount = product(about((0, 0, 1), yaw), product(about((0, 1, 0), pitch), about((1, 0, 0), roll)))
    place = (1.56, -0.00408, 2.55)
    first = pose = None
    for _, utime, channel, payload in events(log):
        if first is None:
            first = utime
        if channel == "POSE":
            numbers = struct.unpack_from(">13d", payload, 16)
            pose = numbers[0:3], numbers[6:10]
        inside = first + int(start * 1e6) <= utime < first + int(end * 1e6)
        if channel != "VELODYNE" or not inside or pose is None:
            continue
        packet = payload[20:]
        assert len(packet) == 1206
        position, orientation = pose
        for block in range(12):
            kind, azimuth = struct.unpack_from("<HH", packet, block * 100)
            upper = {0xEEFF: 32, 0xDDFF: 0}[kind]
            head = 2 * math.pi - azimuth * 0.00017453293
            for laser in range(32):
                rcf, vcf, hcf, offset, scale = table[upper + laser]
                raw, _ = struct.unpack_from("<HB", packet, block * 100 + 4 + laser * 3)
                reach = (raw * 0.002 + offset) * (1 + scale)
                if reach < 0.01:
                    continue
                theta = head + rcf
                x = reach * math.cos(theta) * math.cos(vcf) - hcf * math.cos(head)
                y = reach * math.sin(theta) * math.cos(vcf) - hcf * math.sin(head)
                z = reach * math.sin(vcf)
                body = [a + b for a, b in zip(turned(mount, (x, y, z)), place)]
                local = [a + b for a, b in zip(turned(orientation, body), position)]
                print("%f %f %f" % tuple(local))


if __name__ == "__main__":
    what, log, *more = sys.argv[1:]
    if what == "velodyne":
        velodyne(log, more[0], float(more[1]), float(more[2]))
    else:
        {"poses": poses, "images": images, "gps": gps, "sick": sick}[what](log)
