"""Writes VEL sensor logs and a report of their contents.

Written from the description of the format, independently of the program that it tests. Needs only
Python 3.

    vel_writer.py OUT.vel EXPECTED.json [--seed N] [--messages N] [options]
    vel_writer.py OUT.vel EXPECTED.json --example

The same options produce the same bytes. With `--self-check`, a small independent reader reads the file
again and must find what EXPECTED.json says.

EXPECTED.json is one object:

    "bytes"          length of the file
    "major", "minor" versions of the file
    "index"          {"kind", "entries": as written, "right": what they have to be (-1: unused),
                      "wrong": the numbers of those that differ}; a message counts for the index whatever its
                      marker says; where nothing happened in a second, its entry is the next message's
    "end_mark"       whether 0xFFFFFFFF ends the log
    "end"            where the last whole message ends
    "tail"           what follows there: "" or "cut", "zeros", "garbage" (garbage follows the end mark only)
    "messages"       in the order of the file, each:
        "offset"        of its size field
        "size"          as written: without its own four bytes
        "marker"        49 (0x31) if it is valid
        "deleted"       whether the marker is another: such a message is to be skipped
        "type_id"       number; "type_hex": "0x0001BE24"
        "type"          its name, also of types without a known layout: "OdometryM"
        "version"       of the message
        "time_ms"       FLOAT
        "timestamp_ns"  nanoseconds from time_ms, rounded half away from zero; null where there is none
        "payload"       hex, all of it
        "known"         "full": the fields are all of it; "prefix": "tail" follows the fields (a version above
                        those known); "raw": no layout is known ("fields" is null)
        "tail"          hex, or ""
        "fields"        by type:
            ImageM               sensor_type, sensor_name, compressed (true, false), compressed_stored (number),
                                 width, height, bytes (hex)
            IMUStateM            sensor_type, sensor_name, quaternion {w,x,y,z}, acceleration {x,y,z}
            LaserRange2DDataM    sensor_type and sensor_name (from version 101), ranges, and from version 102
                                 intensities, sensor_timestamp
            LaserRange2DConfigM  sensor_type, sensor_name, beams, max_range, field_of_view,
                                 quaternion {w,x,y,z}, position {x,y,z}

A FLOAT is {"value": number or "NaN", "Infinity", "-Infinity"; "bits": hex, highest byte first}: 8 digits of a
32-bit float, whose value is given as a double, or 16 of a 64-bit one. A text is a text if its bytes are UTF-8, or
else {"bytes": hex}. Numbers are whole.
"""

import argparse
import json
import math
import random
import struct
import sys
from fractions import Fraction

MAGIC = b"\xa4VEL"
VALID = 0x31
END_MARK = b"\xff\xff\xff\xff"
HEADER = 17
NEWEST = {"ImageM": 102, "IMUStateM": 102, "LaserRange2DDataM": 102, "LaserRange2DConfigM": 100}


def type_id(name):
    """The number that identifies a message type."""
    return sum((119 + i) * byte for i, byte in enumerate(name.encode())) & 0xFFFFFFFF


# ------------------------------------------------------------------ values and their expected form


def u32(value):
    return struct.pack("<I", value)


def i32(value):
    return struct.pack("<i", value)


def f32(value):
    return struct.pack("<f", value)


def string(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return u32(len(raw)) + raw


def number(value):
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def float32(raw):
    return {"value": number(struct.unpack("<f", raw)[0]), "bits": raw[::-1].hex()}


def float64(value):
    return {"value": number(value), "bits": struct.pack(">d", value).hex()}


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"bytes": raw.hex()}


def nanoseconds(ms):
    """Nanoseconds of a time in milliseconds; None for invalid times."""
    product = ms * 1e6
    if not math.isfinite(product):
        return None
    exact = Fraction(product)
    whole = math.floor(abs(exact) + Fraction(1, 2))
    whole = -whole if exact < 0 else whole
    # Later and earlier ones become the nearest.
    return max(-(2**63), min(whole, 2**63 - 1)) if abs(ms) <= 1e32 else None


# ------------------------------------------------------------------ messages


class Payload:
    """The bytes of a payload, and its fields."""

    def __init__(self):
        self.raw = b""
        self.fields = {}

    def sensor(self, kind, name):
        self.raw += string(kind) + string(name)
        self.fields.update(sensor_type=text(kind), sensor_name=text(name))

    def floats(self, field, names, values):
        packed = [f32(value) for value in values]
        self.raw += b"".join(packed)
        self.fields[field] = {name: float32(raw) for name, raw in zip(names, packed)}

    def float(self, field, value):
        self.raw += f32(value)
        self.fields[field] = float32(f32(value))

    def whole(self, field, value, pack=u32):
        self.raw += pack(value)
        self.fields[field] = value

    def wholes(self, field, values):
        self.raw += u32(len(values)) + b"".join(map(u32, values))
        self.fields[field] = list(values)


