"""Settings of all tests."""

import os
import tempfile

from hypothesis import settings

# The same examples in every run of continuous integration; new ones at a developer's desk.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

# What tests name as their own code is not remembered as the developer's.
_state = tempfile.TemporaryDirectory()
os.environ["XDG_STATE_HOME"] = _state.name
