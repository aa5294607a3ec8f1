"""A wrong command line is told in one line, with the status of a usage error."""

from __future__ import annotations

import pytest

from softhca.cli.main import main


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["perf", "nonsense"], "nonsense"),
        (["perf", "write-bw", "--qp-type", "XX"], "XX"),
        (["pingpong", "--size", "many"], "many"),
        (["perf"], "TEST"),
        (["nonsense"], "nonsense"),
        (["devinfo", "--nonsense"], "--nonsense"),
    ],
)
def test_usage_errors_are_one_line_that_names_the_word(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    captured = capsys.readouterr()
    assert ended.value.code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("softhca")
    assert named in captured.err
