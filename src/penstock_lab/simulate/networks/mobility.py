"""Nodes that move in a square: random waypoint from its stationary state, Gauss-Markov."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: how much of a node's speed and direction a second leaves (Camp, Boleng, Davies 2002 have 0.75)
MEMORY = 0.75
#: standard deviation of a direction, radians, and of a speed as a share of the mean
TURNING, SPREAD = 0.6, 0.3
#: nearer to a border than this share of the side, the mean direction is to the middle
BORDER = 0.1
#: mean distance of two points of the unit square
MEAN_TRIP = 0.5214054331647207
#: the slowest speed, as a share of the fastest: where 0 is allowed, trips never end and the mean speed decays
SLOWEST = 0.1


def standing(rng: np.random.Generator, nodes: int, side: float) -> Iterator[Floats]:
    """Nodes that do not move: positions (nodes, 2) in metres, the same for ever."""
    positions = rng.random((nodes, 2)) * side
    while True:
        yield positions


def random_waypoint(
    rng: np.random.Generator, nodes: int, side: float, max_speed: float, pause: float, step: float
) -> Iterator[Floats]:
    """Each node goes to a point of the square at a speed, rests, goes on.

    It begins in the stationary state, not with a start at uniform places: the trip under way is drawn by its duration, so
    by length and by 1/speed (Navidi, Camp 2004), and mean speed and density do not drift while one measures.

    Args:
        rng: of places and speeds.
        nodes: how many.
        side: of the square, metres.
        max_speed: metres a second, over 0; the slowest go at a tenth of it.
        pause: seconds of rest at each waypoint.
        step: seconds between two positions.

    Yields:
        positions, (nodes, 2), metres.
    """
    slowest = max_speed * SLOWEST
    moving = MEAN_TRIP * side * np.log(max_speed / slowest) / (max_speed - slowest)
    origin, target = _long_trips(rng, nodes, side)
    speed = slowest * (max_speed / slowest) ** rng.random(nodes)
    position = origin + (target - origin) * rng.random((nodes, 1))
    rests = rng.random(nodes) < pause / (pause + moving)
    position[rests] = target[rests]
    rest = np.where(rests, rng.random(nodes) * pause, 0.0)
    while True:
        yield position
        travels = np.clip(step - rest, 0, step)
        rest = np.maximum(rest - step, 0)
        away = target - position
        distance = np.hypot(away[:, 0], away[:, 1])
        gone = speed * travels
        arrives = (travels > 0) & (gone >= distance)
        share = np.divide(gone, distance, out=np.ones(nodes), where=distance > 0)
        position = np.where(arrives[:, None], target, position + away * np.minimum(share, 1.0)[:, None])
        count = int(arrives.sum())
        if count:
            target[arrives] = rng.random((count, 2)) * side
            speed[arrives] = slowest + rng.random(count) * (max_speed - slowest)
            rest[arrives] = pause


def _long_trips(rng: np.random.Generator, count: int, side: float) -> tuple[Floats, Floats]:
    """Ends of trips, each as likely as it is long."""
    found = np.empty((0, 4))
    while len(found) < count:
        ends = rng.random((4 * count, 4))
        length = np.hypot(ends[:, 0] - ends[:, 2], ends[:, 1] - ends[:, 3])
        found = np.vstack([found, ends[rng.random(4 * count) * np.sqrt(2) < length]])
    return found[:count, :2] * side, found[:count, 2:] * side


def gauss_markov(
    rng: np.random.Generator, nodes: int, side: float, max_speed: float, step: float
) -> Iterator[Floats]:
    """Speed and direction are Gauss-Markov processes about a mean (Liang, Haas 1999); near a border the mean direction is
    to the middle, and who would cross it is put on it.

    Args:
        rng: of places, speeds and directions.
        nodes: how many.
        side: of the square, metres.
        max_speed: metres a second; the mean is half of it.
        step: seconds between two positions.

    Yields:
        positions, (nodes, 2), metres.
    """
    keeps = MEMORY**step
    noise = np.sqrt(1 - keeps**2)
    mean = max_speed / 2
    position = rng.random((nodes, 2)) * side
    course = rng.random(nodes) * 2 * np.pi
    direction = course + TURNING * rng.standard_normal(nodes)
    speed = mean * (1 + SPREAD * rng.standard_normal(nodes))
    while True:
        yield position
        inward = side / 2 - position
        near = np.any((position < BORDER * side) | (position > (1 - BORDER) * side), axis=1)
        to_middle = np.arctan2(inward[:, 1], inward[:, 0])
        # the nearer of the two turns
        turned = direction + np.angle(np.exp(1j * (to_middle - direction)))
        course = np.where(near, turned, course)
        speed = keeps * speed + (1 - keeps) * mean + noise * SPREAD * mean * rng.standard_normal(nodes)
        direction = keeps * direction + (1 - keeps) * course + noise * TURNING * rng.standard_normal(nodes)
        goes = np.clip(speed, max_speed * SLOWEST, max_speed) * step
        heading = np.column_stack([np.cos(direction), np.sin(direction)])
        position = np.clip(position + goes[:, None] * heading, 0, side)
