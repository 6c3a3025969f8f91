"""A real federation on Flower: a coordinator (``fedtailor serve``) and nodes that keep their data (``fedtailor join``).

``coordinator/`` runs the experiment behind the engine's interface; ``node/`` is one client on its own machine;
``keys``, ``programs`` and ``protocol`` serve both.

Flower's programs transport the messages. For each message they start `node.client_app`, for each run
`coordinator.server_app`. Both apps are thin and import no torch: they forward to the long-lived process of the node or
coordinator. For that reason the packages of this room import nothing by themselves.
"""
