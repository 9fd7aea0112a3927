# SPDX-License-Identifier: Apache-2.0
"""Options of the plugin: environment variables PLIMSOLL_EPLB_*, or a TOML file that one of them names; and the version
of an engine, for messages."""

import dataclasses
import importlib.metadata
import os

PREFIX = "PLIMSOLL_EPLB_"
FILE = PREFIX + "CONFIG"


def _share(text):
    if text == "none":
        return None
    share = None if isinstance(text, bool) else float(text)
    if share is None or not 0 <= share <= 1:
        raise ValueError
    return share


def _one_of(*values):
    def checked(text):
        if text not in values:
            raise ValueError
        return text

    return checked


def _flag(text):
    return {"1": True, "true": True, "0": False, "false": False}[str(text).lower()]


@dataclasses.dataclass(frozen=True)
class Options:
    # The largest share of all slots that move to another rank in one call; None: as many as the engine's plan needs.
    max_moves_share: float | None = 0.1
    # How the engine spreads the tokens of an expert over its replicas.
    split: str = "even"
    log_level: str = "info"
    off: bool = False


# Reads a value, and says what it expects.
_READERS = {
    "max_moves_share": (_share, "0 to 1 or none"),
    "split": (_one_of("even", "optimal"), "even or optimal"),
    "log_level": (_one_of("debug", "info", "warning", "error"), "debug, info, warning or error"),
    "off": (_flag, "0 or 1"),
}


def read_options(environment=os.environ):
    """Returns the options. Variables win over the file. Raises ValueError for an unknown key or a bad value."""
    texts = {}
    path = environment.get(FILE)
    if path:
        texts.update((f"{path}: {key}", (key, value)) for key, value in _content(path).items())
    for name, value in sorted(environment.items()):
        if name.startswith(PREFIX) and name != FILE:
            texts[name] = name[len(PREFIX):].lower(), value
    values = {}
    for name, (key, value) in texts.items():
        if key not in _READERS:
            raise ValueError(f"{name}: expected one of {', '.join(_READERS)}, got {key}")
        read, expected = _READERS[key]
        try:
            values[key] = read(value)
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{name}: expected {expected}, got {value!r}") from None
    return Options(**values)


def _content(path):
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError) as refused:
        raise ValueError(f"{FILE}: expected a TOML file, got {path}: {refused}") from None


def version_of(engine):
    try:
        return importlib.metadata.version(engine)
    except importlib.metadata.PackageNotFoundError:
        return "(unknown version)"
