"""Writes Orca logs (a master file and its subfiles) and a report of their contents.

Written from the description of the format, independently of the program that it tests. Needs only
Python 3.

    orca_writer.py OUTDIR EXPECTED.json --dialect A|B|C [--prefix u32|u64|id-u32|id-u64] [--seed N] [options]

The same options produce the same bytes. OUTDIR is created, and must not contain a log. With
`--self-check`, a small independent reader reads the log again and must find what EXPECTED.json says.

Dialects: A (2006): header lines `interface encoding file`, interfaces with `::orca::`, indexes from 1, objects
are classes. B (end of 2006): `file interface encoding`, no prefix, indexes from 0, classes. C (from 2007): the same
with `enabled` as a fourth word; mostly structs; also a file `ascii` and a file `jpeg`.

EXPECTED.json is one object:

    "dialect", "master" (file name), "file_prefix" ("060804_153321_"), "index_base" (1 or 0),
    "framing"       of all ice files: "u32", "u64", "id-u32", "id-u64"
    "first_time_ns" of the first data line: the time of configuration records
    "files"         in the order of the header lines; a data line's subfile is a number into it:
        "file", "stem" ("laser0": without prefix and ending), "proxy" ("laser@alpha/laser0")
        "interface"       as the header has it; "name": without `::orca::`; "channel": "orca." and that name
        "encoding"        "ice", "ascii", "jpeg", or one that nobody knows
        "enabled"         true, false; null in A and B, which do not say
        "bytes"           its length; null if there is no such file
        "config_records"  how many records come before those that the index counts
        "layout"          which of several layouts its objects have, or ""
        "cut"             bytes at its end of a record that was not written whole
        "records"         whole ones, the configuration first, each:
            "offset"       of its prefix (ice), of its line (ascii); null for jpeg
            "id"           the id in front of the length, or null
            "config"       whether it is configuration
            "payload"      hex: of the record without id and length; of the line without its end; of the picture
            "type"         "::orca::LaserData" of the object itself, also where it is a struct; null in ascii, jpeg
            "is_class"     whether it is a class, so that its name is in the record
            "instances"    how many instances the record holds
            "fields"       OBJECT; null if its layout is not known to this program: only the bytes are held to
            "path"         jpeg only: of the picture, below OUTDIR
    "lines"         the data lines in the order of the master, each:
        "line"          its number in the master, from 1
        "outcome"       "event"; "no-record" (the index is beyond what its file holds, or below the first);
                        "no-file" (there is none); "unknown-encoding"; "malformed" (and nothing but "line")
        "seconds", "microseconds", "timestamp_ns", "subfile", "index"
        "stem", "interface", "channel": as in "files"
        "record"        number into the file's records, "payload", "type", "fields": the same as there; events only

OBJECT has members in the order in which they lie in the record: of a class first its own, then those of its
base. A class that is a member is an OBJECT with "class": "::orca::PointPolarFeature2d" as first member, or null.
Where the class is one that nobody knows, "class" is its nearest known base, "sliced" lists the names of what was
left out, most derived first, and the members of these are not there. byte[] is {"hex": "00ff"}, other sequences
are lists, enums and numbers are whole numbers, bool is true or false. A float or double is {"value": number or
"NaN", "Infinity", "-Infinity"; "bits": hex, highest byte first, 8 or 16 digits}.
"""

import argparse
import json
import math
import os
import random
import struct
import sys

FILE_PREFIX = "060804_153321_"
START = 1154412007

# ------------------------------------------------------------------ objects

BLOCKS = {
    "Time": "seconds:int useconds:int",
    "TimeOfDay": "hours:int minutes:int seconds:double",
    "CartesianPoint2d": "x:double y:double",
    "CartesianPoint": "x:double y:double z:double",
    "CartesianVelocity2d": "x:double y:double",
    "CartesianAcceleration": "x:double y:double z:double",
    "AngularVelocity3d": "x:double y:double z:double",
    "PolarPoint2d": "r:double o:double",
    "OrientationE": "r:double p:double y:double",
    "Frame2d": "p:CartesianPoint2d o:double",
    "Frame3d": "p:CartesianPoint o:OrientationE",
    "Twist2d": "v:CartesianVelocity2d w:double",
    "Size2d": "l:double w:double",
    "Size3d": "l:double w:double h:double",
    "Covariance2d": "xx:double xy:double yy:double xt:double yt:double tt:double",
    "Localise2dHypothesis": "mean:Frame2d cov:Covariance2d weight:float",
}

# The number of words of an enum.
ENUMS = {"ImageFormat": 12, "ImageCompression": 2, "ChargingState": 3, "GpsPositionType": 29}

SCAN = "minRange:double maxRange:double fieldOfView:double startAngle:double"
SCANNER = SCAN + " numberOfSamples:int offset:Frame3d size:Size3d"

