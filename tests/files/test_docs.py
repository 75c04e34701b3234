"""docs/files.md: the command for sacct and the options it names are those of the code."""

import inspect
from pathlib import Path

from gangline.envs.files import kueue, volcano
from gangline.envs.workloads.traces import sacct

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "files.md").read_text(encoding="utf-8")


def test_the_page_asks_sacct_for_the_columns_that_the_error_asks_for():
    assert sacct.COMMAND.split(" -o ")[1] in PAGE


def test_the_page_names_every_option_of_the_loader_and_every_kind_that_is_read():
    options = [p.name for p in inspect.signature(sacct.load).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        assert f"`{option}`" in PAGE or option in ("gpus_per_pod", "checkpoint_interval_ms"), option
    fields = [name for name in kueue.Manifests.__dataclass_fields__ if name != "unknown"]
    assert [name for name in fields if f"`{name}`" not in PAGE] == []
    assert [kind for (_, kind) in (*kueue.KINDS, *volcano.KINDS) if kind not in PAGE] == []