def some_floats(rng, count, odd):
    def one():
        if odd and rng.random() < 0.3:
            bits = rng.choice([0x7FC00000, 0xFF800000, 0x7F800000, 0x80000000, 0x00000001, 0x7FC12345])
            return struct.unpack("<f", u32(bits))[0]
        return rng.uniform(-1000.0, 1000.0)

    return [one() for _ in range(count)]


def image(rng, version, odd):
    made = Payload()
    made.sensor("Sony", b"kam\xe9ra" if odd and rng.random() < 0.5 else "front_camera")
    stored = rng.choice([0, 1, 2, 0xFFFFFFFF]) if odd else 1
    made.raw += u32(stored)
    made.fields.update(compressed=stored != 0, compressed_stored=stored)
    made.whole("width", rng.choice([-1, 0, 2**31 - 1]) if odd else rng.choice([320, 640]), i32)
    made.whole("height", rng.choice([-(2**31), 7]) if odd else rng.choice([240, 480]), i32)
    picture = b"\xff\xd8\xff" + rng.randbytes(rng.choice([0, 1, 50, 700])) + b"\xff\xd9"
    made.raw += u32(len(picture)) + picture
    made.fields["bytes"] = picture.hex()
    return made


def imu(rng, version, odd):
    made = Payload()
    made.sensor("XSens_MTi", "imu")
    made.floats("quaternion", "wxyz", some_floats(rng, 4, odd))
    made.floats("acceleration", "xyz", some_floats(rng, 3, odd))
    return made


def laser(rng, version, odd):
    made = Payload()
    if version >= 101:
        made.sensor("SICK_LMS100", rng.choice(["laser_front", "laser_back"]))
    beams = rng.choice([0, 1, 181, 361])
    made.wholes("ranges", [rng.choice([0, rng.randrange(8000), 2**32 - 1]) for _ in range(beams)])
    if version >= 102:
        count = rng.choice([0, beams + 1]) if odd else beams
        made.wholes("intensities", [rng.randrange(2**32) for _ in range(count)])
        made.whole("sensor_timestamp", rng.randrange(2**32))
    return made


def laser_config(rng, version, odd):
    made = Payload()
    made.sensor("SICK_LMS100", rng.choice(["laser_front", "laser_back"]))
    made.whole("beams", rng.choice([181, 361]))
    made.whole("max_range", 8000)
    made.float("field_of_view", 180.5)
    made.floats("quaternion", "wxyz", some_floats(rng, 4, odd))
    made.floats("position", "xyz", some_floats(rng, 3, odd))
    return made


MAKERS = {
    "ImageM": image,
    "IMUStateM": imu,
    "LaserRange2DDataM": laser,
    "LaserRange2DConfigM": laser_config,
}


def version_of(name, rng, options):
    if name == "LaserRange2DDataM":
        version = rng.choice(options.laser_versions)
    else:
        version = NEWEST[name]
    if options.newer and rng.random() < 0.3:
        return NEWEST[name] + rng.randrange(1, 4)
    if options.older and rng.random() < 0.3:
        return rng.choice([-1, 0, 99])
    return version


def message(rng, time_ms, options):
    """A message of any kind, without its offset, which is not known yet."""
    names = list(MAKERS)
    if options.unknown and rng.random() < 0.25:
        name, version = "OdometryM", rng.choice([100, -7])
        made, known = Payload(), "raw"
        made.raw = rng.randbytes(rng.choice([0, 1, 24, 200]))
    else:
        name = rng.choice(names)
        version = version_of(name, rng, options)
        layout = min(version, NEWEST[name])
        made, known = MAKERS[name](rng, layout, options.odd), "full"
        if version > NEWEST[name]:
            known = "prefix"
        elif version < 100:
            known = "raw"
    tail = rng.randbytes(rng.choice([0, 3, 40])) if known == "prefix" else b""
    return {
        "type": name,
        "version": version,
        "time_ms": time_ms,
        "marker": rng.choice([0, 0x30, 0xFF]) if options.deleted and rng.random() < 0.2 else VALID,
        "payload": made.raw + tail,
        "known": known,
        "tail": tail,
        "fields": None if known == "raw" else made.fields,
    }


