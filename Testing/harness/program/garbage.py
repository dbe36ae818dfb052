"""Reference cycles: ended after each test, without a look at what stays loaded."""

import gc

# Objects that make a look at all of them slow: some 2 ms, after each test.
_MANY = 4_000


def keepLoaded() -> None:
    """Leave what is loaded by now out of later collections, where it is much.

    To be called between tests: what a test holds, and lets go later in a cycle, would stay for
    good.
    """
    if len(gc.get_objects()) > _MANY:
        gc.collect()
        gc.freeze()
