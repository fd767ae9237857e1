"""Client of PASTO: assigns units in your own process and sends events in the background; standard library only."""

from pasto_sdk.client import Client
from pasto_sdk.decision import Decision, Reason
from pasto_sdk.http_transport import HttpTransport
from pasto_sdk.testing import FakeService
from pasto_sdk.transport import Request, Response, Transport

__all__ = ["Client", "Decision", "FakeService", "HttpTransport", "Reason", "Request", "Response", "Transport"]