# Structs and classes of each dialect; a class is (base, members).
STRUCTS = {
    "A": BLOCKS | {"BatteryData": "name:string voltage:float percent:float"},
    "B": BLOCKS | {"BatteryData": "name:string voltage:float percent:float secRemaining:float"},
    "C": BLOCKS
    | {
        "BatteryData": "name:string voltage:float percent:float isBatteryCharging:ChargingState secRemaining:float",
        "BatteryData2": "name:string voltage:float percent:short isBatteryCharging:ChargingState secRemaining:int",
        "RangeScanner2dDescription": "timeStamp:Time " + SCANNER,
        "Odometry2dData": "timeStamp:Time pose:Frame2d motion:Twist2d",
        "Odometry2dData2": "timeStamp:Time pose:Frame2d motion:Twist2d odometryWasReset:bool",
        "ImuData": "timeStamp:Time accel:CartesianAcceleration gyro:AngularVelocity3d",
        "PowerData": "timeStamp:Time batteries:BatteryData[]",
        "PowerData2": "timeStamp:Time batteries:BatteryData2[]",
        "GpsData": "timeStamp:Time utcTime:TimeOfDay latitude:double longitude:double altitude:double "
        "horizontalPositionError:double verticalPositionError:double heading:double speed:double "
        "climbRate:double satellites:int observationCountOnL1:int observationCountOnL2:int "
        "positionType:GpsPositionType geoidalSeparation:double",
        "Localise2dData": "timeStamp:Time hypotheses:Localise2dHypothesis[]",
        "CpuData": "timeStamp:Time userLoad:int systemLoad:int idleLoad:int temperature:float",
        "DriveBicycleData": "timeStamp:Time referenceSteerAngle:double referenceSpeed:double "
        "currentSteerAngle:double currentSpeed:double",
        "PolarFeature2dData": "timeStamp:Time features:class:SinglePolarFeature2d[]",
        # Descriptions known by name only: they must be preserved.
        "VehicleDescription": "timeStamp:Time control:class:VehicleControl geometry:class:VehicleGeometry",
        "GpsDescription": "timeStamp:Time offset:Frame3d",
        "ImuDescription": "timeStamp:Time offset:Frame3d",
        "Localise2dDescription": "timeStamp:Time size:Size2d",
    },
}
CLASSES = {
    "A": {
        "OrcaObject": (None, "timeStamp:Time"),
        "RangeScannerConfig": (
            "OrcaObject",
            "rangeResolution:float maxRange:float angleIncrement:float isEnabled:bool baudrate:int",
        ),
        "RangeScannerGeometry": ("OrcaObject", "offset:Frame3d size:Size3d"),
        "RangeScannerData": ("OrcaObject", "ranges:float[] startAngle:float angleIncrement:float"),
        "LaserData": ("RangeScannerData", "intensities:byte[]"),
        "LaserDataOfTomorrow": ("LaserData", "more:byte[]"),
        "CameraConfig": (
            "OrcaObject",
            "imageWidth:int imageHeight:int frameRate:float format:ImageFormat "
            "compression:ImageCompression isEnabled:bool",
        ),
        "CameraGeometry": ("OrcaObject", "offset:Frame3d"),
        "CameraData": (
            "OrcaObject",
            "imageWidth:int imageHeight:int format:ImageFormat compression:ImageCompression image:byte[]",
        ),
        "Position2dGeometry": ("OrcaObject", "offset:Frame2d size:Size2d"),
        "Position2dData": ("OrcaObject", "pose:Frame2d motion:Twist2d stalled:bool"),
        "PowerData": ("OrcaObject", "batteries:BatteryData[]"),
        "SinglePolarFeature2d": (None, "p:PolarPoint2d type:int"),
        "PolarFeature2dData": ("OrcaObject", "features:class:SinglePolarFeature2d[]"),
        "Localise2dData": ("OrcaObject", "hypotheses:Localise2dHypothesis[]"),
        "GpsConfigData": ("OrcaObject", "geometry:CartesianPoint origin:Frame3d"),
        "GpsData": (
            "OrcaObject",
            "utcHours:int utcMinutes:int utcSeconds:double latitude:double longitude:double altitude:double "
            "heading:double speed:double climbRate:double satellites:int positionType:int "
            "geoidalSeparation:double",
        ),
    },
    "B": {
        "OrcaObject": (None, "timeStamp:Time"),
        "RangeScanner2dDescription": ("OrcaObject", SCANNER),
        "RangeScanner2dData": ("OrcaObject", "ranges:float[] " + SCAN),
        "LaserScanner2dData": ("RangeScanner2dData", "intensities:byte[]"),
        "LaserScannerOfTomorrow": ("LaserScanner2dData", "more:byte[]"),
        "PowerData": ("OrcaObject", "batteries:BatteryData[]"),
        "SinglePolarFeature2d": (None, "p:PolarPoint2d type:int pFalsePositive:double pTruePositive:double"),
        "PolarFeature2dData": ("OrcaObject", "features:class:SinglePolarFeature2d[]"),
        "CpuData": ("OrcaObject", "userLoad:int systemLoad:int idleLoad:int temperature:float"),
    },
    "C": {
        "RangeScanner2dData": (None, "timeStamp:Time ranges:float[] " + SCAN),
        "LaserScanner2dData": ("RangeScanner2dData", "intensities:byte[]"),
        "LaserScannerOfTomorrow": ("LaserScanner2dData", "more:byte[]"),
        "SinglePolarFeature2d": (None, "type:int pFalsePositive:double pTruePositive:double"),
        "PointPolarFeature2d": ("SinglePolarFeature2d", "p:PolarPoint2d rangeSd:double bearingSd:double"),
        "LinePolarFeature2d": (
            "SinglePolarFeature2d",
            "start:PolarPoint2d end:PolarPoint2d rhoSd:double alphaSd:double startSighted:bool endSighted:bool",
        ),
        "ImageDescription": (None, "width:int height:int size:int format:string"),
        "CameraDescription": (
            "ImageDescription",
            "frameRate:double offset:Frame3d caseSize:Size3d focalLength:CartesianPoint2d "
            "principlePoint:CartesianPoint2d k1:double k2:double p1:double p2:double",
        ),
        "ImageData": (None, "timeStamp:Time description:class:ImageDescription pixelData:byte[]"),
        "VehicleControl": (None, "type:byte"),
        "VehicleGeometry": (None, "type:byte radius:double"),
    },
}
UNKNOWN = {"LaserDataOfTomorrow", "LaserScannerOfTomorrow"}

