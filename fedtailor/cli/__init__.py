"""The command line. Each command reads its options, calls a room, and hands the result to a view.

The commands import the rooms inside their functions, so that ``fedtailor --help`` stays fast.
"""

from fedtailor.cli.app import app as app
