"""LCM's own client for Python, to send to us and to hear what we send.

    peer.py publish URL SPEC.json                   messages as they are listed
    peer.py record URL SECONDS|COUNT OUT.json       what comes: `2.5s` is a time, `100` a number of messages
    peer.py typed publish URL MADE COUNT            messages of the types in `plugins/dgc/types`
    peer.py typed receive URL MADE SECONDS|COUNT    what is in such messages

SPEC.json is a list of [channel, payload, pause in ms, if one is wanted after it]. A payload is base64, or a number of
bytes: then it begins with its place in the list, from 0, as 8 bytes big-endian, cut off if it is shorter, and goes
on with a pattern. `publish` prints what it has sent as `record` writes it: a list of [channel, SHA-256, length].

MADE is a folder for what lcm-gen makes. COUNT is of each of three types: pose_t on POSE, laser_t on LASER, velodyne_t
on VELODYNE, in turn. Both `typed` print a line of JSON a message: its channel, its type, and its
fields; what is bytes in base64. Those of the number n are the same each time.

Who hears prints "ready" on standard output once it has heard itself, and ends with status 1 if that does not come
true, or if it has not heard so many messages in 30 seconds. Every message counts, also that by which others
find out whether they hear: LCM_SELF_TEST. Its own does not come.
"""

import base64
import hashlib
import importlib
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import lcm

TYPES = Path(__file__).resolve().parents[3] / "plugins" / "dgc" / "types"
LCM_GEN = Path(lcm.__file__).resolve().parent.parent / "bin" / "lcm-gen"
SELF_TEST = "LCM_SELF_TEST"
ENOUGH_SECONDS = 30
BEGIN = 1_194_098_400_000_000


def payload_of(given, number):
    if isinstance(given, str):
        return base64.b64decode(given, validate=True)
    pattern = bytes((at * 131 + at // 251) & 0xFF for at in range(8, given))
    return (number.to_bytes(8, "big") + pattern)[:given]


def told(channel, payload):
    return [channel, hashlib.sha256(payload).hexdigest(), len(payload)]


def publish(url, spec):
    bus = lcm.LCM(url)
    messages = [(channel, payload_of(given, n), *pause) for n, (channel, given, *pause) in enumerate(listed(spec))]
    for channel, payload, *pause in messages:
        bus.publish(channel, payload)
        if pause:
            time.sleep(pause[0] / 1000)
    print(json.dumps([told(channel, payload) for channel, payload, *_ in messages]))


def listed(spec):
    return json.loads(Path(spec).read_text())


def hear(url, until, take):
    """Gives channel and payload of each message to `take`, for so many seconds or until there are so many."""
    bus, heard = lcm.LCM(url), 0

    def on_message(channel, payload):
        nonlocal heard
        heard += 1
        take(channel, payload)

    # Comes back when it has heard itself, and fails if that takes ten seconds. What it hears until then is not ours.
    bus.subscribe(".*", on_message).set_queue_capacity(0)
    print("ready", flush=True)
    seconds, count = (float(until[:-1]), math.inf) if until.endswith("s") else (ENOUGH_SECONDS, int(until))
    end = time.monotonic() + seconds
    while heard < count and (left := end - time.monotonic()) > 0:
        bus.handle_timeout(max(1, int(left * 1000)))
    if heard < count < math.inf:
        sys.exit(f"heard {heard} of {count} messages in {ENOUGH_SECONDS} s")


def record(url, until, out):
    heard = []
    try:
        hear(url, until, lambda channel, payload: heard.append(told(channel, payload)))
    finally:
        Path(out).write_text(json.dumps(heard))


# ---- messages of types ----


def classes(made):
    """The classes of the types, by name, after making them."""
    files = sorted(TYPES.glob("*.lcm"))
    subprocess.run([LCM_GEN, "-p", "--ppath", made, *files], check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, made)
    # A file declares a type of its own name; all are of one package.
    package = importlib.import_module("lcmtypes")
    return {file.stem: getattr(package, file.stem) for file in files}


def pose(of, n):
    """The pose with the number n."""
    new = of["pose_t"]()
    new.utime = BEGIN + n * 5000
    new.pos = [n + 0.25, -n * 0.5, 1e-3 * n]
    new.vel = [-1.5, 0.0, n * 1e6]
    new.orientation = [0.5, -0.5, 0.5, -0.5]
    new.rotation_rate = [0.1 * n, -0.0, 5e-324]
    new.accel = [1.7976931348623157e308, 9.81, n / 3]
    return "POSE", new


def laser(of, n):
    """A scan whose arrays have other lengths each time. Its numbers are the same in 32 bits."""
    new = of["laser_t"]()
    new.utime = BEGIN + n * 5000 + 1
    new.ranges = [at + 0.25 for at in range(n % 5)]
    new.intensities = [0.5 * n] * (n % 2)
    new.nranges, new.nintensities = len(new.ranges), len(new.intensities)
    new.rad0, new.radstep = -1.5, 0.0078125
    return "LASER", new


def velodyne(of, n):
    """A packet of bytes, the first one of none."""
    new = of["velodyne_t"]()
    new.utime = BEGIN + n * 5000 + 2
    new.data = bytes((n + at) & 0xFF for at in range(n * 7))
    new.datalen = len(new.data)
    return "VELODYNE", new


def fields(value):
    """What is in a message, as JSON has it."""
    if hasattr(value, "__slots__"):
        return {name: fields(getattr(value, name)) for name in value.__slots__}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (list, tuple)):
        return [fields(part) for part in value]
    return value


def line(channel, message):
    return json.dumps({"channel": channel, "type": f"lcmtypes.{type(message).__name__}", "fields": fields(message)})


def publish_typed(url, made, count):
    of, bus = classes(made), lcm.LCM(url)
    for n in range(int(count)):
        for channel, message in (pose(of, n), laser(of, n), velodyne(of, n)):
            bus.publish(channel, message.encode())
            print(line(channel, message))
        # Slow enough for everybody.
        time.sleep(0.001)


def receive_typed(url, made, until):
    by_fingerprint = {of._get_packed_fingerprint(): of for of in classes(made).values()}

    def take(channel, payload):
        of = by_fingerprint.get(payload[:8])
        if of:
            print(line(channel, of.decode(payload)), flush=True)
        elif channel != SELF_TEST:
            sys.exit(f"a message of no type that there is, on {channel}")

    hear(url, until, take)


COMMANDS = {
    ("publish",): (publish, 2),
    ("record",): (record, 3),
    ("typed", "publish"): (publish_typed, 3),
    ("typed", "receive"): (receive_typed, 3),
}


def main(words):
    for name, (command, wants) in COMMANDS.items():
        if tuple(words[: len(name)]) == name and len(words) == len(name) + wants:
            return command(*words[len(name) :])
    sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
