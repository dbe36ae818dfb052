"""Exit status 0 where the server behind a socket file answers `/healthz`, 1 elsewhere.

`healthcheck.py /run/pumit/0/http.sock`: needs no curl, no network and no token. It asks whether
the server lives, not whether it has room: a full server is a healthy one.
"""

import socket
import sys


def is_healthy(path: str) -> bool:
    """Whether the server behind a socket file answers with 200."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(5)
            connection.connect(path)
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return connection.recv(64).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(not is_healthy(sys.argv[1]))
