"""The Python client, `pasto_sdk`, under the platform's name."""

from pasto_sdk import *  # noqa: F403
from pasto_sdk import __all__ as __all__