# interface, encoding, configuration records, data record, layout. A leading dot marks a struct,
# a question mark an unknown layout.
FILES = {
    "A": [
        ("Laser", "ice", ["RangeScannerConfig", "RangeScannerGeometry"], "LaserData", ""),
        ("Camera", "ice", ["CameraConfig", "CameraGeometry"], "CameraData", ""),
        ("Position2d", "ice", ["Position2dGeometry"], "Position2dData", ""),
        ("Power", "ice", [], "PowerData", ""),
        ("PolarFeature2d", "ice", [], "PolarFeature2dData", ""),
        ("Gps", "ice", ["GpsConfigData"], "GpsData", ""),
        ("Localise2d", "ice", [], "Localise2dData", ""),
    ],
    "B": [
        ("LaserScanner2d", "ice", ["RangeScanner2dDescription"], "LaserScanner2dData", ""),
        ("Power", "ice", [], "PowerData", ""),
        ("PolarFeature2d", "ice", [], "PolarFeature2dData", ""),
        ("Cpu", "ice", [], "CpuData", ""),
    ],
    "C": [
        ("LaserScanner2d", "ice", [".RangeScanner2dDescription"], "LaserScanner2dData", ""),
        ("Odometry2d", "ice", [".?VehicleDescription"], ".Odometry2dData", "2008"),
        ("Odometry2d", "ice", [".?VehicleDescription"], ".Odometry2dData2", "later"),
        ("Imu", "ice", [], ".ImuData", ""),
        ("Power", "ice", [], ".PowerData", "2008"),
        ("Power", "ice", [], ".PowerData2", "later"),
        ("Gps", "ice", [".?GpsDescription"], ".GpsData", ""),
        ("Localise2d", "ice", [".?Localise2dDescription"], ".Localise2dData", ""),
        ("Cpu", "ice", [], ".CpuData", ""),
        ("DriveBicycle", "ice", [".?VehicleDescription"], ".DriveBicycleData", ""),
        ("PolarFeature2d", "ice", [], ".PolarFeature2dData", ""),
        ("Camera", "ice", ["CameraDescription"], "ImageData", "2009"),
        ("Power", "ascii", [], None, ""),
        ("Camera", "jpeg", [], None, ""),
    ],
}

# ------------------------------------------------------------------ Ice encoding 1.0


def size(count):
    return bytes([count]) if count < 255 else b"\xff" + struct.pack("<i", count)


def number(value):
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def floating(raw, form):
    return {"value": number(struct.unpack(form, raw)[0]), "bits": raw[::-1].hex()}


WHOLE = {"short": ("<h", 16), "int": ("<i", 32), "long": ("<q", 64)}
FLOATS = {"float": ("<f", 0x7FC00001), "double": ("<d", 0x7FF0000000000000)}


