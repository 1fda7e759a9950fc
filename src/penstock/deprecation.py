"""Old names of the public interface: they work for one release and warn."""

from __future__ import annotations

import warnings


def warn_deprecated(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that an old name is in use.

    Args:
        old: the old name, as users write it.
        new: what replaces it.
        stacklevel: frames between this call and the user's code, itself included.
    """
    warnings.warn(
        f"{old} is deprecated and Penstock 0.3 removes it; use {new}",
        DeprecationWarning,
        stacklevel=stacklevel,
    )
