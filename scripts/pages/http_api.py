"""The reference page of the HTTP API, from the server's OpenAPI description."""

from __future__ import annotations

import json
from typing import Any, cast

from pumit.server.app import create_app
from pumit.server.sessions.engine import SegmenterEngine

_INTRODUCTION = """# The HTTP API

This page is generated from the server's description (`/openapi.json`, with the bearer token; also a
file: [openapi.json](openapi.json)). Every request except `/healthz` and `/readyz` carries
`Authorization: Bearer TOKEN`. A refusal is JSON with one sentence under `detail`.

Requests that compute (`predict`, `segment_automatically`, `find`, `reconstruct`) are answered with
a stream, `application/x-pumit-stream`. It begins with lines of JSON, each ended by a newline:

```
{"progress":0.25}
{"progress":0.75}
{"bytes":12345}
```

`progress` comes about ten times a second. `bytes` is the size of the result, which follows.
If the request fails, the last line is `{"status":409,"detail":"...","error":"Cancelled"}`, with the
status and the JSON of any other refusal. Close the connection to cancel. A newer request for the
same segment cancels the earlier one.

Endpoints under `/pumit/v3` are PUMIT's own; the others are the protocol of nnInteractive 2.6.
[Versions](versions.md) states what a version promises.
"""


def description() -> dict[str, Any]:
    """Return the server's OpenAPI description."""
    # The engine is used only when a server starts, which this one does not.
    app = create_app(cast(SegmenterEngine, None), token="described, not served")
    return app.openapi()


def as_json() -> str:
    """Return the description as JSON text."""
    return json.dumps(description(), indent=1) + "\n"


def page() -> str:
    """Return the Markdown of all endpoints and types."""
    specification = description()
    parts = [_INTRODUCTION]
    for path, methods in specification["paths"].items():
        for method, operation in methods.items():
            parts.append(f"## {method.upper()} {path}\n")
            parts.append((operation.get("description") or operation.get("summary", "")) + "\n")
            parts.extend(_parameters(operation))
            parts.extend(_body(operation))
            parts.append(_answers(operation))
    parts.append("## Types\n")
    for name, schema in sorted(specification.get("components", {}).get("schemas", {}).items()):
        parts.append(f"### {name}\n")
        parts.append(schema.get("description", "") + "\n")
        parts.extend(_properties(schema))
    return "\n".join(parts)


def _parameters(operation: dict[str, Any]) -> list[str]:
    rows = [
        f"| `{p['name']}` | {p['in']} | {_type(p.get('schema', {}))} | {p.get('description', '')} |"
        for p in operation.get("parameters", [])
    ]
    return _table("| parameter | in | type | meaning |", rows)


def _body(operation: dict[str, Any]) -> list[str]:
    kinds = operation.get("requestBody", {}).get("content", {})
    return [f"Body: `{kind}`, {_type(c.get('schema', {}))}.\n" for kind, c in kinds.items()]


def _answers(operation: dict[str, Any]) -> str:
    rows = []
    for status, answer in operation["responses"].items():
        kinds = ", ".join(
            f"`{kind}` {_type(content.get('schema', {}))}".strip()
            for kind, content in answer.get("content", {}).items()
        )
        rows.append(f"| {status} | {answer.get('description', '')} | {kinds} |")
    return "\n".join(_table("| status | meaning | body |", rows))


def _properties(schema: dict[str, Any]) -> list[str]:
    required = schema.get("required", [])
    rows = [
        f"| `{name}` | {_type(of)} | {'yes' if name in required else ''} "
        f"| {of.get('description', '')} |"
        for name, of in schema.get("properties", {}).items()
    ]
    return _table("| key | type | required | meaning |", rows)


def _table(head: str, rows: list[str]) -> list[str]:
    if not rows:
        return []
    flat = [" ".join(row.split()) for row in rows]
    return ["\n".join([head, "|---" * (head.count("|") - 1) + "|", *flat]) + "\n"]


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {_type(schema.get('items', {})) or 'anything'}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    return schema.get("format") or schema.get("type", "")
