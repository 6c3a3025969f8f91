"""What the server keeps per client."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fedtailor.messages.trees import pack, unpack


class Memory(Mapping[int, dict[str, Any]]):
    """What the server keeps per client, in one row each. Rows are loaded on first use, and stored if they changed.

    Examples
    --------
    >>> server.memory[client]["model"] = reply["model"]  # to change
    >>> server.memory.peek(client).get("model", server.weights)  # to read only
    >>> for client in server.memory: ...  # all clients with a row
    """

    KEPT = 2**26  # bytes of rows that are cached for further reads in a round

    def __init__(self, fetch: Callable[[int], bytes | None], known: set[int]):
        self._fetch = fetch
        self._known = known
        self._seen: dict[int, dict[str, Any]] = {}  # cached rows that were only read
        self._room = self.KEPT
        self.loaded: dict[int, dict[str, Any]] = {}

    def __getitem__(self, client: int) -> dict[str, Any]:
        """The client's row, to read and change; empty at first."""
        if client not in self.loaded:
            self.loaded[client] = self.peek(client)
        return self.loaded[client]

    def peek(self, client: int) -> dict[str, Any]:
        """The client's row, read-only. Only a few rows are cached, so a loop over many clients takes little memory."""
        for rows in (self.loaded, self._seen):
            if client in rows:
                return rows[client]
        data = self._fetch(client) if client in self._known else None
        row: dict[str, Any] = {} if data is None else unpack(data)
        if data is not None and len(data) <= self._room:
            self._seen[client], self._room = row, self._room - len(data)
        return row

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._known | {client for client, row in self.loaded.items() if row}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, client: object) -> bool:
        return client in self._known or bool(self.loaded.get(client))  # type: ignore[call-overload]

    def settle(self) -> None:
        """Drop the loaded rows. Call it when they are stored."""
        self._known |= {client for client, row in self.loaded.items() if row}
        self.loaded, self._seen, self._room = {}, {}, self.KEPT

    def preview(self) -> "Memory":
        """A copy whose changes are never stored."""
        return Memory(lambda client: pack(self.peek(client)), set(self))
