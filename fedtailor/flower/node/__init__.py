"""A node of a federation: one client with its data, its states and its model on its own machine."""
