"""Entry point of `pumit`: one module per subcommand, one line per error."""

import argparse
import errno
import logging
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pumit import __version__
from pumit.cli.shared.output import QUIET_VARIABLE
from pumit.errors import PumitError
from pumit.system.machine import share_heaps, wait_asleep
from pumit.system.optional import what_is_missing
from pumit.system.out_of_memory import is_out_of_memory

logger = logging.getLogger(__name__)

# name: (module with `add_arguments` and `run`, one line of help). A module is imported only when
# its command is requested.
COMMANDS = {
    "demo": ("pumit.cli.demo", "segment a generated scan: mask, DICOM-SEG and picture"),
    "sample": ("pumit.cli.sample", "make generated scans to try the commands with"),
    "segment": ("pumit.cli.segment", "segment a scan from points, boxes or a markups file"),
    "view": ("pumit.cli.view", "open a scan in the browser and segment it by clicks"),
    "info": ("pumit.cli.info", "show size, position and modality of a scan, and a point to click"),
    "follow-up": (
        "pumit.cli.follow_up",
        "find the lesions of one scan in a later one, and compare",
    ),
    "predict": ("pumit.cli.predict", "segment or classify scans automatically, one or many"),
    "reconstruct": ("pumit.cli.reconstruct", "encode and decode a scan with a tokenizer"),
    "models": ("pumit.cli.models", "list, verify, fetch, add, export, import or remove models"),
    "campaign": ("pumit.cli.campaign", "label a folder of scans with a model that learns from it"),
    "data": ("pumit.cli.data", "check labelled scans before training"),
    "train": ("pumit.cli.train", "train a network on your own labelled scans"),
    "compare": (
        "pumit.cli.compare",
        "train networks under equal conditions and compare them on one page",
    ),
    "plan": ("pumit.cli.plan", "plan a training for your data and machine, with time and memory"),
    "runs": ("pumit.cli.runs", "list trainings; pause, resume or stop one"),
    "pretrain": ("pumit.cli.pretrain", "pre-train without labels"),
    "evaluate": ("pumit.cli.evaluate", "score clicks of a simulated user, or compare label maps"),
    "serve": ("pumit.server.serve", "serve segmentation over HTTP, for Slicer and other viewers"),
}


class Help(argparse.HelpFormatter):
    """Help formatter that shows every default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text, default = action.help or "", action.default
        is_told = "default" in text or f"({default}" in text
        if default in (None, False, argparse.SUPPRESS, "") or default == [] or is_told:
            return text
        return f"{text} (%(default)s)"


class _Parser(argparse.ArgumentParser):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": Help, **kwargs})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, surplus = self.parse_known_args(args, namespace)
        if len(surplus) > 3 and Path(surplus[0]).exists():  # the shell wrote out s/*.dcm
            more = f"{surplus[0]} and {len(surplus) - 1} more"
            self.error(f"one path is meant, not {more}; of a DICOM series name the folder")
        if surplus:
            self.error(f"unrecognized arguments: {' '.join(surplus)}")
        return found

    def error(self, message: str) -> Any:
        self.exit(2, f"{self.prog}: {message} (`{self.prog} --help` shows the usage)\n")


class _Completion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> None:
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error("completion needs shtab: pip install shtab")
        print(shtab.complete(parser_of(*COMMANDS), shell=args[1]))
        parser.exit()


def parser_of(*chosen: str) -> argparse.ArgumentParser:
    """Make the parser, with the arguments of the chosen commands; others are only listed."""
    parser = _Parser(prog="pumit", description="Promptable segmentation of medical scans.")
    parser.add_argument("--version", action="version", version=f"pumit {__version__}")
    parser.add_argument(
        "--print-completion",
        action=_Completion,
        choices=("bash", "zsh", "tcsh"),
        help="print a shell completion script and exit",
    )
    _add_talk(parser, default=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, help_line) in COMMANDS.items():
        sub = commands.add_parser(
            name, help=help_line, description=f"{help_line[0].upper()}{help_line[1:]}."
        )
        if name in chosen:
            import_module(module).add_arguments(sub)
            # Also accepted after the command; `SUPPRESS` keeps the value given before it.
            for place in (sub, *_actions_of(sub)):
                _add_talk(place, default=argparse.SUPPRESS)
    return parser


def _actions_of(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    return [
        part
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for part in action.choices.values()
    ]


def _add_talk(parser: argparse.ArgumentParser, *, default: Any) -> None:
    parser.add_argument(
        "--verbose", action="store_true", default=default, help="log progress to stderr"
    )
    parser.add_argument(
        "--quiet", action="store_true", default=default, help="no progress bar, no warnings"
    )


def join_negative_values(arguments: Sequence[str]) -> list[str]:
    """Write `--point -10,20,30` as `--point=-10,20,30`."""
    joined: list[str] = []
    for argument in arguments:
        is_value = re.match(r"-\.?\d", argument) and joined and joined[-1].startswith("--")
        if is_value and "=" not in joined[-1]:
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The command's exit status, usually 0. An error prints one line on standard error: 2 for
        what the user can repair, 1 for a bug (traceback with `--verbose`), 130 after Ctrl+C, 141
        for a closed pipe.
    """
    wait_asleep()  # before a command imports torch
    share_heaps()
    arguments = join_negative_values(sys.argv[1:] if argv is None else argv)
    chosen = next((a for a in arguments if not a.startswith("-")), None)
    try:
        parser = parser_of(*filter(None, [chosen]))
    except KeyboardInterrupt:  # what the command imports takes seconds to load
        return _report(chosen, "stopped.", 130)
    if "" in arguments:  # as a path it would be the current folder
        parser.error("an argument is empty; is a variable of the shell unset?")
    args = parser.parse_args(arguments)
    if args.quiet:
        os.environ[QUIET_VARIABLE] = "1"
    level = logging.ERROR if args.quiet else logging.WARNING
    logging.basicConfig(
        level=logging.INFO if args.verbose else level,
        format="%(levelname)s %(name)s: %(message)s",
    )
    # These libraries warn at length about odd file headers; the user gets our one line instead.
    logging.getLogger("pydicom").setLevel(logging.ERROR)
    logging.getLogger("highdicom").setLevel(logging.ERROR)
    try:
        status: int = import_module(COMMANDS[args.command][0]).run(args)
        sys.stdout.flush()
        return status
    except PumitError as error:
        return _report(args.command, str(error), 2)
    except KeyboardInterrupt:
        rest = "." if args.command == "serve" else "; no partial file is left."
        return _report(args.command, f"stopped{rest}", 130)
    except BrokenPipeError:
        # Python flushes stdout again at exit, which would fail on the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if args.verbose:
            logger.exception("unexpected")
        if missing := what_is_missing(error):
            return _report(args.command, missing, 2)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return _report(args.command, "the disk is full; free some space.", 2)
        if is_out_of_memory(error):
            what = "there is not enough memory; close other programs, crop the scan or use the CPU."
            return _report(args.command, what, 2)
        what = f"a fault of the program ({type(error).__name__}); `pumit --verbose` shows where."
        return _report(args.command, what, 1)


def _report(command: str | None, what: str, status: int) -> int:
    named = f"pumit {command}" if command else "pumit"
    print(f"{named}: {' '.join(what.split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
