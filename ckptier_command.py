"""The ``ckptier`` command's first step: make sure that ``replicate`` is ours.

PyPI has an unrelated package with the import name ``replicate``.  Where both are
installed either may win, and an ImportError would not tell anybody why.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

CLASH = """\
ckptier: the Python package `replicate` that is found first is not ckptier's:
  {found}
An unrelated package from PyPI has the same import name. Install ckptier into a virtual
environment of its own, or remove the other one: pip uninstall replicate
"""


def entry() -> None:
    """Run the command; exits 1 with an explanation where another ``replicate`` shadows ours."""
    spec = find_spec("replicate")
    folders = (spec.submodule_search_locations if spec else None) or ()
    if not any((Path(folder) / "cli" / "main.py").is_file() for folder in folders):
        # Looked up as files: importing a stranger's package only to find out would run it.
        sys.stderr.write(CLASH.format(found=spec.origin if spec else "not found at all"))
        raise SystemExit(1)
    from replicate.cli.main import main  # noqa: PLC0415 - only after the check

    main()


if __name__ == "__main__":
    entry()
