"""Rules of thumb beside the heuristic's choices: the tables of docs/gemm.md are up to date."""

from __future__ import annotations

from pathlib import Path

import heuristics_table
import pytest
from compare.heuristic_rules import (
    A100,
    SHAPES,
    TABLES,
    Rule,
    cells_of,
    choices,
    configs,
    figures,
    head,
    update,
)

from tilewright import gemm, target

RULES = [(table, rule) for table in TABLES for rule in table.rules]
UPDATE = "run benchmarks/heuristics_table.py --dry-run --update"


def documented() -> list[list[str]]:
    """The cells of all lines of tables in docs/gemm.md."""
    lines = heuristics_table.DOCS.read_text(encoding="utf-8").splitlines()
    return [cells_of(line) for line in lines if line.startswith("|")]


@pytest.mark.parametrize(("table", "rule"), RULES, ids=[rule.case for _, rule in RULES])
def test_the_documented_choice_is_the_present_one(
    table: heuristics_table.rules.RuleTable, rule: Rule
) -> None:
    cells = choices(rule, table)
    rows = [row for row in documented() if row[:3] == cells[:3]]
    assert [row[: len(cells)] for row in rows] == [cells], UPDATE
    assert [len(row) for row in rows] == [len(table.columns)]


@pytest.mark.parametrize(("table", "rule"), RULES, ids=[rule.case for _, rule in RULES])
def test_configurations_fit(table: heuristics_table.rules.RuleTable, rule: Rule) -> None:
    for config, device in zip(
        configs(rule, table), (table.devices[0], *table.devices), strict=True
    ):
        assert str(gemm.parse(config)) == config
        gemm.check(rule.problem, gemm.parse(config), target.device_spec(device))


def test_cases_are_unique() -> None:
    for table in TABLES:
        assert len({rule.case for rule in table.rules}) == len(table.rules)


def test_times_are_kept_where_configurations_are() -> None:
    case = A100.rules[1].case
    times = figures([10.0, 8.0, 4.0], 1.25)
    assert times == ["10.0", "8.0", "4.0", "1.25"]
    text = "\n".join(["before", *head(A100), "", "after"])
    measured = update(text, A100, {case: times})
    assert measured.startswith("before\n| rule for A100 |") and measured.endswith("|\n\nafter\n")
    assert measured.count("10.0 | 8.0 | 4.0 | 1.25 |") == 1
    assert update(measured, A100, {}) == measured
    chosen = f"`{A100.rules[1].choice('A100')}`"
    changed = measured.replace(chosen, "`64x64x64:1x2:3/4@8`")
    assert update(changed, A100, {}) == update(text, A100, {})


def test_a_text_without_the_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="whose first column is 'rule by shape'"):
        update("nothing", SHAPES, {})


def test_a_dry_run_prints_and_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gemm.md"
    path.write_text("\n\n".join("\n".join(head(table)) for table in TABLES), encoding="utf-8")
    monkeypatch.setattr(heuristics_table, "DOCS", path)
    assert heuristics_table.main(["--dry-run", "--update"]) == 0
    assert capsys.readouterr().out.strip() == path.read_text(encoding="utf-8").strip()