def times(rng, options):
    """Times that mostly rise; the first is an ordinary one."""
    at = 10000.0
    for n in range(options.messages):
        odd = options.odd_times and n > 0 and rng.random() < 0.2
        if odd:
            yield rng.choice([math.nan, math.inf, -math.inf, 1e300, -5.5, 1.7e12, 9.3e12])
        else:
            yield at
        at += rng.choice([0.0, 0.1, 33.25, 27.027027, 1000.0, 2500.75])
        if options.backwards and rng.random() < 0.2:
            at -= 1500.0


def packed(found):
    body = struct.pack("<BIid", found["marker"], type_id(found["type"]), found["version"], found["time_ms"])
    body += found["payload"]
    return u32(len(body)) + body


# ------------------------------------------------------------------ the index


def seconds(messages):
    """The number of seconds in the index for all messages."""
    first = messages[0]["time_ms"] if messages else 0.0
    later = [m["time_ms"] - first for m in messages if math.isfinite(m["time_ms"])]
    # Odd times would need a table of any length.
    return min(int(max(later, default=0.0) // 1000.0) + 1, 5000) if messages else 0


def right_entries(messages, offsets, count):
    """The offset of the first message of each second."""
    entries = []
    for i in range(count):
        due = messages[0]["time_ms"] + i * 1000.0 if messages else math.inf
        first = (at for found, at in zip(messages, offsets) if found["time_ms"] >= due)
        entries.append(next(first, -1))
    return entries


def entry_count(kind, messages):
    needed = seconds(messages)
    extra = {"none": -needed, "reserved": 25, "unpatched": 10, "short": -(needed // 2), "example": 1}
    return needed + extra.get(kind, 0)


def spoiled(right, offsets, length, rng):
    """The entries with some of them wrong: beside messages, in the index, beyond the file, at another message."""
    entries = list(right)
    for i, entry in enumerate(entries):
        others = [at for at in offsets if at not in (entry, -1)]
        choices = [entry + 1 if entry >= 0 else 13, 5, length, length + 100, -2]
        choices += [rng.choice(others)] if others else []
        if i == 0 or rng.random() < 0.4:
            entries[i] = rng.choice(choices)
    return entries


# ------------------------------------------------------------------ the file


def tail_of(kind, messages, rng):
    if kind == "cut":
        body = packed(message(rng, 1.0, argparse.Namespace(**NOTHING_ODD)))
        return body[: rng.randrange(1, len(body))]
    return {"": b"", "zeros": bytes(37), "garbage": rng.randbytes(40)}[kind]


NOTHING_ODD = dict(unknown=False, odd=False, newer=False, older=False, deleted=False, laser_versions=[102])


def write(messages, options, rng):
    """The bytes of the log, and its expected contents."""
    count = entry_count(options.index, messages)
    at = 12 + 8 * count
    offsets, body = [], b""
    for found in messages:
        offsets.append(at + len(body))
        body += packed(found)
    end = at + len(body)
    body += END_MARK if options.end_mark else b""
    body += tail_of(options.tail, messages, rng)
    right = right_entries(messages, offsets, count)
    entries = list(right)
    if options.index == "unpatched":
        entries = [-1] * count
    elif options.index == "wrong":
        entries = spoiled(right, offsets, at + len(body), rng)
    head = MAGIC + struct.pack("<HHI", 1, options.minor, count)
    raw = head + b"".join(struct.pack("<q", entry) for entry in entries) + body
    expected = {
        "bytes": len(raw),
        "major": 1,
        "minor": options.minor,
        "index": {
            "kind": options.index,
            "entries": entries,
            "right": right,
            "wrong": [i for i, (is_, due) in enumerate(zip(entries, right)) if is_ != due],
        },
        "end_mark": options.end_mark,
        "end": end,
        "tail": options.tail,
        "messages": [described(found, at) for found, at in zip(messages, offsets)],
    }
    return raw, expected


def described(found, offset):
    number = type_id(found["type"])
    return {
        "offset": offset,
        "size": HEADER + len(found["payload"]),
        "marker": found["marker"],
        "deleted": found["marker"] != VALID,
        "type_id": number,
        "type_hex": f"0x{number:08X}",
        "type": found["type"],
        "version": found["version"],
        "time_ms": float64(found["time_ms"]),
        "timestamp_ns": nanoseconds(found["time_ms"]),
        "payload": found["payload"].hex(),
        "known": found["known"],
        "tail": found["tail"].hex(),
        "fields": found["fields"],
    }


# ------------------------------------------------------------------ the worked example

EXAMPLE = bytes.fromhex(
    """
    a4 56 45 4c 01 00 01 00 02 00 00 00 1c 00 00 00
    00 00 00 00 ff ff ff ff ff ff ff ff 41 00 00 00
    31 07 8d 01 00 66 00 00 00 00 00 00 00 00 88 c3
    40 09 00 00 00 58 53 65 6e 73 5f 4d 54 69 03 00
    00 00 69 6d 75 00 00 80 3f 00 00 00 00 00 00 00
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 1d
    41
    """
)


def example(options, rng):
    made = Payload()
    made.sensor("XSens_MTi", "imu")
    made.floats("quaternion", "wxyz", [1.0, 0.0, 0.0, 0.0])
    made.floats("acceleration", "xyz", [0.0, 0.0, 9.8125])
    found = dict(type="IMUStateM", version=102, time_ms=10000.0, marker=VALID, payload=made.raw)
    found.update(known="full", tail=b"", fields=made.fields)
    options.index, options.end_mark, options.tail, options.minor = "example", False, "", 1
    raw, expected = write([found], options, rng)
    if raw != EXAMPLE:
        sys.exit(f"the example came out wrong:\n{raw.hex(' ')}\ninstead of\n{EXAMPLE.hex(' ')}")
    return raw, expected


# ------------------------------------------------------------------ an independent reader, for checking


class Reader:
    """Reads values from the front of bytes. Shares no code with the writer."""

    def __init__(self, raw, at=0):
        self.raw, self.at = raw, at

    def bytes(self, count):
        assert 0 <= count <= len(self.raw) - self.at, f"{count} bytes wanted at {self.at}"
        self.at += count
        return self.raw[self.at - count : self.at]

    def uint(self, size=4):
        return int.from_bytes(self.bytes(size), "little")

    def int(self, size=4):
        return int.from_bytes(self.bytes(size), "little", signed=True)

    def text(self):
        raw = self.bytes(self.uint())
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return {"bytes": raw.hex()}

    def float(self):
        return f"{self.uint():08x}"

    def floats(self, names):
        return {name: self.float() for name in names}

    def list(self):
        return [self.uint() for _ in range(self.uint())]


def read_fields(name, version, reader):
    found = {}
    if name != "LaserRange2DDataM" or version > 100:
        found["sensor_type"] = reader.text()
        found["sensor_name"] = reader.text()
    if name == "ImageM":
        found["compressed_stored"] = reader.uint()
        found["compressed"] = found["compressed_stored"] > 0
        found["width"], found["height"] = reader.int(), reader.int()
        found["bytes"] = reader.bytes(reader.uint()).hex()
    elif name == "IMUStateM":
        found["quaternion"], found["acceleration"] = reader.floats("wxyz"), reader.floats("xyz")
    elif name == "LaserRange2DDataM":
        found["ranges"] = reader.list()
        if version > 101:
            found["intensities"] = reader.list()
            found["sensor_timestamp"] = reader.uint()
    else:
        found["beams"], found["max_range"] = reader.uint(), reader.uint()
        found["field_of_view"] = reader.float()
        found["quaternion"], found["position"] = reader.floats("wxyz"), reader.floats("xyz")
    return found


def bits_only(fields):
    """Expected fields with floats as their bits, as the reader has them."""
    if isinstance(fields, dict):
        if set(fields) == {"value", "bits"}:
            return fields["bits"]
        return {key: bits_only(value) for key, value in fields.items()}
    return fields


def check_values(fields):
    """The values of floats are those of their bits."""
    if not isinstance(fields, dict):
        return
    if set(fields) == {"value", "bits"}:
        form = ">f" if len(fields["bits"]) == 8 else ">d"
        value = struct.unpack(form, bytes.fromhex(fields["bits"]))[0]
        assert repr(float(fields["value"])) == repr(value), fields
        return
    for value in fields.values():
        check_values(value)


def self_check(path, expected_path):
    with open(path, "rb") as file:
        raw = file.read()
    with open(expected_path, encoding="utf-8") as file:
        expected = json.load(file)
    names = {68041: "ImageM", 101639: "IMUStateM", 198928: "LaserRange2DDataM"}
    names.update({228854: "LaserRange2DConfigM", 114212: "OdometryM"})
    newest = {"ImageM": 102, "IMUStateM": 102, "LaserRange2DDataM": 102, "LaserRange2DConfigM": 100}
    assert len(raw) == expected["bytes"]
    reader = Reader(raw)
    assert reader.bytes(4) == b"\xa4VEL"
    assert (reader.uint(2), reader.uint(2)) == (expected["major"], expected["minor"])
    entries = [reader.int(8) for _ in range(reader.uint())]
    assert entries == expected["index"]["entries"]
    found = []
    for wanted in expected["messages"]:
        assert reader.at == wanted["offset"], (reader.at, wanted["offset"])
        size = reader.uint()
        body = Reader(reader.bytes(size))
        assert (size, body.uint(1)) == (wanted["size"], wanted["marker"])
        assert wanted["deleted"] == (wanted["marker"] != 0x31)
        name = names[body.uint()]
        assert (name, type_id(name)) == (wanted["type"], wanted["type_id"])
        assert int(wanted["type_hex"], 16) == wanted["type_id"]
        assert body.int() == wanted["version"]
        assert f"{body.uint(8):016x}" == wanted["time_ms"]["bits"]
        payload = body.raw[body.at :]
        assert payload.hex() == wanted["payload"]
        if wanted["known"] != "raw":
            version = min(wanted["version"], newest[name])
            assert read_fields(name, version, body) == bits_only(wanted["fields"])
        else:
            assert wanted["fields"] is None
            body.at = len(body.raw)
        assert body.raw[body.at :].hex() == wanted["tail"]
        check_values(wanted["time_ms"])
        check_values(wanted["fields"])
        found.append((wanted["offset"], float(wanted["time_ms"]["value"])))
    assert reader.at == expected["end"]
    check_index(expected["index"], found)
    rest = raw[reader.at :]
    assert expected["end_mark"] == rest.startswith(b"\xff\xff\xff\xff")
    assert expected["tail"] or len(rest) == 4 * expected["end_mark"]


def check_index(index, found):
    for i, (entry, right) in enumerate(zip(index["entries"], index["right"])):
        late = [offset for offset, time in found if time >= found[0][1] + 1000.0 * i]
        assert right == (late[0] if late else -1), i
        assert (entry != right) == (i in index["wrong"]), i


# ------------------------------------------------------------------ the command line


def arguments():
    parser = argparse.ArgumentParser(description="Writes a VEL log, and says what is in it.")
    add = parser.add_argument
    add("out", metavar="OUT.vel")
    add("expected", metavar="EXPECTED.json")
    add("--seed", type=int, default=1)
    add("--messages", type=int, default=50)
    kinds = ["right", "none", "reserved", "unpatched", "short", "wrong"]
    add("--index", choices=kinds, default="right", help="none: no entries; reserved: more than are used; "
        "unpatched: all -1, as a writer that died leaves them; short: fewer than seconds")
    add("--laser-versions", type=lambda s: [int(v) for v in s.split(",")], default=[100, 101, 102],
        help="versions of laser data, with commas between: 100,101,102")
    add("--minor", type=int, default=1, help="minor version of the file")
    add("--unknown", action="store_true", help="messages of a type without a known layout: OdometryM")
    add("--newer", action="store_true", help="versions above those known, with more behind what is known")
    add("--older", action="store_true", help="versions below those known")
    add("--deleted", action="store_true", help="messages whose marker is not 0x31")
    add("--odd", action="store_true", help="NaN, booleans that are 2, counts that differ, names that are not UTF-8")
    add("--odd-times", action="store_true", help="times that are NaN, infinite, beyond 64 bits, or Unix times")
    add("--backwards", action="store_true", help="times that step back")
    add("--end-mark", action="store_true", help="end with 0xFFFFFFFF")
    add("--tail", choices=["", "cut", "zeros", "garbage"], default="",
        help="what follows: a message cut off, zeros, or (behind the end mark) garbage")
    add("--example", action="store_true", help="the log of 97 bytes with one IMU message")
    add("--self-check", action="store_true", help="read what was written, and compare")
    options = parser.parse_args()
    if options.tail == "garbage" and not options.end_mark:
        parser.error("garbage has no known meaning but behind --end-mark")
    return options


def main():
    options = arguments()
    rng = random.Random(options.seed)
    if options.example:
        raw, expected = example(options, rng)
    else:
        messages = [message(rng, time, options) for time in times(rng, options)]
        raw, expected = write(messages, options, rng)
    with open(options.out, "wb") as file:
        file.write(raw)
    with open(options.expected, "w", encoding="utf-8") as file:
        json.dump(expected, file, indent=1, allow_nan=False)
        file.write("\n")
    if options.self_check:
        self_check(options.out, options.expected)


if __name__ == "__main__":
    main()
