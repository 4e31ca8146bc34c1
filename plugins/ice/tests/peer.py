"""Records as Ice itself writes them, and what is in them.

Takes a description of types as JSON from standard input, makes values of them, and has Ice write them in encoding
1.0. Gives a line of JSON for each: the type, the record in hexadecimal digits, and the value as columns have it.
"""

import base64
import json
import os
import random
import sys
import tempfile

import Ice

asked = json.load(sys.stdin)
types = asked["types"]
dice = random.Random(asked["seed"])
# The instances of the record that is being made; others may refer to them, too, unless a part that is not known may.
complete = []
may_share = all(t["is_known"] for t in types.values() if t["kind"] == "class")


def named(name):
    first, *rest = name.split("::")[1:]
    found = __import__(first)
    for part in rest:
        found = getattr(found, part)
    return found


def line_of(name):
    """A class and what it extends, the root first."""
    line = []
    while name is not None:
        line.insert(0, name)
        name = types[name]["base"]
    return line


def count():
    return dice.choice([0, 1, 2, 3, dice.randrange(6), 300 if dice.random() < 0.02 else 1])


def text():
    letters = "ab \\xüß€😀"
    return "".join(dice.choice(letters) for _ in range(count()))


def whole(bits):
    return dice.choice([0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), dice.getrandbits(bits - 1)])


BUILTIN = {
    "bool": lambda: dice.random() < 0.5,
    "byte": lambda: dice.randrange(256),
    "short": lambda: whole(16),
    "int": lambda: whole(32),
    "long": lambda: whole(64),
    "float": lambda: dice.randrange(-1000, 1000) / 8,
    "double": lambda: dice.randrange(-10**9, 10**9) / 1024,
    "string": text,
}


def members(names, target):
    """Fills the members of a struct or class in; gives them as columns have them."""
    shown = {}
    for name, of in names:
        value, shown[name] = made(of)
        setattr(target, name, value)
    return shown


def made(of, may_be_null=True):
    """A value and how columns have it."""
    if of in BUILTIN:
        value = BUILTIN[of]()
        return value, value
    kind = types[of]["kind"]
    if kind == "enum":
        value = dice.choice(types[of]["values"])
        return named(of).valueOf(value), value
    if kind == "struct":
        target = named(of)()
        return target, members(types[of]["members"], target)
    if kind == "sequence":
        item = types[of]["of"]
        if item == "byte":
            value = bytes(dice.randrange(256) for _ in range(count()))
            return value, base64.b64encode(value).decode()
        values = [made(item) for _ in range(count())]
        return [value for value, _ in values], [shown for _, shown in values]
    if kind == "dictionary":
        key, value = types[of]["key"], types[of]["value"]
        target, shown = {}, []
        for _ in range(count()):
            own, own_shown = made(key)
            if own not in target:
                target[own], value_shown = made(value)
                shown.append({"key": own_shown, "value": value_shown})
        return target, shown
    return instance(of, may_be_null)


def instance(of, may_be_null=True):
    if may_be_null and dice.random() < 0.2:
        return None, None
    derived = [name for name, t in types.items() if t["kind"] == "class" and of in line_of(name)]
    if may_be_null and may_share and dice.random() < 0.1:
        shared = [(target, shown) for own, target, shown in complete if own in derived]
        if shared:
            return dice.choice(shared)
    own = dice.choice(sorted(derived))
    if not may_be_null:
        own = of
    target, shown = named(own)(), {}
    for part in line_of(own):
        more = members(types[part]["members"], target)
        if types[part]["is_known"]:
            shown.update(more)
            shown["@class"] = part.split("::")[-1]
    complete.append((own, target, shown))
    return target, shown


class Kept(Ice.Blobject):
    def ice_invoke(self, encapsulation, current):
        # Six bytes in front say how long it is, and in which encoding.
        self.record = bytes(encapsulation[6:])
        assert tuple(encapsulation[4:6]) == (1, 0), encapsulation[4:6]
        return True, b""


def main():
    tops = asked["tops"]
    takes = "\n".join(f"  void take{n}({top} value);" for n, top in enumerate(tops))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "peer_takes.ice")
        with open(path, "w") as out:
            # The last one includes the others.
            out.write(f"#include \"{asked['files'][-1]}\"\nmodule peertakes {{ interface Taker {{\n{takes}\n}}; }};\n")
        Ice.loadSlice("", ["--all", "-I" + asked["folder"], path])
    import peertakes

    settings = Ice.InitializationData()
    settings.properties = Ice.createProperties()
    settings.properties.setProperty("Ice.ThreadPool.Server.SizeMax", "1")
    with Ice.initialize(settings) as communicator:
        adapter, kept = communicator.createObjectAdapter(""), Kept()
        adapter.activate()
        taker = peertakes.TakerPrx.uncheckedCast(adapter.addWithUUID(kept))
        taker = taker.ice_encodingVersion(Ice.Encoding_1_0)
        for n, top in enumerate(tops):
            for _ in range(asked["count"]):
                complete.clear()
                value, shown = made(top, may_be_null=False)
                getattr(taker, f"take{n}")(value)
                record = kept.record
                # Without classes there is no list of instances in a call; a stream ends with an empty one.
                if not asked["has_list"][n]:
                    record += b"\0"
                print(json.dumps({"type": top, "record": record.hex(), "value": shown}))


main()
