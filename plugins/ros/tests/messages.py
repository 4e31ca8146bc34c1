"""Prints messages with random values, one JSON object each, that PyPI `rosbags` has encoded."""

import base64
import functools
import json
import random

import numpy
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_idl, get_typestore

random.seed(7)
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
NUMPY = {"bool": numpy.bool_, "byte": numpy.uint8, "octet": numpy.uint8, "char": numpy.uint8}


def primitive(name):
    """A random value."""
    if name == "string":
        return "".join(random.choice("abc/ \u00e4\u20ac") for _ in range(random.randrange(6)))
    if name == "bool":
        return random.random() < 0.5
    if name in ("float32", "float64"):
        return float(random.randrange(-1000, 1000)) / 8
    if name in INTEGERS:
        return random.randrange(-(2 ** (INTEGERS[name] - 1)), 2 ** (INTEGERS[name] - 1))
    # Programs disagree on the sign of `byte` and `char`.
    bits = {"uint8": 8, "byte": 7, "octet": 7, "char": 7, "uint16": 16, "uint32": 32}
    return random.randrange(2 ** bits.get(name, 64))


class Skip(Exception):
    """A type that is not compared."""


def is_bytes(name):
    return name in ("uint8", "octet", "char", "byte")


def value(store, kind, args, generation):
    """A random value, and what it is as JSON."""
    if kind == Nodetype.BASE:
        name = args[0]
        if name == "wstring" or (generation == "ros1" and name in ("byte", "octet")):
            raise Skip
        made = primitive(name)
        return made, made
    if kind == Nodetype.NAME:
        return message(store, args, generation)
    (inner, inner_args), size = args[0], args[1]
    count = size if kind == Nodetype.ARRAY else random.randrange(4)
    made = [value(store, inner, inner_args, generation) for _ in range(count)]
    values, plain = [one for one, _ in made], [one for _, one in made]
    if None in plain:
        raise Skip
    if inner == Nodetype.BASE and inner_args[0] != "string":
        name = inner_args[0]
        if generation == "ros1" and name in ("byte", "octet"):
            raise Skip
        values = numpy.array(values, dtype=NUMPY.get(name, name))
        if is_bytes(name):
            return values, base64.b64encode(bytes(plain)).decode()
    return values, plain


def message(store, name, generation):
    """A random message, and what it is as JSON."""
    _, fields = store.fielddefs[name]
    made = {}
    for field, (kind, args) in fields:
        made[field] = value(store, kind, args, generation)
    plain = {field: one for field, (_, one) in made.items() if one is not None}
    if generation == "ros1":
        # Types without members take no bytes, and have no columns.
        plain.pop("structure_needs_at_least_one_member", None)
        plain = plain or None
        if name == "builtin_interfaces/msg/Time":
            made["sec"] = (abs(made["sec"][0]), abs(made["sec"][0]))
        if name.startswith("builtin_interfaces/"):
            fraction = made["nanosec"][0] % 2**31
            made["nanosec"] = (fraction, fraction)
            plain = {"sec": made["sec"][1], "nsec": fraction}
    return store.types[name](**{field: one for field, (one, _) in made.items()}), plain


IDL = {"bool": "boolean", "byte": "octet", "float32": "float", "float64": "double"}


def element(kind, args, used):
    """A type that is no array, in IDL."""
    if kind == Nodetype.NAME:
        used.append(args)
        return args.replace("/", "::")
    name, bound = args
    return f"{name}<{bound}>" if bound else IDL.get(name, name)


@functools.cache
def struct(store, name):
    """A type in IDL, which rosbags reads as the same type, and the types that it uses."""
    used = []
    typedefs, members = "", ""
    constants, fields = store.fielddefs[name]
    for field, (kind, args) in fields:
        if kind in (Nodetype.ARRAY, Nodetype.SEQUENCE):
            of, size = element(*args[0], used), args[1]
            if kind == Nodetype.ARRAY:
                alias = f"{of.replace('::', '__')}__{size}"
                typedefs += f"    typedef {of} {alias}[{size}];\n"
            else:
                alias = f"sequence<{of}, {size}>" if size else f"sequence<{of}>"
        else:
            alias = element(kind, args, used)
        members += f'      @verbatim (language="comment", text="a }}" "b")\n'
        members += f"      {alias} {field};\n"
    package, middle, short = name.split("/")
    if constants:
        lines = "".join(f"      const int32 {one[0]} = 1;\n" for one in constants)
        typedefs += f"    module {short}_Constants {{\n{lines}    }};\n"
    text = (
        f"// generated\nmodule {package} {{\n  module {middle} {{\n{typedefs}"
        f"    struct {short} {{\n{members}    }};\n  }};\n}};\n"
    )
    read = get_types_from_idl(text)[name][1]
    assert [one for one, _ in read] == [one for one, _ in fields], name
    assert str(read) == str(fields), (name, read, fields)
    return text, used


def idl(store, name):
    """A type and those that it uses, as recorders write them."""
    used, text, at = [name], "", 0
    while at < len(used):
        if used[at] not in used[:at]:
            own, more = struct(store, used[at])
            text += "=" * 80 + f"\nIDL: {used[at]}\n" + own
            used += more
        at += 1
    return text


for generation, stores in (("ros2", Stores.ROS2_HUMBLE), ("ros1", Stores.ROS1_NOETIC)):
    store = get_typestore(stores)
    for name in sorted(store.fielddefs):
        if "/msg/" not in name or (generation == "ros1" and name.startswith("builtin_")):
            continue
        for _ in range(3):
            try:
                made, plain = message(store, name, generation)
            except Skip:
                continue
            version = 1 if generation == "ros1" else 2
            text, _ = store.generate_msgdef(name, ros_version=version)
            if generation == "ros1":
                payload = store.serialize_ros1(made, name)
            else:
                payload = store.serialize_cdr(made, name, little_endian=random.random() < 0.8)
            print(json.dumps({
                "generation": generation, "name": name, "text": text,
                "idl": idl(store, name) if generation == "ros2" else None,
                "payload": bytes(payload).hex(), "values": plain or {},
            }))
