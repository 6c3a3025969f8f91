"""A real federation on Flower: a coordinator (``fedtailor serve``) and nodes that keep their data (``fedtailor join``).

Flower's own programs carry the messages. What they start for a message (`client_app`) and for a run (`server_app`) is
thin and imports no torch; the work is done by the two long-lived processes behind them. So nothing is imported here.
"""
