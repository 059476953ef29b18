"""The command: what it says, and its exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import ptx
from tilewright.cli import main, parser
from tilewright.cli.product_check import GemmOperands, check_product

pytestmark = pytest.mark.vm

TINY = ["--config", "32x32x32:1x1:2", "--device", "vm"]


def run_cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    code = main(arguments)
    return code, *capsys.readouterr()


def test_gemm_multiplies_and_checks(capsys: Any) -> None:
    code, out, _ = run_cli(capsys, "gemm", "64", "96", "64", "--d", "f32", "--repeat", "1", *TINY)
    assert code == 0
    for words in ("64×96×64 f16 TN → f32", "vm, the virtual machine", "FLOP/s", "right"):
        assert words in out


def test_gemm_repeats_itself(capsys: Any) -> None:
    sizes = ["gemm", "64", "64", "64", "--beta", "1", *TINY]
    bits = []
    for seed in ("1", "1", "2"):
        out = run_cli(capsys, *sizes, "--seed", seed)[1]
        bits += re.findall(r"bits +(\w{16})", out)
    assert bits[0] == bits[1] != bits[2]


@pytest.mark.parametrize("sizes", [("0", "4", "4"), ("4", "4", "0")])
def test_gemm_of_nothing(capsys: Any, sizes: tuple[str, ...]) -> None:
    assert run_cli(capsys, "gemm", *sizes, *TINY)[0] == 0


def test_a_missing_product_is_seen() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((256, 256)).astype(np.float16) for _ in range(2))
    d = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    assert check_product(GemmOperands(a, b, d), "f32", rng).passed
    d[7, 9] -= np.float32(a[7, 0] * b[0, 9])
    found = check_product(GemmOperands(a, b, d), "f32", rng)
    assert not found.passed and found.location == (7, 9)
    d[7, 9] = np.nan
    assert not check_product(GemmOperands(a, b, d), "f32", rng).passed


def test_a_large_result_is_sampled() -> None:
    rng = np.random.default_rng(0)
    a, b, d = np.zeros((4096, 1024)), np.zeros((1024, 1024)), np.zeros((4096, 1024), np.float32)
    found = check_product(GemmOperands(a, b, d), "f32", rng)
    assert found.passed and "256 of 4096 rows × 1024 of 1024 columns" in found.checked_elements


def test_plan_explains(capsys: Any) -> None:
    code, out, _ = run_cli(capsys, "plan", "512", "512", "512", "--a", "bf16", "--device", "vm")
    assert code == 0 and "bf16 TN" in out and "waves" in out


def test_ptx_prints_the_kernel(capsys: Any) -> None:
    code, out, _ = run_cli(capsys, "ptx", "64", "64", "64", *TINY)
    assert code == 0
    assert not ptx.problems(ptx.parse(out))


WRONG = {
    "a syntax error": ("add.u32 %r1, %r2, ;", "^"),
    "an unknown opcode": ("ad.u32 %r1, %r2, 5;", "no instruction 'ad.u32'"),
    "a wrong operand count": ("add.u32 %r1, %r2;", "got 2 operands"),
}


@pytest.mark.parametrize(("line", "words"), WRONG.values(), ids=WRONG)
def test_ptx_points_at_what_is_wrong(capsys: Any, tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "wrong.ptx"
    head = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f()\n{\n"
    file.write_text(f"{head}\t.reg .u32 %r<3>;\n\t{line}\n\tret;\n}}\n")
    code, out, err = run_cli(capsys, "ptx", str(file))
    assert (code, out) == (2, "")
    assert f"{file}:7:" in err and words in err and "^" in err and "Traceback" not in err
    file.write_text(file.read_text().replace(line, "add.u32 %r1, %r2, 5;"))
    code, out, _ = run_cli(capsys, "ptx", str(file))
    assert code == 0 and "no errors" in out


MISUSE = {
    "no such file": (("ptx", "/no/such/file"), "/no/such/file: No such file"),
    "two sizes": (("ptx", "4", "4"), "ptx takes M N K or one file"),
    "a type": (("gemm", "4", "4", "4", "--a", "s32"), "a must be one of f16"),
    "two types": (
        ("gemm", "4", "4", "4", "--a", "f16", "--b", "bf16"),
        "b must be f16 if a is f16",
    ),
    "a configuration": (("gemm", "4", "4", "4", "--config", "big"), "such as 128x128x32"),
    "a device": (("gemm", "4", "4", "4", "--device", "tpu"), "unknown device 'tpu'"),
    "a size": (("gemm", "-4", "4", "4", "--device", "vm"), "at least 0"),
    "cuda": (("gemm", "4", "4", "4", "--device", "cuda:77"), "hint: |there are"),
}


@pytest.mark.parametrize(("arguments", "words"), MISUSE.values(), ids=MISUSE)
def test_misuse_is_one_message(capsys: Any, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = run_cli(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and re.search(words, err) and "Traceback" not in err


UNPARSED = {
    "no sizes": (("gemm",), "required: M, N, K"),
    "no K": (("gemm", "1", "2"), "required: K"),
    "no K to plan": (("plan", "1", "2"), "required: K"),
    "alpha": (
        ("gemm", "1", "2", "3", "--alpha", "nan"),
        "must be a finite number, got 'nan'",
    ),
    "beta": (("gemm", "1", "2", "3", "--beta", "inf"), "beta: must be a finite number, got 'inf'"),
}


@pytest.mark.parametrize(("arguments", "words"), UNPARSED.values(), ids=UNPARSED)
def test_what_does_not_parse_shows_the_usage(
    capsys: Any, arguments: tuple[str, ...], words: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    err = capsys.readouterr().err
    assert stopped.value.code == 2 and words in err and err.startswith("usage: ")


def test_a_programs_options_are_its_own() -> None:
    """Whatever they begin like, the command's own among them."""
    program = ["bin/gemm", "--c=32", "--seed=1", "-m", "5", "--ch", "--help"]
    given = parser().parse_args(["vm", "--seed", "7", "--cudart", *program])
    assert (given.cudart, given.seed) == (program, 7)


