# Validates pipeline files against a JSON Schema: reads {"schema": …, "files": {name: text}} from the
# given file, and prints the errors of each as {name: [[place, message], …]}.
import json
import sys
import tomllib

from jsonschema import Draft202012Validator

with open(sys.argv[1]) as file:
    asked = json.load(file)
Draft202012Validator.check_schema(asked["schema"])
validator = Draft202012Validator(asked["schema"])


def mistakes(text):
    found = validator.iter_errors(tomllib.loads(text))
    return sorted(["/".join(map(str, each.absolute_path)), each.message] for each in found)


print(json.dumps({name: mistakes(text) for name, text in asked["files"].items()}))
