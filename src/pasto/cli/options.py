"""Options that several commands have: `--json`, `--reason`, and durations such as `--grace 30min`."""

from __future__ import annotations

import click

from pasto.durations import YEAR_SECONDS, describe_durations, parse_duration

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
reason_option = click.option("--reason", default="", metavar="TEXT", help="Reason, for the audit log.")
required_reason_option = click.option("--reason", required=True, metavar="TEXT", help="Reason, for the audit log.")


class DurationType(click.ParamType[float]):
    """Click type of an option that is a duration; the command gets seconds."""

    name = "time"

    def __init__(self, low: float = 0.0, high: float = 100 * YEAR_SECONDS) -> None:
        self.low = low
        self.high = high

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the duration in seconds, or fail with the durations that are possible."""
        try:
            seconds = parse_duration(value)
        except ValueError:
            seconds = -1.0
        if not self.low <= seconds <= self.high:
            self.fail(f"needs {describe_durations(self.low, self.high)}, got {value!r}", param, ctx)
        return seconds
