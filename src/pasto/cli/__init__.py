"""The `pasto` command: each subcommand parses, calls the library, and prints."""

from pasto.cli.group import main

__all__ = ["main"]
