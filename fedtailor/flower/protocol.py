"""The names and codes that coordinator and node must agree on. No torch and no Flower is imported here.

A message is the bytes of one `fedtailor.messages.frames` message in a Flower record. Its header has a ``kind``:
``hello`` asks a node to describe itself, ``tasks`` brings tasks, ``finished`` announces the end of a run,
``turned away`` tells a node why it does not take part. A node answers with the same kind, with ``results``, or with a
``refusal`` and its reason.
"""

RECORD, FIELD = "fedtailor", "message"  # where a message is in a Flower record

FLEET_PATH = "/v1/fleet/"  # Flower's calls for nodes
UNKNOWN_KEY_STATUS = 407  # Flower itself does not use this status, so a node can recognise the gateway's refusal
LOST_CODES = (5, 8)  # of Flower's errors: the node is not connected any more; its process ended while it worked
