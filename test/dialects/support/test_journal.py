"""The journal: what passes write into it, fuel, and nothing when it is off."""

from __future__ import annotations

from xdsl.dialects.test import TestOp

from headrace.dialects.support import journal, locations
from headrace.dialects.support.journal import Candidate, Journal, recording


def op(name: str) -> TestOp:
    made = TestOp()
    made.location = locations.named(name)
    return made


def test_without_a_journal_everything_may_be_done_and_nothing_is_kept() -> None:
    assert journal.current() is None
    assert journal.may("fold", op("a"))
    assert not journal.out_of_fuel()
    journal.made("fold", "test.op", locations.named("a"))
    journal.decline("fold", op("a"), "no")
    journal.count("ops")
    journal.decide("tile", op("a"), "8", ())
    assert journal.current() is None


def test_everything_is_noted_with_pass_op_and_location() -> None:
    with recording(Journal(pass_name="tile")) as book:
        assert journal.may("fold", op("a"))
        journal.made("merge", "test.other", locations.named("b"))
        journal.count("tiles", 3)
        journal.count("tiles")
        candidates = [Candidate("8", 2.0), Candidate("4", 3.0, "slower")]
        journal.decide("tile", op("c"), "8", candidates, "cycles")
    assert [str(one) for one in book.applied] == ["fold on 'test.op' at a", "merge on 'test.other' at b"]
    assert {one.pass_name for one in book.applied} == {"tile"}
    assert book.counts() == {"fold": 1, "merge": 1}
    assert book.statistics_of("tile") == {"tiles": 4}
    (decision,) = book.decisions
    assert (decision.what, decision.chosen, decision.unit) == ("tile", "8", "cycles")
    assert [one.reason for one in decision.candidates] == ["", "slower"]


def test_a_refusal_is_kept_once_with_how_often_it_was_given() -> None:
    a = op("a")
    with recording(Journal()) as book:
        journal.decline("fold", a, "too large")
        journal.decline("fold", a, "too large")
        journal.decline("fold", a, "too small")
        journal.decline("fold", op("b"), "too large")
    assert book.why("a") == ["fold: too large", "fold: too small"]
    assert list(book.declined.values()) == [2, 1, 1]


def test_fuel_is_spent_by_rewrites_and_not_by_refusals() -> None:
    with recording(Journal(fuel=2)) as book:
        journal.decline("fold", op("a"), "no")
        assert journal.may("one", op("a"))
        assert not journal.out_of_fuel()
        journal.made("two", "test.op", locations.named("a"))
        assert journal.out_of_fuel()
        assert not journal.may("three", op("a"))
    assert [one.pattern for one in book.applied] == ["one", "two"]
    assert not journal.out_of_fuel()


def test_the_journal_before_goes_on_afterwards_even_after_an_error() -> None:
    with recording(Journal()) as outer:
        try:
            with recording(Journal()) as inner:
                journal.count("inner")
                raise ValueError
        except ValueError:
            pass
        journal.count("outer")
    assert (dict(outer.statistics), dict(inner.statistics)) == ({("", "outer"): 1}, {("", "inner"): 1})
    assert journal.current() is None
