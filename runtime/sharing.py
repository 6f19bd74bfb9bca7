"""Resources that several users share: max-min fair speeds, for any number of stretches of time at once.

A user that works at speed 1 takes `rates` of each resource, 1 being all of it. Where what is asked is more than there
is, a resource gives every user the same part for each of its `weights`, and what a user leaves of its part is divided
among the others. A user's speed is what the tightest of its resources gives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
MOST_ROUNDS = 16


@dataclass(frozen=True)
class Resources:
    """What users take of resources: `rates` and `weights` [user, resource], and `kinds`, what each resource is."""

    rates: Array
    weights: Array
    kinds: tuple[str, ...]

    def contended(self) -> Resources:
        """Those that all users together can ask too much of. Of several with the same users in the same proportions
        the one that they ask most of stays."""
        crowded = (self.rates > 0).sum(0) > 1
        keep: dict[bytes, int] = {}
        for r in np.flatnonzero(crowded & (self.rates.sum(0) > 1 + 1e-9)).tolist():
            rates = self.rates[:, r]
            key = (rates / rates.sum()).round(9).tobytes() + self.weights[:, r].tobytes()
            other = keep.setdefault(key, r)
            if rates.sum() > self.rates[:, other].sum():
                keep[key] = r
        at = sorted(keep.values())
        return Resources(self.rates[:, at], self.weights[:, at], tuple(self.kinds[r] for r in at))


def fair_speeds(resources: Resources, wants: Array) -> tuple[Array, Array]:
    """For each row of `wants` (the speed, at most 1, at which each user would work alone), the speed that each could
    have, and the resource that sets it (-1: none does). Who wants less than its part could have more than it wants."""
    users = [np.flatnonzero(resources.rates[:, r]) for r in range(len(resources.kinds))]
    caps = np.full((len(users), *wants.shape), np.inf)
    for _ in range(MOST_ROUNDS):
        moved = False
        for r, mine in enumerate(users):
            others = np.delete(caps[:, :, mine], r, 0).min(0, initial=np.inf)
            rate, weight = resources.rates[mine, r], resources.weights[mine, r]
            part = _level(np.minimum(wants[:, mine], others) * rate, weight)
            new = part[:, None] * (weight / rate)
            with np.errstate(invalid="ignore"):
                moved |= bool((np.abs(new - caps[r][:, mine]) > 1e-9 * new).any())
            caps[r][:, mine] = new
        if not moved:
            break
    if not users:
        return np.ones(wants.shape), np.full(wants.shape, -1)
    least = caps.min(0)
    return np.minimum(least, 1.0), np.where(least < 1.0, caps.argmin(0), -1)


def _level(asks: Array, weights: Array) -> Array:
    """For each row, the part for a unit of weight such that min(ask, part · weight) sums to 1; infinite where all that
    is asked can be given."""
    order = np.argsort(asks / weights, 1)
    sorted_asks, sorted_weights = np.take_along_axis(asks, order, 1), weights[order]
    # with the k that ask least satisfied, the others share the rest
    given = np.cumsum(sorted_asks, 1) - sorted_asks
    left = np.cumsum(sorted_weights[:, ::-1], 1)[:, ::-1]
    part = (1.0 - given) / left
    short = sorted_asks > part * sorted_weights + 1e-12
    first = np.argmax(short, 1)
    found = np.take_along_axis(part, first[:, None], 1)[:, 0]
    return np.where(short.any(1), found, np.inf)
