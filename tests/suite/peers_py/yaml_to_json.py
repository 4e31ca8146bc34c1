"""Prints the documents of YAML files as one JSON array. Exits with 7 if PyYAML is missing.

    yaml_to_json.py FILE…
"""

import json
import sys

try:
    import yaml
except ImportError:
    sys.exit(7)


class Strict(yaml.SafeLoader):
    """Rejects duplicate keys, which others would drop silently."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.constructor.ConstructorError(None, None, "a key is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


documents = []
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        documents += yaml.load_all(file, Strict)
json.dump(documents, sys.stdout)
