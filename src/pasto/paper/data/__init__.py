"""Public data sets in their official formats, read as streams into one form, and prepared as the paper prepares them.

A new data set is a new file here.
"""

from pasto.paper.data.interactions import Interactions
from pasto.paper.data.prepare import Split, busiest, core, priced, split
from pasto.paper.data.text import Source, find

__all__ = ["Interactions", "Source", "Split", "busiest", "core", "find", "priced", "split"]
