"""The keys that exposures of signed studies are signed with: derived, never stored."""

from __future__ import annotations

import hmac

from pasto.store import Store, StudyRow


class SigningKeys:
    """The signing key of each study, derived from the secret of the installation.

    Every node of one store derives the same key. No backup holds the secret, so a restored store has other keys.

    >>> from pasto.store import open_store
    >>> store = open_store("memory:")
    >>> feed = StudyRow("feed", 1, 1, "draft", "{}", 7, 0, 0, 0.0, 0.0)
    >>> keys = SigningKeys(store)
    >>> len(keys.derive(feed)), keys.derive(feed) == SigningKeys(store).derive(feed)
    (64, True)
    >>> store.close()
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._secret: bytes | None = None

    def derive(self, study: StudyRow) -> str:
        """Return a study's key in hexadecimal; a later study of the same name has another."""
        if self._secret is None:
            self._secret = self._store.session_secret().encode()
        return hmac.digest(self._secret, f"exposures/{study.name}/{study.number}".encode(), "sha256").hex()
