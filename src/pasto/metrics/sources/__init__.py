"""Sources of exposures and events: the store's own log, folders of files, and tables of a team."""
