"""The running system: studies over HTTP, events in, rounds closed, policies out."""
