"""Scalar types by the names that Catalyst's JSON gives them."""

from __future__ import annotations

#: the most digits of a decimal
MOST_DIGITS = 38
#: numbers by how many values they have
WIDTH = {name: rank for rank, name in enumerate(("byte", "short", "integer", "long", "float", "double"))}
#: whole numbers, with their digits
WHOLE = {"byte": 3, "short": 5, "integer": 10, "long": 19}
FLOATING = ("float", "double")
TIMES = ("timestamp", "timestamp_ntz")


def digits(kind: str) -> tuple[int, int]:
    """Digits before and after the point of `decimal(p,s)`."""
    precision, scale = (int(part) for part in kind.removeprefix("decimal(").removesuffix(")").split(","))
    return precision - scale, scale


def exact_decimal(operation: str, left: str, right: str) -> str | None:
    """The decimal type of a sum, difference or product; None where Spark may have to round, or the result does not fit.

    Args:
        operation: `Add`, `Subtract` or `Multiply`.
        left, right: types such as `decimal(10,2)`.
    """
    (whole, fraction), (other_whole, other_fraction) = digits(left), digits(right)
    if operation == "Multiply":
        # Spark counts one digit more than the product can have
        precision, scale = whole + fraction + other_whole + other_fraction + 1, fraction + other_fraction
    else:
        scale = max(fraction, other_fraction)
        precision = max(whole, other_whole) + scale + 1
    return f"decimal({precision},{scale})" if precision <= MOST_DIGITS else None


def is_among(source: str, target: str, number: object = None) -> bool:
    """Whether every whole number or decimal of a type is a value of `decimal(p,s)`; of other types none is.

    Args:
        source: the type.
        target: the decimal type.
        number: the whole number that alone matters; None: all of them.
    """
    if source in WHOLE:
        whole, fraction = WHOLE[source] if number is None else len(str(number).lstrip("-")), 0
    elif source.startswith("decimal"):
        whole, fraction = digits(source)
    else:
        return False
    target_whole, target_fraction = digits(target)
    return whole <= target_whole and fraction <= target_fraction
