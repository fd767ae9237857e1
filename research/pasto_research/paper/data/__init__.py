"""Public data sets in their official formats, read as streams into one form, and prepared as the paper prepares them.

A new data set is a new file here.
"""

from pasto_research.paper.data.interactions import Interactions
from pasto_research.paper.data.preparation import Split, busiest, core, priced, split
from pasto_research.paper.data.readers import Source, find

__all__ = ["Interactions", "Source", "Split", "busiest", "core", "find", "priced", "split"]
