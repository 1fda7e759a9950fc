"""Standing queries a person would ask about flights, from templates and the data's own values.

Each template stands for a trade: it lists every query its desks could ask, with carriers, routes,
aircraft and flight numbers as they occur in the data; a seeded draw takes the demo's share of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa

#: (name of the view, text of its WHERE clause)
NamedCondition = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FlightValues:
    """The values and combinations that occur in the flights, each in ascending order."""

    carriers: list[str]
    bases: list[tuple[str, str]]  # carrier, origin
    markets: list[tuple[str, str]]  # carrier, dest
    routes: list[tuple[str, str]]  # origin, dest
    flights: list[tuple[str, int]]  # carrier, flight number
    aircraft: list[str]

    @classmethod
    def of(cls, flights: pa.Table) -> FlightValues:
        """Collects them from a table with the flights' columns."""

        def distinct(*columns: str) -> list[tuple[Any, ...]]:
            groups = flights.select(columns).drop_null().group_by(list(columns)).aggregate([])
            return sorted(tuple(row.values()) for row in groups.select(columns).to_pylist())

        return cls(
            carriers=[carrier for (carrier,) in distinct("carrier")],
            bases=distinct("carrier", "origin"),
            markets=distinct("carrier", "dest"),
            routes=distinct("origin", "dest"),
            flights=distinct("carrier", "flight"),
            aircraft=[tail for (tail,) in distinct("tailnum")],
        )


def airline_desks(values: FlightValues) -> Iterator[NamedCondition]:
    """An airline follows its late departures, by base and by how late."""
    for (carrier, origin), late in product(values.bases, (15, 30, 45, 60, 90, 120, 180)):
        yield (
            f"desk_{carrier}_{origin}_late_{late}",
            f"carrier = '{carrier}' AND origin = '{origin}' AND dep_delay >= {late}",
        )


def connection_desks(values: FlightValues) -> Iterator[NamedCondition]:
    """An airline looks after passengers who may miss their next flight at the destination."""
    for (carrier, dest), (low, high) in product(values.markets, ((20, 44), (45, 89), (90, 240))):
        yield (
            f"connections_{carrier}_{dest}_{low}_{high}",
            f"carrier = '{carrier}' AND dest = '{dest}' AND arr_delay BETWEEN {low} AND {high}",
        )


def gate_agents(values: FlightValues) -> Iterator[NamedCondition]:
    """Gate agents follow one route during their shift: all of it, or what leaves late."""
    for (origin, dest), (first, last) in product(values.routes, ((5, 9), (10, 13), (14, 17), (18, 23))):
        shift = f"origin = '{origin}' AND dest = '{dest}' AND hour BETWEEN {first} AND {last}"
        yield f"gate_{origin}_{dest}_{first}_to_{last}", shift
        yield f"gate_{origin}_{dest}_{first}_to_{last}_late", f"{shift} AND dep_delay > 15"


def route_insurers(values: FlightValues) -> Iterator[NamedCondition]:
    """An insurer pays for long delays and for cancellations, route by route."""
    for (origin, dest), late in product(values.routes, (180, 240, 300)):
        yield (
            f"insured_{origin}_{dest}_{late}",
            f"origin = '{origin}' AND dest = '{dest}' AND (arr_delay >= {late} OR dep_time IS NULL)",
        )


def aircraft_insurers(values: FlightValues) -> Iterator[NamedCondition]:
    """A lessor's insurer follows one aircraft's long delays."""
    for aircraft in values.aircraft:
        yield f"lessor_{aircraft}", f"tailnum = '{aircraft}' AND dep_delay >= 180"


def flight_followers(values: FlightValues) -> Iterator[NamedCondition]:
    """Families, drivers and hotels follow one flight number and ask about being late."""
    for (carrier, flight), late in product(values.flights, (20, 60)):
        yield (
            f"follow_{carrier}{flight}_{late}",
            f"carrier = '{carrier}' AND flight = {flight} AND (arr_delay > {late} OR arr_time IS NULL)",
        )


