"""The users' functions of `storms.sql`: `penstock run examples/storms.sql --functions examples/storms.py`."""

from __future__ import annotations

from math import exp

import pyarrow as pa


def equivalent_temperature(temp: pa.Array, dewp: pa.Array, pressure: pa.Array) -> pa.Array:
    """Equivalent potential temperature of air, the higher the likelier are thunderstorms (Bolton, Monthly Weather Review 108, 1980).

    One observation after the other, as somebody writes it who does not think of speed.

    Args:
        temp: of the air, degrees Fahrenheit.
        dewp: dew point, degrees Fahrenheit.
        pressure: hectopascals.

    Returns:
        Kelvin, to within a few; NULL where an argument is.
    """
    found: list[float | None] = []
    for air, dew, hpa in zip(temp.to_pylist(), dewp.to_pylist(), pressure.to_pylist(), strict=True):
        if air is None or dew is None or not hpa:
            found.append(None)
            continue
        celsius, dew_celsius = (air - 32) / 1.8, (dew - 32) / 1.8
        vapour = 6.112 * exp(17.67 * dew_celsius / (dew_celsius + 243.5))
        mixing = 0.622 * vapour / (hpa - vapour)
        dry = (celsius + 273.15) * (1000 / hpa) ** 0.2854
        found.append(dry * exp(2_675 * mixing / (celsius + 273.15)))
    return pa.array(found, pa.float64())


FUNCTIONS = {"equivalent_temperature": (equivalent_temperature, "DOUBLE")}
