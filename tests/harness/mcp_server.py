"""A small MCP server for tests, without any package: ``python mcp_server.py WAY``; WAY says how it is ill."""

from __future__ import annotations

import base64
import json
import os
import sys
import time

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(24)).decode()  # no header follows
SHOT = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (640).to_bytes(4, "big") + (480).to_bytes(4, "big") + bytes(2000)
WHOLE = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
PLAIN = ("fail", "show", "nap", "die", "flood", "big", "data", "shot", "many")
NONE = {"type": "object", "properties": {}}


def laughs():
    defs = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**defs, "d40": {}}}


def deep():
    found: dict = {}
    for _ in range(60):
        found = {"type": "object", "properties": {"a": found}}
    return found


HOSTILE = {
    "good": NONE,
    "bad\u202ename\x1b[2J": NONE,
    "n" * 500: NONE,
    "away": {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}},
    "laughs": laughs(),
    "deep": deep(),
    "kind": {"type": "object", "properties": {"a": {"type": "banana"}}},
    "long": {"type": "object", "description": "x" * 100_000},
    "slow": {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}},
}


def listed(way):
    if way == "hostile":
        return [{"name": name, "inputSchema": schema} for name, schema in HOSTILE.items()]
    if way == "many":
        return [{"name": f"t{i}", "inputSchema": NONE} for i in range(300)]
    if way == "array":
        return [{"name": "x", "inputSchema": {"type": "array"}}]
    if way == "none":
        return []
    return [
        {"name": "add", "description": "Add.", "inputSchema": WHOLE, "annotations": {"readOnlyHint": True}},
        *({"name": name, "inputSchema": NONE} for name in PLAIN),
        {"name": "dots.and/slashes", "inputSchema": NONE},
        {"name": "variable", "inputSchema": {"type": "object", "properties": {"key": {"type": "string"}}}},
    ]


def called(name, given):
    if name == "add":
        return [{"type": "text", "text": str(given["a"] + given["b"])}], False
    if name == "fail":
        return [{"type": "text", "text": "the disk is full"}], True
    if name == "show":
        return [{"type": "text", "text": "a dot:"}, {"type": "image", "data": PNG, "mimeType": "image/png"}], False
    if name == "shot":
        held = {"data": base64.b64encode(SHOT).decode(), "mimeType": "image/jpeg"}
        blob = {"uri": "shot:2", "blob": held["data"], "mimeType": "image/png"}
        said = [{"type": "text", "text": "before"}, {"type": "image", **held}, {"type": "text", "text": "after"}]
        said += [{"type": "resource", "resource": blob}, {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]
        return [*said, {"type": "image", "data": "***", "mimeType": "image/png"}], False
    if name == "many":
        held = {"type": "image", "data": base64.b64encode(SHOT).decode(), "mimeType": "image/png"}
        return [held] * 30, False
    if name == "nap":
        time.sleep(60)
    if name == "die":
        print("out of memory \x1b[31m", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "flood":
        while True:
            sys.stdout.write("x" * 1_000_000)
    if name == "big":
        return [{"type": "text", "text": "y" * 3_000_000}], False
    if name == "variable":
        return [{"type": "text", "text": repr(os.environ.get(given["key"]))}], False
    return [{"type": "text", "text": f"{name} was called"}], False


def main(way):
    if way == "silent":
        time.sleep(60)
    if way == "dies":
        sys.exit("no licence")
    if "=" in way:
        with open(way.partition("=")[2], "a") as file:
            file.write("started\n")
    print("a banner that is no message", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        if asked["method"] == "initialize":
            answer = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}}}
            answer["serverInfo"] = {"name": "toy", "version": "1"}
        elif asked["method"] == "tools/list":
            answer = {"tools": listed(way)}
        elif asked["method"] == "tools/call" and asked["params"]["name"] == "data":
            answer = {"content": [], "structuredContent": {"n": 3}}
        elif asked["method"] == "tools/call":
            content, failed = called(asked["params"]["name"], asked["params"].get("arguments") or {})
            answer = {"content": content, "isError": failed}
        else:
            print(
                json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}),
                flush=True,
            )
            continue
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
