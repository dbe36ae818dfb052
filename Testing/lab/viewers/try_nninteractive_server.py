"""Use an nnInteractive server like PUMITSegment, and measure the time.

    nninteractive-server --api-key KEY            # on its machine, with its own model
    python Testing/lab/viewers/try_nninteractive_server.py http://127.0.0.1:1527 --token KEY

Prompts alternate between three segments on a generated oblique scan, so that each click replays its
segment's prompts; then all is repeated segment by segment in a new session. Prints the time of each
answer, and the number of voxels in which the two runs differ: 0 for a deterministic model.
"""

import argparse
import time

import numpy as np
from pumit.client.http_client import Client
from pumit.nninteractive.client.session import NNInteractiveSession
from pumit.prompts import BoxPrompt, MaskPrompt, PointPrompt, Prompt, ScribblePrompt
from pumit.volume import Volume

SHAPE, SPACING_MM = (40, 96, 104), (2.5, 0.9, 0.8)
MIDDLE = (18, 45, 52)


def scan() -> Volume:
    """Return a bright blob in noise, on a grid rotated about two axes."""
    a, b = 0.4, 0.2
    about_s = [[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]]
    about_l = [[1, 0, 0], [0, np.cos(b), -np.sin(b)], [0, np.sin(b), np.cos(b)]]
    noise = np.random.default_rng(0).normal(0, 12, SHAPE)
    voxels = (np.where(ball(9.0), 180, 40) + noise).astype(np.int16)
    return Volume(voxels, SPACING_MM, (-30.0, 12.0, 70.0), np.array(about_s) @ about_l)


def ball(radius: float) -> np.ndarray:
    """Return an ellipsoid around the blob's centre, flattened along the slices."""
    offset = (np.indices(SHAPE).T - MIDDLE) / (radius, 2 * radius, 2 * radius)
    return (offset.T**2).sum(axis=0) < 1


def prompts(volume: Volume) -> dict[str, list[Prompt]]:
    """Return the prompts of three segments."""

    def at(*index: float) -> tuple[float, float, float]:
        left, posterior, superior = volume.index_to_world(index).tolist()
        return (left, posterior, superior)

    d, h, w = MIDDLE
    flat = BoxPrompt(tuple(at(d, y, x) for y in (h - 18, h + 18) for x in (w - 18, w + 18)))
    return {
        "clicks": [PointPrompt(at(*MIDDLE)), PointPrompt(at(d, 8, 8), False)],
        "box": [flat, ScribblePrompt((at(d, h, w - 9), at(d, h + 9, w), at(d, h, w + 9)))],
        "drawn": [MaskPrompt(ball(5.0)), PointPrompt(at(d, h + 14, w))],
    }


def answer(client: Client, order: list[tuple[str, int]]) -> dict[str, np.ndarray]:
    """Add prompts in an order with a prediction each; return each segment's last mask."""
    volume, masks = scan(), {}
    given = prompts(volume)
    with NNInteractiveSession(client) as session:
        session.set_volume(volume)
        for segment, number in order:
            start = time.perf_counter()
            session.add_prompt(given[segment][number], segment)
            masks[segment] = session.predict(segment)
            took = time.perf_counter() - start
            kind = type(given[segment][number]).__name__
            print(f"  {segment:7} {kind:15} {took:6.2f} s {masks[segment].sum():8d} voxels")
    return masks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--token", default="")
    parser.add_argument("--allow-unencrypted", action="store_true")
    options = parser.parse_args()
    segments = list(prompts(scan()))
    with Client(options.url, options.token, allow_unencrypted=options.allow_unencrypted) as client:
        found = client.capabilities()
        print(f"{found['kind']} {found['version']}, licence of its model: {found.get('license')}")
        print("segments taking turns:")
        turns = answer(client, [(name, number) for number in range(2) for name in segments])
        print("one segment after another:")
        alone = answer(client, [(name, number) for name in segments for number in range(2)])
    for name in segments:
        print(f"{name}: {(turns[name] != alone[name]).sum()} voxels differ")


if __name__ == "__main__":
    main()
