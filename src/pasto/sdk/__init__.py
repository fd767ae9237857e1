"""What a recommender embeds: decisions made in its own process, events sent behind its back; standard library only."""

from pasto.sdk.client import Client
from pasto.sdk.decision import Decision, Reason
from pasto.sdk.http import Http
from pasto.sdk.rehearsal import Rehearsal
from pasto.sdk.transport import Request, Response, Transport

__all__ = ["Client", "Decision", "Http", "Reason", "Rehearsal", "Request", "Response", "Transport"]
