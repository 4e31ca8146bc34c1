"""The classes that lcm-gen made, by fingerprint, and the Arrow types of their fields."""

import importlib
import sys
from operator import attrgetter
from pathlib import Path

import pyarrow as pa

NUMBERS = {
    "int8_t": pa.int8(),
    "int16_t": pa.int16(),
    "int32_t": pa.int32(),
    "int64_t": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "byte": pa.uint8(),
    "string": pa.string(),
}


def of_folder(folder):
    """All classes of a folder, by the first eight bytes of their messages."""
    sys.path.insert(0, str(folder))
    found = {}
    for path in Path(folder).glob("*/[!_]*.py"):
        of = class_of(f"{path.parent.name}.{path.stem}")
        found[of._get_packed_fingerprint()] = of
    return found


def class_of(name):
    package, short = name.rsplit(".", 1)
    return getattr(importlib.import_module(package), short)


def arrow_type(name, sizes):
    """The type of a field: sizes make lists, and the innermost makes a binary of bytes."""
    of = NUMBERS.get(name)
    if of is None:
        of = pa.struct([(field, arrow_type(*form)) for field, form in forms(class_of(name))])
    sizes = sizes or []
    if name == "byte" and sizes:
        of, sizes = pa.binary(), sizes[:-1]
    for _ in sizes:
        of = pa.list_(of)
    return of


def forms(of):
    """The fields of a class: name and type."""
    return zip(of.__slots__, zip(of.__typenames__, of.__dimensions__))


class Columns:
    """Converts messages of a class to columns."""

    def __init__(self, of):
        self.schema = pa.schema([(field, arrow_type(*form)) for field, form in forms(of)])
        self.takes = [taking(field, *form) for field, form in forms(of)]

    def lists(self, messages):
        """A list of values for each field."""
        return [take(messages) for take in self.takes]


def taking(field, name, sizes):
    """A function from messages to a list of the values of one field."""
    get = attrgetter(field)
    if name in NUMBERS:
        return lambda messages: list(map(get, messages))
    plain = as_dict(class_of(name))
    for _ in sizes or []:
        plain = each(plain)
    return lambda messages: [plain(get(message)) for message in messages]


def as_dict(of):
    takes = [(field, taking(field, *form)) for field, form in forms(of)]
    if all(form[0] in NUMBERS for _, form in forms(of)):
        # Its elements need no conversion.
        return lambda value: {field: getattr(value, field) for field in of.__slots__}
    return lambda value: {field: take([value])[0] for field, take in takes}


def each(plain):
    return lambda values: [plain(value) for value in values]
