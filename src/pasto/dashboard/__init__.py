"""The dashboard: pages over the service, for people with a browser."""

from pasto.dashboard.routes import Dashboard

__all__ = ["Dashboard"]
