"""Generates random types, and messages of them with the Python code of lcm-gen.

Arguments: lcm-gen, the seed, the number of types. In the working directory it creates

  types/          .lcm files in folders and packages
  in.lcm          a log with one channel per type
  expected.jsonl  for each event: its channel and fields, as in `sluice cat --json`
"""

import base64
import importlib
import io
import json
import math
import random
import re
import struct
import subprocess
import sys
from pathlib import Path

import lcm

gen, seed, cases = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
COUNTING = {"int8_t": 8, "int16_t": 16, "int32_t": 32, "int64_t": 64}
PRIMITIVES = [*COUNTING, "byte", "float", "double", "string", "boolean"]
PACKAGES = ["", "a", "b.c", "b.d.e", "größen"]
# A recursive type is decoded one level deep, and kept as bytes below.
DEPTH = 1
# Types are nested up to three levels.
DEEPEST = 3


class Type:
    def __init__(self, number, package):
        self.name = f"{package}.t{number}" if package else f"t{number}"
        self.package, self.short = package, f"t{number}"
        self.depth = 0


class Enum(Type):
    def __init__(self, number, package):
        super().__init__(number, package)
        names = ["ZERO", "LEAST", "MOST", "OTHER"]
        values = dict(zip(names, [0, -(2**31), 2**31 - 1, rng.randrange(1, 100)]))
        self.values = {name: values[name] for name in names if rng.random() < 0.7}

    def text(self):
        values = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        return f"enum {self.short} {{ {values} }}\n"


class Struct(Type):
    def __init__(self, number, package, before):
        super().__init__(number, package)
        self.constants, self.members = {}, []
        near = [t for t in before if not (t.package == "") or package == ""]
        # The first ones have every feature, whatever the seed.
        wanted = PRIMITIVES if number < 4 else []
        for _ in range(rng.choice([1, 2, 4, 7]) if number % 20 != 8 else 0) if not wanted else wanted:
            of = wanted[len(self.members) % len(wanted)] if wanted else rng.choice(PRIMITIVES)
            fitting = [t for t in near if t.depth < DEEPEST]
            if not wanted and fitting and rng.random() < 0.4:
                of = rng.choice(fitting)
            self.add(of, rng.choice([0, 0, 1, 1, 2, 3]))
        if not wanted and rng.random() < 0.15:
            self.add(self, 1, only_counted=True)

    def add(self, of, dimensions, only_counted=False):
        dims = []
        for _ in range(dimensions):
            kind = 2 if only_counted else rng.randrange(4)
            if kind == 0:
                # Arrays are read differently depending on their length.
                is_small = dimensions == 1 and (of in PRIMITIVES or of.depth == 0)
                dims.append(rng.choice([1, 2, 3, 4, *([20, 70] if is_small else [])]))
            elif kind == 1:
                name = f"CONST_{self.short}_{len(self.constants)}"
                self.constants[name] = rng.choice([0, 1, 2, 3, 3])
                dims.append(name)
            else:
                counts = [m for m, t, d in self.members if t in COUNTING and not d and m[0] == "n"]
                if counts and rng.random() < 0.5:
                    dims.append(rng.choice(counts))
                else:
                    count = f"n{len(self.members)}_{self.short}"
                    self.members.append((count, rng.choice(list(COUNTING)), []))
                    dims.append(count)
        letters = rng.choice(["m", "value", "großer_wert", "x" * 130])
        self.members.append((f"{letters}{len(self.members)}_{self.short}", of, dims))
        if isinstance(of, Type) and of is not self:
            self.depth = max(self.depth, of.depth + 1)

    def text(self):
        lines = [f"struct {self.short}", "{"]
        for name, value in self.constants.items():
            lines.append(f"    const {rng.choice(list(COUNTING))} {name} = {value};")
        for name, of, dims in self.members:
            if isinstance(of, Type):
                near = of.package == self.package and rng.random() < 0.5
                of = of.short if near or not of.package else of.name
            lines.append(f"    {of} {name}" + "".join(f"[{size}]" for size in dims) + ";")
        return "\n".join(lines) + "\n}\n"

    def has_nothing(self, of, dims):
        """Whether a member takes no bytes, however many elements it has."""
        is_empty = isinstance(of, Struct) and of is not self and not of.takes_bytes()
        return is_empty or any(self.constants.get(size) == 0 for size in dims)

    def takes_bytes(self):
        return not all(self.has_nothing(of, dims) for _, of, dims in self.members)


def declare():
    """The types, in several files; those in a file belong to one package."""
    files = [(PACKAGES[n % len(PACKAGES)], f"{'x/y/' * rng.randrange(2)}file{n}.lcm") for n in range(7)]
    types, texts = [], {file: [] for file in files}
    for number in range(cases):
        package, file = rng.choice(files)
        new = Enum(number, package) if number % 10 == 9 else Struct(number, package, types)
        types.append(new)
        texts[package, file].append(new.text())
    for (package, file), declared in texts.items():
        path = Path("types", file)
        path.parent.mkdir(parents=True, exist_ok=True)
        rng.shuffle(declared)
        path.write_text((f"package {package};\n" if package else "") + "\n".join(declared))
        subprocess.run([gen, "-p", "--ppath", "made", str(path)], check=True)
    return types


