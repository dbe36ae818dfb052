"""What SECURITY.md promises is what the program does."""

from __future__ import annotations

import argparse
import ast
import re
from dataclasses import fields
from pathlib import Path

import pumit.server
from app_client import make_client
from pumit.server.serve import add_arguments
from pumit.server.sessions.limits import GIB, Limits

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
MODULES = sorted(Path(pumit.server.__file__).parent.rglob("*.py"))


def log_lines(module):
    """First texts of all calls of a module's logger."""
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in ("logger", "logging")
            and node.func.attr in ("debug", "info", "warning", "error", "exception", "log")
        ):
            yield next(
                (a.value for a in node.args if isinstance(a, ast.Constant)), "a line made up"
            )


def test_every_line_that_the_server_may_log_is_on_the_page():
    lines = [line for module in MODULES for line in log_lines(module)]
    assert len(lines) >= 5
    assert [line for line in lines if f"`{line}`" not in PAGE] == []


def test_every_limit_is_on_the_page_with_its_option():
    table = dict(re.findall(r"^\| `(\w+)` \|(.*)$", PAGE, re.MULTILINE))
    assert set(table) == {field.name for field in fields(Limits)}
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = set(parser.format_help().replace("[", " ").replace("]", " ").split())
    stated = set(re.findall(r"`(--[a-z-]+)`", PAGE))
    assert stated - {"--verbose"} <= options


def test_the_defaults_are_those_on_the_page():
    table = dict(re.findall(r"^\| `(\w+)` \|(.*)$", PAGE, re.MULTILINE))
    units = {"s": 1, "MiB": 1 << 20, "KiB/s": 1 << 10, "GiB": GIB, "": 1}
    for name, row in table.items():
        stated = re.fullmatch(
            r"([\d ]+)(?: (s|MiB|GiB|KiB/s))?(?: \+ 16 MiB)?", row.split("|")[0].strip()
        )
        if stated is not None:
            value = int(stated[1].replace(" ", "")) * units[stated[2] or ""]
            value += (16 << 20) * ("+ 16 MiB" in row)
            assert getattr(Limits(), name) == value, name


def test_a_browser_gets_no_permission_and_no_cookie():
    with make_client() as http:
        origin = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
        for method, path in [("GET", "/healthz"), ("OPTIONS", "/claim"), ("POST", "/claim")]:
            answer = http.request(method, path, headers=origin)
            names = {name.lower() for name in answer.headers}
            assert not {name for name in names if name.startswith("access-control")}
            assert "set-cookie" not in names


def test_leases_are_long_random_and_never_told_again():
    with make_client(max_sessions=3) as http:
        leases = [http.post("/claim").json()["lease_token"] for _ in range(3)]
        assert len(set(leases)) == 3
        assert all(len(lease.rpartition(".")[2]) >= 43 for lease in leases)  # 256 bits
        for path in ("/capabilities", "/openapi.json"):
            stated = http.get(path).text
            assert not [lease for lease in leases if lease in stated]
