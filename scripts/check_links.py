"""Check the external links of all pages.

    python3 scripts/check_links.py --list    # only list them; needs no network
    python3 scripts/check_links.py           # requests each once; exit status 1 for a dead link

Needs only Python. Pages of this repository are not fetched; tests check that their files exist.
"""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "pages"))

from outside import OURS, links

# With these status codes the page exists, or the host refuses programs.
_NOT_GONE = {401, 403, 405, 406, 418, 429, 503}


def state_of(address: str, *, timeout_s: float = 20.0) -> str:
    """Request a page and return "there", "refused" or "gone: " with the reason."""
    asking = urllib.request.Request(address, headers={"User-Agent": "PUMIT link check"})
    try:
        with urllib.request.urlopen(asking, timeout=timeout_s):
            return "there"
    except urllib.error.HTTPError as error:
        return "refused" if error.code in _NOT_GONE else f"gone: {error.code}"
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        return f"gone: {getattr(error, 'reason', error)}"


def main() -> int:
    """Print each address with its state; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="only print the addresses")
    args = parser.parse_args()
    status = 0
    for address, files in links().items():
        state = "" if args.list else "ours" if address.startswith(OURS) else state_of(address)
        status |= state.startswith("gone")
        print("  ".join(filter(None, (state, address, ", ".join(files)))))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