def night_operations(values: FlightValues) -> Iterator[NamedCondition]:
    """Airports watch what leaves, or is put off, into the night."""
    for (carrier, origin), (late, begin) in product(values.bases, product((0, 30, 60), (20, 21, 22))):
        yield (
            f"night_{origin}_{carrier}_after_{begin}_late_{late}",
            f"origin = '{origin}' AND carrier = '{carrier}' AND (hour >= {begin} OR hour < 6) "
            f"AND dep_delay > {late}",
        )


def long_haul_planners(values: FlightValues) -> Iterator[NamedCondition]:
    """Fuel planners look at long flights that flew long, and at time made up on the way."""
    for carrier, distance in product(values.carriers, (1000, 1500, 2000, 2400)):
        for minutes in (distance // 8 + 20, distance // 8 + 40):
            yield (
                f"fuel_{carrier}_{distance}_miles_{minutes}_minutes",
                f"carrier = '{carrier}' AND distance >= {distance} AND air_time > {minutes}",
            )
        yield (
            f"made_up_{carrier}_{distance}_miles",
            f"carrier = '{carrier}' AND distance >= {distance} AND dep_delay - arr_delay >= 25",
        )


def season_planners(values: FlightValues) -> Iterator[NamedCondition]:
    """Schedulers compare the holidays at each origin with the rest of the year."""
    seasons = {
        "new_year": "month = 1 AND day <= 6",
        "independence_day": "month = 7 AND day BETWEEN 3 AND 7",
        "thanksgiving": "month = 11 AND day BETWEEN 26 AND 30",
        "christmas": "month = 12 AND day BETWEEN 20 AND 31",
    }
    for (carrier, origin), season in product(values.bases, seasons):
        yield (
            f"season_{season}_{origin}_{carrier}",
            f"{seasons[season]} AND origin = '{origin}' AND carrier = '{carrier}' "
            "AND (dep_delay > 60 OR dep_delay IS NULL)",
        )


#: Each template and its share of the demo's queries, in percent.
TEMPLATES: tuple[tuple[Callable[[FlightValues], Iterator[NamedCondition]], int], ...] = (
    (airline_desks, 10),
    (connection_desks, 14),
    (gate_agents, 20),
    (route_insurers, 12),
    (aircraft_insurers, 12),
    (flight_followers, 16),
    (night_operations, 7),
    (long_haul_planners, 5),
    (season_planners, 4),
)


def standing_queries(flights: pa.Table, count: int = 2_000, seed: int = 2013) -> dict[str, str]:
    """Draws standing queries from all templates.

    Args:
        flights: a table with the flights' columns.
        count: how many queries; a template that has fewer than its share gives all it has, and the
            others make up for it as far as they can.
        seed: seed of the draw; equal arguments give equal queries.

    Returns:
        The text of each query's WHERE clause by the name of its view, in the order of the templates.
    """
    values = FlightValues.of(flights)
    generator = random.Random(seed)
    drawn: list[list[NamedCondition]] = []
    spare: list[tuple[int, NamedCondition]] = []
    for number, (template, share) in enumerate(TEMPLATES):
        candidates = list(template(values))
        generator.shuffle(candidates)
        wanted = count * share // 100
        drawn.append(candidates[:wanted])
        spare += [(number, candidate) for candidate in candidates[wanted:]]
    missing = count - sum(map(len, drawn))
    for number, candidate in generator.sample(spare, min(missing, len(spare))):
        drawn[number].append(candidate)
    return dict(condition for conditions in drawn for condition in conditions)


def create_view(name: str, condition: str, stream: str = "flights") -> str:
    """The statement that registers one of them on a stream."""
    return f"CREATE VIEW {name} AS SELECT * FROM {stream} WHERE {condition};"
