"""Requests written byte by byte."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading

from loopback_server import TOKEN
from pumit.wire import protocol


def head(method, path, *headers, token=TOKEN):
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def connect(server):
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def everything(connection):
    """What arrives until the server closes the connection."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            data += piece
    return data


def one_answer(connection):
    """The next answer on a connection that stays open."""
    data = b""
    while not (length := re.search(rb"content-length: (\d+)\r\n", data)) or len(
        data.partition(b"\r\n\r\n")[2]
    ) < int(length[1]):
        piece = connection.recv(1 << 16)
        if not piece:
            break
        data += piece
    return data


@contextlib.contextmanager
def dripping(connection, piece, pause_s=0.05):
    """Send a piece again and again, until the connection is closed."""
    stop = threading.Event()

    def feed():
        with contextlib.suppress(OSError):
            while not stop.wait(pause_s):
                connection.sendall(piece)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def status_and_sentence(data):
    start, _, body = data.partition(b"\r\n\r\n")
    return int(start.split()[1]), json.loads(body)["detail"]


def claim(server):
    with server.client() as client:
        return client.call_json("POST", protocol.PATH_CLAIM)["lease_token"]


def upload_head(lease, *headers):
    meta = f'{protocol.META_HEADER}: {{"spacing_mm": [1, 1, 1]}}'
    return head("POST", protocol.PATH_VOLUME, f"{protocol.LEASE_HEADER}: {lease}", meta, *headers)
