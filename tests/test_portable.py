"""Nothing that only POSIX systems have is needed to import the package."""

import subprocess
import sys

POSIX_ONLY = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
ATTRIBUTES = ("fork", "getuid", "posix_fallocate", "sched_getaffinity")
MODULES = "train.lab workers.named workers.code core.study commands cli registry watch report.page"


def test_the_package_is_imported_where_posix_modules_are_missing():
    """Modules of Python itself that need them were imported before; those of saccade and filelock
    find none.
    """
    before = "subprocess, multiprocessing.connection, tempfile, pathlib, asyncio, getpass, numpy"
    before += ", jax, xarray, h5netcdf, rich.console, matplotlib, altair, torch"
    code = f"""
import importlib, os, signal, sys
import {before}

for name in {POSIX_ONLY!r}:
    sys.modules[name] = None
for name in {ATTRIBUTES!r}:
    if hasattr(os, name):
        delattr(os, name)
del signal.SIGKILL
for name in {MODULES!r}.split():
    importlib.import_module(f"saccade.{{name}}")
print("imported")
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout == "imported\n", done.stderr
