"""Frames of buffers with several writers."""

from headrace.dialects.support.access import Loop, Stream, View
from headrace.passes.analysis.network import joined, shared_frames

LOOPS = (Loop(4, 1, 16), Loop(2, 0, 4))
"""Rows in fours of 16, then heads in halves."""
WHOLE = View(0, (64 * 32, 32, 1))


def columns(first: int, size: int) -> tuple[Stream, View]:
    """Some columns of scores [8, 64, 32]."""
    return Stream((4, 16, size), "f32", LOOPS), View(first, WHOLE.strides)


def test_writers_side_by_side_work_in_the_frames_of_one() -> None:
    whole = columns(0, 32)
    assert joined([columns(24, 8), columns(0, 24)]) == [whole]
    assert shared_frames([whole], [whole]) == 2
    assert shared_frames([columns(0, 24), columns(24, 8)], [whole]) == 2


def test_writers_apart_are_not_joined() -> None:
    assert len(joined([columns(0, 8), columns(16, 8)])) == 2  # columns between them are missing
    other = Stream((4, 16, 8), "f32", LOOPS[::-1]), View(8, WHOLE.strides)
    assert len(joined([columns(0, 8), other])) == 2  # in another order