class Record:
    """A record being built: chooses values, writes them, and records them."""

    def __init__(self, rng, dialect, stamp, odd):
        self.rng, self.stamp, self.odd = rng, stamp, odd
        self.structs, self.classes = STRUCTS[dialect], CLASSES[dialect]
        self.out = bytearray()
        self.names = {}
        self.pending = []
        self.seen = {}
        self.instances = 0

    def struct(self, name):
        """A record whose top value is a struct."""
        fields = self.members(self.structs[name])
        return self.finished(fields)

    def instance(self, name):
        """A record whose top value is a class."""
        found = self.reference(name)
        return self.finished(found)

    def finished(self, fields):
        while self.pending:
            self.batch()
        self.out += size(0)
        return bytes(self.out), fields

    def members(self, text):
        fields = {}
        for member in text.split():
            name, kind = member.split(":", 1)
            fields[name] = self.value(kind, name)
        return fields

    def value(self, kind, name=""):
        if kind == "byte[]":
            return self.bytes()
        if kind.endswith("[]"):
            return self.sequence(kind[:-2])
        if kind == "Time":
            return self.time()
        if kind.startswith("class:"):
            return self.member(kind[len("class:") :])
        if kind in self.structs:
            return self.members(self.structs[kind])
        return self.plain(kind)

    def plain(self, kind):
        if kind in FLOATS:
            return self.float(kind)
        if kind in WHOLE:
            form, bits = WHOLE[kind]
            most = 2 ** (bits - 1)
            value = self.rng.choice([0, 1, -1, most - 1, -most, self.rng.randrange(most)])
            self.out += struct.pack(form, value)
            return value
        if kind == "string":
            text = self.rng.choice(["", "main", "wheel \u00fc", "x" * 254, "y" * 255])
            self.out += size(len(text.encode())) + text.encode()
            return text
        value = self.rng.randrange({"bool": 2, "byte": 256}.get(kind) or ENUMS[kind])
        self.out.append(value)
        return bool(value) if kind == "bool" else value

    def float(self, kind):
        form, special = FLOATS[kind]
        if self.odd and self.rng.random() < 0.2:
            bits = self.rng.choice([special, special >> 1, 1])
            raw = bits.to_bytes(struct.calcsize(form), "little")
        else:
            raw = struct.pack(form, self.rng.uniform(-100.0, 100.0))
        self.out += raw
        return floating(raw, form)

    def bytes(self):
        raw = self.rng.randbytes(self.rng.choice([0, 1, 20, 254, 255, 361]))
        self.out += size(len(raw)) + raw
        return {"hex": raw.hex()}

    def sequence(self, kind):
        most = [0, 1, 5, 254, 255, 361] if kind == "float" else [0, 1, 2, 3]
        count = self.rng.choice(most)
        self.out += size(count)
        return [self.value(kind) for _ in range(count)]

    def time(self):
        self.out += struct.pack("<ii", *self.stamp)
        return {"seconds": self.stamp[0], "useconds": self.stamp[1]}

    # -------------------------------------------------------------- classes

    def member(self, name):
        """A member of a class, or of a derived class."""
        if self.odd and self.rng.random() < 0.2:
            self.out += struct.pack("<i", 0)
            return None
        again = [found for found in self.seen.values() if found[0] == name]
        if self.odd and again and self.rng.random() < 0.3:
            _, id, found = self.rng.choice(again)
            self.out += struct.pack("<i", -id)
            return found
        kinds = [kind for kind in self.classes if name in self.chain(kind)]
        return self.reference(self.rng.choice(kinds), name)

    def reference(self, name, declared=None):
        self.instances += 1
        id, found = self.instances, {}
        self.out += struct.pack("<i", -id)
        self.pending.append((id, name, found))
        if declared is not None:
            self.seen[id] = (declared, id, found)
        return found

    def chain(self, name):
        """A class and its bases, most derived first."""
        found = []
        while name is not None:
            found.append(name)
            name = self.classes[name][0]
        return found

    def batch(self):
        batch, self.pending = self.pending, []
        # Any order is valid.
        if self.odd:
            self.rng.shuffle(batch)
        self.out += size(len(batch))
        for id, name, found in batch:
            self.out += struct.pack("<i", id)
            self.slices(name, found)

    def slices(self, name, found):
        chain = self.chain(name)
        sliced = [unknown for unknown in chain if unknown in UNKNOWN]
        found["class"] = "::orca::" + next(known for known in chain if known not in UNKNOWN)
        if sliced:
            found["sliced"] = ["::orca::" + unknown for unknown in sliced]
        for part in chain:
            start = self.open_slice("::orca::" + part)
            fields = self.members(self.classes[part][1])
            self.close_slice(start)
            found.update({} if part in UNKNOWN else fields)
        start = self.open_slice("::Ice::Object")
        self.out.append(0)
        self.close_slice(start)

    def open_slice(self, name):
        if name in self.names:
            self.out += b"\x01" + size(self.names[name])
        else:
            self.names[name] = len(self.names) + 1
            self.out += b"\x00" + size(len(name)) + name.encode()
        self.out += bytes(4)
        return len(self.out) - 4

    def close_slice(self, start):
        self.out[start : start + 4] = struct.pack("<i", len(self.out) - start)


# ------------------------------------------------------------------ subfiles


