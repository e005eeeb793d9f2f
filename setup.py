"""The one thing pyproject.toml cannot say: how the kernel's C extension is built.

The extension is optional. Without Cython, a compiler or `xxhash.h` the package installs all the
same, and `topics.kernel` falls back to its pure twin with a warning.
"""

import os
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

KERNEL = Path("src/topics/kernel")


def find_xxhash_dir() -> str | None:
    """Where `xxhash.h` is: the system's (libxxhash-dev), else the one that pyarrow ships."""
    places = [Path(folder) for folder in os.environ.get("CPATH", "").split(os.pathsep) if folder]
    places += [Path("/usr/local/include"), Path("/usr/include")]
    places += [Path(sysconfig.get_path("data")) / "include"]
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional source of one header
    except ImportError:
        pass
    else:
        places.append(Path(pa.get_include()) / "arrow" / "vendored" / "xxhash")
    return next((str(place) for place in places if (place / "xxhash.h").is_file()), None)


def native_extensions() -> list[Extension]:
    xxhash_dir = find_xxhash_dir()
    try:
        from Cython.Build import cythonize  # noqa: PLC0415 - optional, like the extension
    except ImportError:
        return []
    if xxhash_dir is None:
        return []
    native = Extension(
        "topics.kernel._native",
        sources=[str(KERNEL / "_native.pyx")],
        depends=[str(part) for part in sorted((KERNEL / "native").glob("*.pxi"))],
        include_dirs=[xxhash_dir],
        # No -march=native: the wheel must run on another machine than the one that built it.
        extra_compile_args=["-O3"],
    )
    extensions: list[Extension] = cythonize([native], build_dir="build/cython")
    for extension in extensions:
        extension.optional = True  # cythonize makes new objects and forgets this
    return extensions


setup(ext_modules=native_extensions())