def test_doctor_reports(capsys: Any) -> None:
    code, out, _ = run_cli(capsys, "doctor")
    assert code == 0
    for word in ("tilewright", "python", "numpy", "LLVM", "cuda-bindings", "cache", "tuned"):
        assert word in out


@pytest.mark.parametrize(
    ("content", "words", "missing"),
    [
        (None, "absent, no tuning results yet; 25 results shipped", False),
        (b"", "0 results; 25 results shipped", False),
        (b"no database", "can't be read (file is not a database)", True),
    ],
)
def test_doctor_says_what_was_tuned(
    capsys: Any, tmp_path: Path, monkeypatch: Any, content: Any, words: str, missing: bool
) -> None:
    file = tmp_path / "tuned.sqlite"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("TILEWRIGHT_TUNED", str(file))
    code, out, errors = run_cli(capsys, "doctor")
    assert code == 0 and words in " ".join(out.split()) and not errors
    assert (f"move {file} away" in " ".join(out.split())) is missing


def test_doctor_says_that_results_are_off(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("TILEWRIGHT_TUNED", "off")
    assert re.search(r"tuned +off", run_cli(capsys, "doctor")[1])


def shell(command: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(Path(tilewright.__file__).parents[1])}
    return subprocess.run(
        f"{sys.executable} -m {command}", shell=True, env=env, capture_output=True, text=True
    )


def test_the_module_is_the_command() -> None:
    ran = shell("tilewright --version")
    assert (ran.returncode, ran.stdout) == (0, f"tilewright {tilewright.__version__}\n")


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("module", ["tilewright.cli", "numpy"])
def test_ctrl_c_during_imports_ends_quietly(module: str, tmp_path: Path) -> None:
    """As the module is looked for, the process gets a SIGINT."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED)
    path = os.pathsep.join((str(tmp_path), str(Path(tilewright.__file__).parents[1])))
    env = os.environ | {"PYTHONPATH": path, "INTERRUPTED": module}
    script = "import sys; from tilewright.__main__ import main; sys.exit(main())"  # as pip makes it
    for how in (["-m", "tilewright"], ["-c", script]):
        command = [sys.executable, *how, "gemm", "16", "16", "16"]
        ran = subprocess.run(command, env=env, capture_output=True, text=True)
        assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("words", "names"),
    [("run x.ptx", "run"), ("ptx 8 8 8", "plan"), ("--version", ""), ("layout -h", "layout")],
)
def test_a_command_imports_no_other(words: str, names: str) -> None:
    code = (
        f"import sys; sys.argv[1:] = {words.split()}; import tilewright.__main__;"
        "print(*(m[24:] for m in sys.modules if m.startswith('tilewright.cli.commands.')))"
    )
    env = os.environ | {"PYTHONPATH": str(Path(tilewright.__file__).parents[1])}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert ran.stdout.split() == names.split(), ran.stderr


@pytest.mark.parametrize("package", ["numpy", "ml_dtypes", "llvmlite", "rich"])
def test_a_broken_dependency_is_said(package: str, tmp_path: Path) -> None:
    (tmp_path / f"{package}.py").write_text(f"raise ImportError('no {package} here')")
    path = os.pathsep.join((str(tmp_path), str(Path(tilewright.__file__).parents[1])))
    env = os.environ | {"PYTHONPATH": path}
    said = f"tilewright can't start: no {package} here"
    doctor = (2, said) if package == "rich" else (1, f"can't be imported: no {package} here")
    for words, (status, text) in (("gemm 8 8 8 --device vm", (2, said)), ("doctor", doctor)):
        command = [sys.executable, "-m", "tilewright", *words.split()]
        ran = subprocess.run(command, env=env, capture_output=True, text=True)
        assert ran.returncode == status and text in ran.stdout + ran.stderr


def test_the_command_takes_ctrl_c_over_from_its_imports() -> None:
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "import tilewright.__main__;"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    )
    env = os.environ | {"PYTHONPATH": str(Path(tilewright.__file__).parents[1])}
    assert subprocess.run([sys.executable, "-c", code], env=env).returncode == 0


def test_a_closed_pipe_is_no_error() -> None:
    ran = shell("tilewright ptx 64 64 64 --device vm | head -1")
    assert ran.stdout.startswith(".version") and not ran.stderr


@pytest.mark.parametrize(
    "words",
    [
        "8 8 8 --alpha 1e6",  # beyond f16
        "64 64 64 --a bf16 --alpha 1e38",
        "1 8 140000 --a u8",  # beyond s32: modulo 2^32
        "8 8 8 --a tf32 --b tf32",
    ],
)
def test_what_overflows_is_right(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_cli(capsys, "gemm", *words.split(), "--device", "vm", "--repeat", "1")
    assert code == 0 and "result    right" in out


def test_infinity_is_no_excuse() -> None:
    a, rng = np.ones((4, 4), np.float16), np.random.default_rng(0)
    d = np.full((4, 4), np.inf, np.float16)
    assert not check_product(GemmOperands(a, a, d), "f16", rng).passed
    assert check_product(GemmOperands(a, a, d, alpha=1e5), "f16", rng).passed
    assert not check_product(GemmOperands(a, a, -d, alpha=1e5), "f16", rng).passed


@pytest.mark.parametrize(
    "words", ["gemm 8 8 8 --seed -1", "gemm 8 8 8 --repeat x", "tune --budget x"]
)
def test_numbers_that_are_none(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    assert ", got '" in capsys.readouterr().err


def test_a_terminal_that_knows_no_greek() -> None:
    words = [sys.executable, "-m", "tilewright", "gemm", "8", "8", "8", *TINY]
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0 and "8?8?8" in ended.stdout
