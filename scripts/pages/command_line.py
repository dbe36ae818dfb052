"""The reference page of the command line, from the argument parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from importlib import import_module

from pumit.cli.main import COMMANDS, Help

_INTRODUCTION = """# The command line

This page is generated from the program (`python scripts/write_reference.py`). `pumit --version`
prints the version, and `pumit --verbose COMMAND` logs to standard error. A failed command prints
one line with the reason, returns exit status 2 and leaves no half-written file. After Ctrl+C the
status is 130.
"""


def page() -> str:
    """Return the Markdown of every command with its arguments."""
    parts = [_INTRODUCTION]
    for name, (module, help_line) in COMMANDS.items():
        parser = argparse.ArgumentParser(prog=f"pumit {name}", add_help=False)
        import_module(module).add_arguments(parser)
        parts.append(f"## pumit {name}\n\n{help_line[0].upper()}{help_line[1:]}.\n")
        parts.extend(_described(parser))
    return "\n".join(parts)


def _described(parser: argparse.ArgumentParser) -> Iterator[str]:
    # argparse wraps lines to the terminal's width; unwrap them for the page.
    usage = re.sub(r"\s+", " ", parser.format_usage()).removeprefix("usage: ").strip()
    yield f"```text\n{usage}\n```\n"
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{_value(action)}`"
        if action.option_strings and action.nargs != 0:
            names += f" `{_value(action)}`"
        rows.append(f"| {names} | {_help(action)} |")
    if rows:
        yield "\n".join(["| argument | meaning |", "|---|---|", *rows]) + "\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help for choice in action._choices_actions}
            for name, sub in action.choices.items():
                yield f"### {sub.prog}\n\n{_plain(helps.get(name) or sub.description or '')}\n"
                yield from _described(sub)


def _value(action: argparse.Action) -> str:
    if action.choices is not None and action.metavar is None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    shown = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    return " ".join(shown) if isinstance(shown, tuple) else shown


def _help(action: argparse.Action) -> str:
    text = Help("")._get_help_string(action) or ""
    if "%(" in text:
        text %= {**vars(action), "prog": ""}
    return _plain(text.replace("%%", "%"))


def _plain(text: str) -> str:
    """Escape Markdown in a text."""
    text = re.sub(r"\s+", " ", text)
    return re.sub(r"([|<*_\[\]])", r"\\\1", text)
