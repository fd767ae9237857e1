"""The `pasto` command: each subcommand parses, calls the library, and prints."""

from pasto.cli.main import main

__all__ = ["main"]
