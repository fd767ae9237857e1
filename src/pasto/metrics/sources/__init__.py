"""Where exposures and events come from: PASTO's own, a folder of files, or a team's own tables."""
