"""Pages of HTML that need no network: the report of a run or comparison, and the pieces that the dashboard shares.

The charts are hand-written scripts in ``static``; tables are plain HTML, readable without scripts.
"""
