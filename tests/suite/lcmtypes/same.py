"""Compares `shown.jsonl`, the output of `sluice cat --json`, with `expected.jsonl` in the working
directory. Numbers must be equal to the bit; 32-bit floats have the fewest digits that identify them.
"""

import json
import struct


def is_short(value):
    try:
        return struct.unpack(">f", struct.pack(">f", value))[0] == value
    except OverflowError:
        return False


def compare(shown, expected, where):
    assert type(shown) is type(expected), (where, shown, expected)
    if isinstance(shown, dict):
        assert list(shown) == list(expected), (where, list(shown), list(expected))
        for name in shown:
            compare(shown[name], expected[name], f"{where}.{name}")
    elif isinstance(shown, list):
        assert len(shown) == len(expected), (where, len(shown), len(expected))
        for n, (a, b) in enumerate(zip(shown, expected)):
            compare(a, b, f"{where}[{n}]")
    elif isinstance(shown, float) and is_short(expected):
        assert struct.pack(">f", shown) == struct.pack(">f", expected), (where, shown, expected)
    else:
        # As text, in which 0.0 and -0.0 differ.
        assert repr(shown) == repr(expected), (where, shown, expected)


events = zip(open("shown.jsonl"), open("expected.jsonl"), strict=True)
for n, (shown, expected) in enumerate(events):
    shown, expected = json.loads(shown), json.loads(expected)
    assert shown["channel"] == expected["channel"], n
    compare(shown.get("fields"), expected["fields"], f"{n} {expected['channel']}: ")