class Subfile:
    """A file of records, and its expected contents."""

    def __init__(self, number, kind, options, rng):
        self.interface, self.encoding, self.configs, self.data, layout = kind
        self.number, self.options, self.rng = number, options, rng
        same = [other[0] for other in FILES[options.dialect][:number]].count(self.interface)
        stem = f"{self.interface.lower()}{same}"
        prefix = "::orca::" if options.dialect == "A" else ""
        self.raw = b""
        self.records = []
        self.pictures = {}
        self.expected = {
            "file": f"{FILE_PREFIX}{stem}.log",
            "stem": stem,
            "proxy": f"{self.interface.lower()}@alpha/{stem}",
            "interface": prefix + self.interface,
            "name": self.interface,
            "channel": "orca." + self.interface,
            "encoding": self.encoding,
            "enabled": True if options.dialect == "C" else None,
            "bytes": None,
            "config_records": 0,
            "layout": layout,
            "cut": 0,
            "records": self.records,
        }
        self.stamp = (START, 0)
        self.begin()

    def begin(self):
        for name in self.configs:
            self.ice(name, config=True)
        self.expected["config_records"] = len(self.configs)
        if self.encoding == "jpeg":
            self.raw += b"a camera of 640 x 480, 10 frames a second\n"
            self.raw += (FILE_PREFIX + self.expected["stem"]).encode() + b"\n"

    def count(self):
        """Records that the index counts."""
        return len(self.records) - self.expected["config_records"]

    def add(self, stamp):
        """Appends a record of an event at this time."""
        self.stamp = stamp
        if self.encoding == "ascii":
            self.ascii()
        elif self.encoding == "jpeg":
            self.jpeg()
        else:
            data = self.data
            unknown = [name for name in UNKNOWN if name in CLASSES[self.options.dialect]]
            if self.options.odd and data.startswith("Laser") and self.rng.random() < 0.4:
                data = sorted(unknown)[0]
            self.ice(data, config=False)

    def ice(self, name, config):
        plain = name.lstrip(".?")
        record = Record(self.rng, self.options.dialect, self.stamp, self.options.odd)
        is_class = not name.startswith(".")
        payload, fields = record.instance(plain) if is_class else record.struct(plain)
        type_name = fields.pop("class") if is_class else "::orca::" + plain.rstrip("2")
        found = {
            "offset": len(self.raw),
            "id": 0 if self.options.prefix.startswith("id") else None,
            "config": config,
            "payload": payload.hex(),
            "type": type_name,
            "is_class": is_class,
            "instances": record.instances,
            "fields": None if "?" in name else fields,
        }
        self.raw += framed(payload, self.options.prefix)
        self.records.append(found)

    def ascii(self):
        batteries = self.rng.randrange(4)
        words = [str(self.stamp[0]), str(self.stamp[1]), str(batteries)]
        for _ in range(batteries):
            charging = self.rng.choice(["ChargingYes", "ChargingNo", "ChargingUnknown"])
            words += [f"{self.rng.uniform(10, 14):.3f}", "95", charging, "3600"]
        line = " ".join(words).encode()
        self.text_record(len(self.raw), line)
        self.raw += line + b"\n"

    def jpeg(self):
        picture = b"\xff\xd8\xff\xe0" + self.rng.randbytes(30) + b"\xff\xd9"
        self.raw += f"{self.stamp[0]} {self.stamp[1]} 640 480 ModeRgb\n".encode()
        path = f"{FILE_PREFIX}{self.expected['stem']}/image{len(self.records) + 1:05}.jpg"
        self.pictures[path] = picture
        self.text_record(None, picture)
        self.records[-1]["path"] = path

    def text_record(self, offset, payload):
        nothing = dict(id=None, config=False, type=None, is_class=False, instances=0, fields=None)
        self.records.append({"offset": offset, "payload": payload.hex(), **nothing})

    def cut_off(self):
        """Truncates the last record, as a killed logger does."""
        last = self.records.pop()
        keep = self.rng.randrange(last["offset"] + 1, len(self.raw))
        self.raw = self.raw[:keep]
        self.expected["cut"] = keep - last["offset"]

    def save(self, folder):
        self.expected["bytes"] = len(self.raw)
        save(folder, self.expected["file"], self.raw)
        for path, picture in self.pictures.items():
            save(folder, path, picture)


def framed(payload, prefix):
    length = struct.pack("<I" if prefix.endswith("u32") else "<Q", len(payload))
    return (b"\x00" if prefix.startswith("id") else b"") + length + payload


