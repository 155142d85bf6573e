"""Names of users on a terminal: what it would obey is spelled out, and every script stays readable."""

from mile._printable import one_line, without_commands


def test_commands_are_spelled_out_and_lines_stay():
    text = "a\x1b[31m\x9b2J\x07\r\nb\tc\u202egnp\ud800"
    assert without_commands(text) == "a\\x1b[31m\\x9b2J\\x07\\r\nb\tc\\u202egnp\\ud800"


def test_other_texts_stay_as_they_are():
    text = "größe 日本 \N{FAMILY} \N{ZERO WIDTH JOINER} 5\N{NO-BREAK SPACE}% \\x1b"
    assert without_commands(text) == text


def test_a_name_is_one_line_of_bounded_length():
    assert one_line("two\n\tlines \x1b[0m") == "two lines [0m"
    assert one_line("x" * 1000, 10) == "x" * 9 + "…"
    assert one_line(3) == "3"
