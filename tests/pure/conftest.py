"""No deadline for a single example: the laws are checked, not the speed of a shared machine."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
