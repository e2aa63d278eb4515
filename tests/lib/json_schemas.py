"""JSON Schemas that refuse every key without a description: tests compare what commands print with them."""

import json

import jsonschema


def objects(schema):
    """Yields each part of a schema that names keys of an object."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict) and "object" in (schema.get("type") or ()):
            yield schema
        for part in schema.values():
            yield from objects(part)


def validate(text, printed):
    """Validates what a command printed: it fits its schema, and has no key that the schema does not name."""
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    for one in objects(schema):
        one["additionalProperties"] = False
    jsonschema.Draft202012Validator(schema).validate(printed)
