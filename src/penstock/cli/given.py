"""The settings of a command: those of its options, and those of its script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from penstock.errors import InputError

if TYPE_CHECKING:
    from penstock.settings import Settings
    from penstock.sql.script.mistakes import Mistakes
    from penstock.sql.script.statements import Script


@dataclass(frozen=True, slots=True)
class Given:
    """Settings by name, as they were given.

    Attributes:
        own: Penstock's.
        spark: Spark's.
    """

    own: Mapping[str, str]
    spark: Mapping[str, str]

    @classmethod
    def of(cls, tune: list[str] | None, conf: list[str] | None) -> Self:
        """The settings of options; options of stores (`store.NAME=VALUE`) become variables of this process's environment.

        Args:
            tune: Penstock's, each NAME=VALUE.
            conf: Spark's, each KEY=VALUE.

        Raises:
            InputError: one has another form, is unknown or has a value that is not allowed.
        """
        from penstock.settings import STORE_OPTION, check

        own = named_values("--set", "NAME=VALUE", tune)
        options = {
            name.removeprefix(STORE_OPTION): own.pop(name)
            for name in list(own)
            if name.startswith(STORE_OPTION)
        }
        if options:
            from penstock.stores.address import export_options

            export_options(options)
        # the script may have what one requires of another
        check(own, alone=True)
        return cls(own, named_values("--conf", "KEY=VALUE", conf))

    def with_script(self, script: Script, mistakes: Mistakes) -> Given:
        """These settings and those of a script that are not among them: options win.

        Args:
            script: the script.
            mistakes: of the script.

        Raises:
            InputError: a setting of the script is wrong; with all of `mistakes`.
        """
        from penstock.redaction import is_secret, remember
        from penstock.sql.script.settings import own_settings, spark_settings, wrong_settings

        # messages about the settings show their lines
        remember(each.value for each in script.settings if is_secret(each.name))
        if wrong := [*wrong_settings(script.settings, self.own)]:
            mistakes.found += wrong
            mistakes.raise_any()
        own, spark = own_settings(script.settings), spark_settings(script.settings)
        return Given(
            {name: each.value for name, each in own.items()} | dict(self.own),
            {key: each.value for key, each in spark.items()} | dict(self.spark),
        )

    def other_than(self, before: Given) -> list[str]:
        """The names of settings that have other values than before, as a script writes them."""
        from penstock.sql.script.statements import OWN_SETTING

        own = {name for name, _ in self.own.items() ^ before.own.items()}
        spark = {key for key, _ in self.spark.items() ^ before.spark.items()}
        return sorted([*(OWN_SETTING + name for name in own), *spark])

    @property
    def settings(self) -> Settings:
        """Penstock's settings.

        Raises:
            InputError: a setting lacks another one that it requires.
        """
        from penstock.settings import Settings, tuned

        return tuned(Settings(), self.own)


def named_values(option: str, allowed: str, pairs: list[str] | None) -> dict[str, str]:
    """The values of an option that may be repeated, by name.

    Args:
        option: how it is written, such as `--set`.
        allowed: its form, such as `NAME=VALUE`.
        pairs: what was given.

    Raises:
        InputError: one has another form.
    """
    found = {}
    for pair in pairs or []:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise InputError(f"{option} {pair}: write {option} {allowed}.")
        found[key] = value
    return found
