"""Prints, as JSON, what the alternative consists of: versions, libraries, and how much is installed for it."""

import json
import os
import pathlib
import platform
import subprocess


def lines(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def installed(*packages):
    """Return the MiB of Debian packages and all that they depend on, as far as they are installed; None if unknown."""
    try:
        depends = lines("apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks",
                        "--no-replaces", "--no-enhances", "--installed", *packages)
        names = {line for line in depends if line and not line.startswith((" ", "<", "|"))}
        sizes = dict(line.split("\t") for line in lines("dpkg-query", "-W", "-f", "${Package}\t${Installed-Size}\n"))
    except (OSError, subprocess.CalledProcessError):
        return None
    return round(sum(int(sizes.get(name.split(":")[0]) or 0) for name in names) / 1024)


def main():
    import torch  # what cannot be imported ends this with a message

    torch.ones(2, 2) @ torch.ones(2, 2)
    maps = pathlib.Path("/proc/self/maps")
    blas = set()
    if maps.exists():
        blas = {os.path.realpath(line.split()[-1]) for line in maps.read_text().splitlines() if "blas" in line.split()[-1]}
    print(json.dumps({
        "python": platform.python_version(),
        "torch": torch.__version__,
        "capability": torch.__config__.show().split("CPU capability usage: ")[1].split()[0],
        "blas": sorted(blas),
        "blas_kernels": os.environ.get("OPENBLAS_CORETYPE", ""),
        "installed_mib": installed("python3-torch", "libopenblas0-openmp"),
        "torch_mib": installed_alone("python3-torch", "libtorch1.13"),
    }))


def installed_alone(*packages):
    """Return the MiB of packages without what they depend on; None if unknown."""
    try:
        sizes = lines("dpkg-query", "-W", "-f", "${Installed-Size}\n", *packages)
    except (OSError, subprocess.CalledProcessError):
        return None
    return round(sum(map(int, sizes)) / 1024)


if __name__ == "__main__":
    main()
