"""Laws are tried with as many examples as ``examples`` says, where a test asks for no number."""

from hypothesis import settings

from examples import examples

settings.register_profile("examples", examples(100))
settings.load_profile("examples")
