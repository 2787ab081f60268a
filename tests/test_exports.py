"""The public names are exactly those we promise, and importing them is cheap."""

from __future__ import annotations

import subprocess
import sys

import foretell


def test_every_exported_name_exists() -> None:
    for name in foretell.__all__:
        assert getattr(foretell, name) is not None


def test_lazy_names_and_promised_names_are_the_same() -> None:
    assert set(foretell._HOME) | {"__version__"} == set(foretell.__all__)


def test_predict_is_the_function_even_after_its_package_was_imported() -> None:
    code = (
        "import foretell.predictors.registry, foretell; from foretell import predict; "
        "assert callable(foretell.predict) and callable(predict)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_foretell_does_not_import_torch_or_numpy() -> None:
    code = "import foretell, sys; assert not {'torch', 'numpy', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
