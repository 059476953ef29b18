"""``scripts/env.sh`` makes a working environment on machines that lack one thing or another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools

SCRIPT = Path(__file__).parents[1] / "scripts" / "env.sh"
PROBE = "import tilewright, numpy, llvmlite; print(tilewright.__version__)"


def env_sh(env: Path, absent: Path | None = None, **variables: str) -> subprocess.CompletedProcess:
    """Run the script; Python modules in ``absent`` hide the machine's own."""
    # The interpreter under this environment: it is what has, or lacks, pip and ensurepip.
    python = shutil.which(Path(sys.executable).resolve().as_posix()) or "python3"
    full = {**os.environ, "PYTHON": python, "NO_UV": "1", "PYTHONPATH": str(absent or "")}
    command = [str(SCRIPT), str(env), "core"]
    return subprocess.run(command, env=full | variables, capture_output=True, text=True)


def lacking(folder: Path, *modules: str) -> Path:
    """A folder whose modules can't be imported, as where a distribution leaves them out."""
    folder.mkdir()
    for module in modules:
        (folder / f"{module}.py").write_text(f"raise ImportError('no {module} here')\n")
    return folder


def works(env: Path) -> bool:
    bare = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([env / "bin" / "python", "-c", PROBE], env=bare)
    return done.returncode == 0 and (env / "bin" / "tilewright").exists()


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["ensurepip", "pip"])
def test_an_environment_without(missing: str, tmp_path: Path) -> None:
    """Debian's python3 has no ensurepip unless python3-venv is installed; others have no pip."""
    absent = lacking(tmp_path / "absent", missing)
    env = tmp_path / "env"
    done = env_sh(env, absent)
    assert done.returncode == 0, done.stderr
    assert works(env)

    assert env_sh(env, absent).stderr == "", "an unchanged project is not installed again"

    (env / ".stamp-core").unlink()  # an installation that was interrupted
    shutil.rmtree(env / "bin")
    done = env_sh(env, absent)
    assert "installing" in done.stderr and works(env)


def test_no_way_to_install_is_said(tmp_path: Path) -> None:
    done = env_sh(tmp_path / "env", lacking(tmp_path / "absent", "pip", "ensurepip"))
    assert done.returncode == 1
    assert "install uv, python3-pip or python3-venv" in done.stderr


def test_an_old_python_is_refused(tmp_path: Path) -> None:
    done = env_sh(tmp_path / "env", PYTHON="no-such-python")
    assert done.returncode == 1
    assert "no Python 3.11 or newer" in done.stderr


def test_a_foreign_directory_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "env" / "kept"
    kept.parent.mkdir()
    kept.touch()
    done = env_sh(kept.parent)
    assert done.returncode == 1
    assert "was not made by this script" in done.stderr
    assert kept.exists()
