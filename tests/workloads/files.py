"""Where the data files are: the folder that GANGLINE_DATA names, else `shared/data` in or beside the repository."""

import gzip
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACES = [ROOT / "shared" / "data", ROOT.parent / "shared" / "data"]
if "GANGLINE_DATA" in os.environ:
    PLACES = [Path(os.environ["GANGLINE_DATA"])]


def data(name: str) -> Path:
    """The path of a data file; the test is skipped where it is absent."""
    for place in PLACES:
        if (place / name).is_file():
            return place / name
    pytest.skip(f"no data file {name}; looked in {', '.join(map(str, PLACES))} (set GANGLINE_DATA)")


def write(path: Path, text: str, *, newline: str = "\n", bom: bool = False) -> Path:
    """A text file; packed when its name ends in .gz."""
    content = (b"\xef\xbb\xbf" if bom else b"") + text.replace("\n", newline).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
