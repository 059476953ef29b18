"""What can be declared and passed: the answers are those of ptxas 13.5, asked when this was written
(``tests/ptx/rules/test_declaration_rules_ptxas.py`` asks again).
"""

from __future__ import annotations

from ptx_forms.declarations import PASSED, REFUSED, TAKEN, declared, passed
from tilewright.ptx import parse, problems


def test_valid_vectors_and_arrays_are_accepted() -> None:
    for place, words in TAKEN:
        assert not problems(parse(declared(place, words))), (place, words)


def test_an_error_has_the_line_of_a_wrong_declaration() -> None:
    for place, words, says in REFUSED:
        text = declared(place, words)
        (error, *_) = problems(parse(text))
        assert says in error.message, (place, words, error.message)
        assert error.location is not None
        assert words in text.split("\n")[error.location.line - 1], (place, words)


def test_arguments_match_parameters_as_in_ptxas() -> None:
    for formal, given, fits in PASSED:
        found = problems(parse(passed(formal, given)))
        assert bool(found) is not fits, (formal, given, found)
        assert all(error.location is not None for error in found)