def save(folder, path, raw):
    path = os.path.join(folder, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(raw)


# ------------------------------------------------------------------ the master file


class Master:
    """The master file, and the expected results of its lines."""

    def __init__(self, options, files):
        self.options, self.files = options, files
        self.text = []
        self.lines = []

    def header(self):
        self.text += ["# Orca log", "# host           : alpha", "# start          : 060804_153321"]
        self.text += ["# Ice version    : 3.1.0", "# Orca version   : 2.0.0", "#"]
        for file in self.files:
            found = file.expected
            self.text.append("# " + found["proxy"])
            words = [found["file"], found["interface"], found["encoding"]]
            if self.options.dialect == "A":
                line = f"{words[1]:<28}{words[2]:<12}{words[0]}"
            elif self.options.dialect == "B":
                line = " ".join(words)
            else:
                line = " ".join(words + [str(int(found["enabled"]))])
            self.text.append(line)
        self.text.append("#data")

    def data(self, time, subfile, index):
        """A line for this index of this subfile; its result is known at the end."""
        words = [str(time[0]), str(time[1]), str(subfile), str(index)]
        wide = self.options.dialect == "A"
        self.text.append("".join(f"{word:<16}" for word in words) if wide else " ".join(words))
        found = {"line": len(self.text), "outcome": "event", "seconds": time[0]}
        found.update(microseconds=time[1], timestamp_ns=time[0] * 10**9 + time[1] * 1000)
        found.update(subfile=subfile, index=index)
        self.lines.append(found)

    def quirk(self, rng):
        """A line that is not a data line, or has trailing text."""
        kind = rng.randrange(5)
        if kind == 0 and self.lines and self.lines[-1]["line"] == len(self.text):
            self.text[-1] += "\t and more"
        elif kind == 1:
            self.text.append(rng.choice(["", "   "]))
        elif kind == 2:
            self.text.append(rng.choice(["# said in between", "#said"]))
        else:
            self.text.append(rng.choice(["1154412007 5", "now 0 0 0", "1154412007 1 0 x"]))
            self.lines.append({"line": len(self.text), "outcome": "malformed"})

    def settle(self, base):
        """Adds the result of each line."""
        for found in self.lines:
            if found["outcome"] == "malformed":
                continue
            file = self.files[found["subfile"]].expected
            found.update({key: file[key] for key in ("stem", "interface", "channel")})
            at = found["index"] - base
            record = at + file["config_records"]
            if file["bytes"] is None:
                found["outcome"] = "no-file"
            elif file["encoding"] not in ("ice", "ascii", "jpeg"):
                found["outcome"] = "unknown-encoding"
            elif at < 0 or record >= len(file["records"]):
                found["outcome"] = "no-record"
            else:
                held = file["records"][record]
                found["record"] = record
                found.update({key: held[key] for key in ("payload", "type", "fields")})


# ------------------------------------------------------------------ the log


def microseconds(time):
    return time[0] * 1_000_000 + time[1]


def later(time, by):
    return divmod(microseconds(time) + by, 1_000_000)


def happenings(options, files, master, rng):
    """Records in subfiles and lines in the master, in order of arrival."""
    base = 1 if options.dialect == "A" else 0
    now = (START, 22)
    for n in range(options.lines):
        file = files[n] if n < len(files) else rng.choice(files)
        # Sensors stamp events before the logger receives them, with different delays.
        stamp = later(now, -rng.choice([0, 16_000, 40_000])) if n else now
        time = now if options.dialect == "C" else stamp
        master.data(time, file.number, base + file.count())
        file.add(stamp)
        if options.repeat and rng.random() < 0.2:
            again = rng.choice(files)
            master.data(time, again.number, base + rng.randrange(max(again.count(), 1)))
        if options.quirks and rng.random() < 0.3:
            master.quirk(rng)
        now = later(now, rng.choice([0, 1, 27_000, 500_000, 1_000_000]))
    if options.killed:
        for n in range(3):
            file = rng.choice(files)
            master.data(now, file.number, base + file.count() + n)
    if options.quirks:
        master.data(now, 0, base - 1)


def write(options, rng):
    kinds = list(FILES[options.dialect])
    if options.imu_description:
        kinds = [(*kind[:2], [".?ImuDescription"], *kind[3:]) if kind[0] == "Imu" else kind for kind in kinds]
    files = [Subfile(n, kind, options, rng) for n, kind in enumerate(kinds)]
    if options.disabled and options.dialect == "C":
        files[0].expected["enabled"] = False
    if options.foreign:
        files[-1].expected["encoding"] = "jose"
    master = Master(options, files)
    master.header()
    happenings(options, files, master, rng)
    if options.cut:
        files[0].cut_off()
    for file in files:
        if not (options.missing and file.number == 1):
            file.save(options.folder)
    base = 1 if options.dialect == "A" else 0
    master.settle(base)
    name = FILE_PREFIX + "master.log"
    save(options.folder, name, ("\n".join(master.text) + "\n").encode())
    first = next((found for found in master.lines if "timestamp_ns" in found), {})
    return {
        "dialect": options.dialect,
        "master": name,
        "file_prefix": FILE_PREFIX,
        "index_base": base,
        "framing": options.prefix,
        "first_time_ns": first.get("timestamp_ns"),
        "files": [file.expected for file in files],
        "lines": master.lines,
    }


# ------------------------------------------------------------------ an independent reader, for checking

# Members by letter: i int, h short, b byte or bool or enum, f float, d double, s string, B byte[], R class,
# [...] a sequence. Repeated independently from the description.
LETTERS = {
    "A": {
        "OrcaObject": "ii",
        "RangeScannerConfig": "fffbi",
        "RangeScannerGeometry": "ddd ddd ddd",
        "RangeScannerData": "[f] ff",
        "LaserData": "B",
        "CameraConfig": "iif bb b",
        "CameraGeometry": "ddd ddd",
        "CameraData": "ii bb B",
        "Position2dGeometry": "ddd dd",
        "Position2dData": "ddd ddd b",
        "PowerData": "[sff]",
        "SinglePolarFeature2d": "dd i",
        "PolarFeature2dData": "[R]",
        "Localise2dData": "[ddd dddddd f]",
        "GpsConfigData": "ddd dddddd",
        "GpsData": "ii d ddd ddd ii d",
    },
    "B": {
        "OrcaObject": "ii",
        "RangeScanner2dDescription": "dddd i dddddd ddd",
        "RangeScanner2dData": "[f] dddd",
        "LaserScanner2dData": "B",
        "PowerData": "[sfff]",
        "SinglePolarFeature2d": "dd i dd",
        "PolarFeature2dData": "[R]",
        "CpuData": "iiif",
    },
    "C": {
        "RangeScanner2dDescription": "ii dddd i dddddd ddd",
        "RangeScanner2dData": "ii [f] dddd",
        "LaserScanner2dData": "B",
        "Odometry2dData 2008": "ii ddd ddd",
        "Odometry2dData later": "ii ddd ddd b",
        "ImuData": "ii ddd ddd",
        "PowerData 2008": "ii [sffbf]",
        "PowerData later": "ii [sfhbi]",
        "GpsData": "ii iid ddd dd ddd iii b d",
        "Localise2dData": "ii [ddd dddddd f]",
        "CpuData": "ii iiif",
        "DriveBicycleData": "ii dddd",
        "PolarFeature2dData": "ii [R]",
        "SinglePolarFeature2d": "idd",
        "PointPolarFeature2d": "dd dd",
        "LinePolarFeature2d": "dddd dd bb",
        "ImageDescription": "iiis",
        "CameraDescription": "d dddddd ddd dd dd dddd",
        "ImageData": "ii R B",
    },
}


class Reader:
    """Reads a record into a flat list of values. Shares no code with the writer."""

    def __init__(self, raw, letters):
        self.raw, self.at, self.letters = raw, 0, letters
        self.names = []
        self.found = {}

    def bytes(self, count):
        assert 0 <= count <= len(self.raw) - self.at, f"{count} bytes wanted at {self.at}"
        self.at += count
        return self.raw[self.at - count : self.at]

    def int(self, count=4):
        return int.from_bytes(self.bytes(count), "little", signed=True)

    def size(self):
        first = self.bytes(1)[0]
        return self.int() if first == 255 else first

    def text(self):
        return self.bytes(self.size()).decode("utf-8")

    def members(self, letters):
        values, at = [], 0
        while at < len(letters):
            if letters[at] == "[":
                close = letters.index("]", at)
                count = self.size()
                values.append(count)
                for _ in range(count):
                    values += self.members(letters[at + 1 : close])
                at = close
            elif letters[at] != " ":
                values.append(self.letter(letters[at]))
            at += 1
        return values

    def letter(self, letter):
        if letter in "fd":
            return f"{int.from_bytes(self.bytes(4 if letter == 'f' else 8), 'little'):x}"
        if letter in "ih":
            return self.int(4 if letter == "i" else 2)
        if letter == "R":
            return ("reference", self.int())
        if letter == "B":
            return self.bytes(self.size()).hex()
        return self.text() if letter == "s" else self.bytes(1)[0]

    def batches(self):
        """Reads all instances: id to name, members, and names of unknown classes."""
        while count := self.size():
            for _ in range(count):
                id = self.int()
                assert id > 0 and id not in self.found, id
                self.found[id] = self.slices()

    def slices(self):
        name, sliced, values = None, [], []
        while True:
            if self.bytes(1)[0]:
                part = self.names[self.size() - 1]
            else:
                part = self.text()
                self.names.append(part)
            end = self.at + self.int()
            if part == "::Ice::Object":
                assert self.bytes(1) == b"\x00" and self.at == end
                return name, sliced, values
            letters = self.letters.get(part.removeprefix("::orca::"))
            if letters is None:
                sliced.append(part)
                self.bytes(end - self.at)
            else:
                name = name or part
                values += self.members(letters)
            assert self.at == end, part

    def resolved(self, values):
        flat = []
        for value in values:
            if not isinstance(value, tuple):
                flat.append(value)
            elif value[1] == 0:
                flat.append(None)
            else:
                name, sliced, members = self.found[-value[1]]
                flat += [name, *sliced, *self.resolved(members)]
        return flat


def flat(expected):
    """Expected members in the form of the reader."""
    if isinstance(expected, list):
        return [len(expected)] + [leaf for element in expected for leaf in flat(element)]
    if not isinstance(expected, dict):
        return [expected]
    if set(expected) == {"value", "bits"}:
        value = struct.unpack(
            ">f" if len(expected["bits"]) == 8 else ">d", bytes.fromhex(expected["bits"])
        )[0]
        assert repr(float(expected["value"])) == repr(value), expected
        return [f"{int(expected['bits'], 16):x}"]
    if set(expected) == {"hex"}:
        return [expected["hex"]]
    leaves = []
    for key, value in expected.items():
        leaves += value if key == "sliced" else flat(value)
    return leaves


def check_record(record, dialect, layout):
    raw = bytes.fromhex(record["payload"])
    letters = LETTERS[dialect]
    reader = Reader(raw, letters)
    if record["fields"] is None:
        assert raw.endswith(b"\x00")
        return
    if record["is_class"]:
        top = [("reference", reader.int())]
    else:
        name = record["type"].removeprefix("::orca::")
        top = reader.members(letters.get(f"{name} {layout}") or letters[name])
    reader.batches()
    assert reader.at == len(raw) and len(reader.found) == record["instances"]
    found = reader.resolved(top)
    wanted = flat(record["fields"])
    if record["is_class"]:
        wanted = [record["type"]] + wanted
    # True and false are 1 and 0 here.
    assert found == wanted, (record["type"], found, wanted)


def check_ice(folder, file, expected):
    with open(os.path.join(folder, file["file"]), "rb") as opened:
        raw = opened.read()
    assert len(raw) == file["bytes"]
    has_id, wide = expected["framing"].startswith("id"), expected["framing"].endswith("u64")
    at = 0
    for number, record in enumerate(file["records"]):
        assert record["offset"] == at
        if has_id:
            assert raw[at] == record["id"] == 0
            at += 1
        width = 8 if wide else 4
        length = int.from_bytes(raw[at : at + width], "little")
        at += width + length
        assert length > 0 and raw[at - length : at].hex() == record["payload"]
        assert record["config"] == (number < file["config_records"])
        check_record(record, expected["dialect"], file["layout"])
    assert len(raw) - at == file["cut"]


def check_text(folder, file):
    with open(os.path.join(folder, file["file"]), "rb") as opened:
        lines = opened.read().split(b"\n")
    assert lines.pop() == b""
    if file["name"] == "Power":
        assert [line.hex() for line in lines] == [record["payload"] for record in file["records"]]
        return
    assert len(lines) == len(file["records"]) + 2
    for number, record in enumerate(file["records"], 1):
        path = os.path.join(folder, lines[1].decode(), "image%05d.jpg" % number)
        with open(path, "rb") as picture:
            assert picture.read().hex() == record["payload"]
        assert os.path.join(folder, record["path"]) == path


def check_master(folder, expected):
    with open(os.path.join(folder, expected["master"]), encoding="utf-8") as opened:
        text = opened.read().split("\n")
    start = text.index("#data")
    header = [line.split() for line in text[:start] if line and not line.startswith("#")]
    assert len(header) == len(expected["files"])
    for words, file in zip(header, expected["files"]):
        if expected["dialect"] == "A":
            words = [words[2], words[0], words[1]]
        assert words[:3] == [file["file"], file["interface"], file["encoding"]]
        assert words[3:] == ([] if file["enabled"] is None else [str(int(file["enabled"]))])
    data = [n for n in range(start + 1, len(text)) if text[n].strip() and not text[n].startswith("#")]
    assert [n + 1 for n in data] == [line["line"] for line in expected["lines"]]
    for n, wanted in zip(data, expected["lines"]):
        check_line(text[n].split(), wanted, expected)


def check_line(words, wanted, expected):
    if wanted["outcome"] == "malformed":
        assert len(words) < 4 or not all(word.isdigit() for word in words[:4])
        return
    seconds, useconds, subfile, index = map(int, words[:4])
    assert (seconds, useconds) == (wanted["seconds"], wanted["microseconds"])
    assert wanted["timestamp_ns"] == (seconds * 1_000_000 + useconds) * 1000
    assert (subfile, index) == (wanted["subfile"], wanted["index"])
    if wanted["outcome"] == "event":
        file = expected["files"][subfile]
        data = [record for record in file["records"] if not record["config"]]
        assert data[index - expected["index_base"]]["payload"] == wanted["payload"]


def check_examples():
    """Laser scans of A whose bytes are known: 125 bytes without beams, 1938 with 361."""
    record = Record(random.Random(1), "A", (1, 2), False)
    record.bytes = lambda: record.out.extend(size(0)) or {"hex": ""}
    record.sequence = lambda kind: record.out.extend(size(0)) or []
    raw, _ = record.instance("LaserData")
    known = b"\xff\xff\xff\xff\x01\x01\x00\x00\x00" + b"\x00\x11::orca::LaserData\x05\x00\x00\x00\x00"
    known += b"\x00\x18::orca::RangeScannerData\x0d\x00\x00\x00\x00"
    assert len(raw) == 125 and raw.startswith(known), raw.hex(" ")
    known = b"\x00\x12::orca::OrcaObject\x0c\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00"
    known += b"\x00\x0d::Ice::Object\x05\x00\x00\x00\x00" + b"\x00"
    assert raw.endswith(known), raw.hex(" ")
    beams = 361
    assert len(raw) + 2 * (len(size(beams)) - 1) + beams * (4 + 1) == 1938


def self_check(folder, expected_path):
    with open(expected_path, encoding="utf-8") as file:
        expected = json.load(file)
    check_examples()
    check_master(folder, expected)
    for file in expected["files"]:
        if file["bytes"] is None:
            assert not os.path.exists(os.path.join(folder, file["file"]))
        elif file["encoding"] == "ice":
            check_ice(folder, file, expected)
        elif file["encoding"] in ("ascii", "jpeg"):
            check_text(folder, file)


# ------------------------------------------------------------------ the command line


def arguments():
    parser = argparse.ArgumentParser(description="Writes an Orca log, and says what is in it.")
    add = parser.add_argument
    add("folder", metavar="OUTDIR")
    add("expected", metavar="EXPECTED.json")
    add("--dialect", choices=["A", "B", "C"], required=True)
    add("--prefix", choices=["u32", "u64", "id-u32", "id-u64"], help="of records; u32 in A, else id-u32")
    add("--seed", type=int, default=1)
    add("--lines", type=int, default=60, help="data lines, each with a record")
    add("--repeat", action="store_true", help="lines that refer to records again, and backwards")
    add("--quirks", action="store_true", help="comments, blank lines, lines with more, malformed lines, an index below the first")
    add("--killed", action="store_true", help="lines at the end whose records were not written")
    add("--cut", action="store_true", help="the last record of the first file cut off")
    add("--odd", action="store_true", help="NaN, null classes, instances used twice and in any order, unknown classes")
    add("--missing", action="store_true", help="without the second subfile")
    add("--foreign", action="store_true", help="the last subfile in an encoding that nobody knows")
    add("--disabled", action="store_true", help="the first subfile not enabled (C only)")
    add("--imu-description", action="store_true", help="a description in front of Imu records (C only)")
    add("--self-check", action="store_true", help="read what was written, and compare")
    options = parser.parse_args()
    options.prefix = options.prefix or ("u32" if options.dialect == "A" else "id-u32")
    return options


def main():
    options = arguments()
    os.makedirs(options.folder, exist_ok=True)
    try:
        expected = write(options, random.Random(options.seed))
    except FileExistsError as error:
        sys.exit(f"expected a folder without a log, and found {error.filename}")
    with open(options.expected, "w", encoding="utf-8") as file:
        json.dump(expected, file, indent=1, allow_nan=False)
        file.write("\n")
    if options.self_check:
        self_check(options.folder, options.expected)


if __name__ == "__main__":
    main()