def load(types):
    sys.path.insert(0, "made")
    plain = {}
    for t in types:
        t.module = importlib.import_module(t.package or t.short)
        t.of = getattr(t.module, t.short)
        if not t.package:
            plain[t.short] = t.of
        if isinstance(t, Enum):
            # Generated enums need a value to be constructed, but structs construct them without.
            t.of.__init__.__defaults__ = (0,)
    for t in types:
        if not t.package:
            # And without a package, generated code names modules instead of classes.
            vars(t.module).update(plain)


def number(bits):
    some = [0, 1, -1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    return rng.choice([*some, rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))])


def floating(form):
    """Any number of this form, often an edge case; NaN with any payload."""
    size, wide = struct.calcsize(form), form == ">d"
    least, most = (5e-324, sys.float_info.max) if wide else (2**-149, (2 - 2**-23) * 2.0**127)
    some = [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, least, -least, most, -most, 0.1, 1e16]
    bits = [rng.randbytes(size), b"\x7f\xf8" + rng.randbytes(6) if wide else b"\xff\xc0" + rng.randbytes(2)]
    drawn = rng.choice([struct.pack(form, rng.choice(some)), *bits])
    return struct.unpack(form, drawn)[0]


TEXTS = ["", "a", "größe", "\u540d\u524d \U0001f916", "zero \0 inside", '"quoted"\n\t\\', "C:\\dir\\new", "\\x41 \\xZZ \\\\xff", "%s {}", "\ufeff", "x" * 5000]


def primitive(of):
    match of:
        case "byte":
            return rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        case "float":
            return floating(">f")
        case "double":
            return floating(">d")
        case "boolean":
            return rng.random() < 0.5
        case "string":
            return rng.choice(TEXTS)
        case _:
            return number(COUNTING[of])


def sized(of, bits):
    """A count: small for structs, sometimes large for small elements."""
    if of in ("byte", "int8_t", "float", "double", "string") and rng.random() < 0.05:
        return min(300, 2 ** (bits - 1) - 1)
    return rng.choice([0, 0, 1, 2, 3])


def message(t, depth=0):
    """A message of a type, with random values."""
    if isinstance(t, Enum):
        return t.of(number(32))
    new = t.of()
    counted = {}
    for name, of, dims in t.members:
        for size in dims:
            deep = of is t and depth >= rng.randrange(1, 4)
            counted[size] = min(counted.get(size, 300), 0 if deep else 3 if len(dims) > 1 or isinstance(of, Type) else 300)
    for name, of, dims in t.members:
        if name in counted:
            sole = [o for _, o, d in t.members if name in d]
            value = min(counted[name], sized(sole[0], COUNTING[of]))
        else:
            value = array(t, new, of, dims, depth)
        setattr(new, name, value)
    return new


def size_of(t, new, size):
    return size if isinstance(size, int) else t.constants[size] if size in t.constants else getattr(new, size)


def array(t, new, of, dims, depth):
    if not dims:
        return message(of, depth + 1) if isinstance(of, Type) else primitive(of)
    size = size_of(t, new, dims[0])
    if of == "byte" and len(dims) == 1:
        return rng.randbytes(size)
    return [array(t, new, of, dims[1:], depth) for _ in range(size)]


def in_base64(data):
    return base64.b64encode(data).decode()


def shown(value):
    """A primitive as in `sluice cat --json`."""
    if isinstance(value, bytes):
        return in_base64(value)
    if isinstance(value, str):
        # Text that looks like an escaped byte.
        return re.sub(r"\\(?=x[0-9a-f]{2})", r"\\x5c", value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def fields(t, new, path=()):
    """The fields of a message as in `sluice cat --json`, without those that take no bytes."""
    if isinstance(t, Enum):
        return new.value if path else {"value": new.value}
    shows = {}
    for name, of, dims in t.members:
        if t.has_nothing(of, dims):
            continue
        shows[name] = elements(t, of, len(dims), getattr(new, name), path + (t,))
    return shows


def elements(t, of, dims, value, path):
    if dims and not isinstance(value, bytes):
        return [elements(t, of, dims - 1, part, path) for part in value]
    if not isinstance(of, Type):
        return shown(value)
    if path.count(of) > DEPTH:
        kept = io.BytesIO()
        value._encode_one(kept)
        return in_base64(kept.getvalue())
    return fields(of, value, path)


types = declare()
load(types)
log = lcm.EventLog("in.lcm", "w", overwrite=True)
with open("expected.jsonl", "w") as expected:
    time = 1_194_098_400_000_000
    # A type without columns is only in tables with metadata.
    sent = [t for t in types if isinstance(t, Enum) or t.takes_bytes()]
    # Many of one type: they are read a few hundred at a time.
    many = rng.choice([t for t in sent if t.depth == 0])
    events = [t for t in sent for _ in range(600 if t is many else rng.randrange(1, 6))]
    rng.shuffle(events)
    for t in events:
        new = message(t)
        log.write_event(time, f"CH_{t.name}", new.encode())
        expected.write(json.dumps({"channel": f"CH_{t.name}", "fields": fields(t, new)}) + "\n")
        time += rng.randrange(0, 5000)
log.close()
