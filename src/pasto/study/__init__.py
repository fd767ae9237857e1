"""Ask/tell: a study learns a blend round by round, with no clock, network or disk of its own."""

from pasto.study.study import Study

__all__ = ["Study"]
