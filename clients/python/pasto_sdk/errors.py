"""Errors that the client raises; `pasto.errors` has the platform's, with these as their roots."""

from __future__ import annotations


class PastoError(Exception):
    """Base class of every error that PASTO raises on purpose.

    >>> from pasto_sdk import Client
    >>> try:
    ...     Client("http://127.0.0.1:8400", study="")
    ... except PastoError as error:
    ...     print(error)
    study must be the name of a study, got ''
    """


class InputError(PastoError, ValueError):
    """Input that does not fit; the message names what was needed, what came, and the fix."""


class PolicyError(InputError):
    """Published policy that cannot be read or is inconsistent."""


class OptionError(InputError):
    """Option that does not exist or has a wrong value."""
