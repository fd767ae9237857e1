"""Ask/tell: a study learns a blend round by round, with no clock, network or disk of its own."""

from pasto.study.history_table import History
from pasto.study.logged_data import history_from_log
from pasto.study.study import Study

__all__ = ["History", "Study", "history_from_log"]
