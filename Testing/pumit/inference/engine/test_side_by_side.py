"""Several fields are computed at once, each in one thread."""

import threading
from collections.abc import Iterator

import pytest
import torch
from pumit.inference.engine.torch_engine import SideBySide


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_the_order_of_the_items(threads):
    side_by_side = SideBySide()
    seen = side_by_side.map(lambda i: (i, torch.get_num_threads()), list(range(7)))
    assert [i for i, _ in seen] == list(range(7))
    assert {n for _, n in seen} == {1}
    assert torch.get_num_threads() == threads
    assert side_by_side.map(lambda i: -i, [4]) == [-4]
    assert side_by_side.map(lambda i: -i, []) == []
    meet = threading.Barrier(threads)  # as many at once as there are threads
    side_by_side.map(lambda _: meet.wait(timeout=60), range(threads))


def test_an_error_ends_all_and_the_next_call_works(threads):
    side_by_side, begun = SideBySide(), []

    def work(i: int) -> int:
        begun.append(i)
        if i == 1:
            raise ValueError("one")
        return i

    with pytest.raises(ValueError, match="one"):
        side_by_side.map(work, range(20))
    count = len(begun)
    assert side_by_side.map(lambda i: i, [1, 2]) == [1, 2]
    assert len(begun) == count  # no one works on


def test_another_number_of_threads_counts_from_the_next_call():
    before, side_by_side = torch.get_num_threads(), SideBySide()
    try:
        for count in (3, 2):
            torch.set_num_threads(count)
            names = side_by_side.map(lambda _: threading.current_thread().name, range(30))
            assert 1 <= len(set(names)) <= count
            assert threading.current_thread().name not in names
    finally:
        torch.set_num_threads(before)
