"""Prints a CycloneDX SBOM of an image: the Python distributions of one environment and the packages of Debian.

python sbom.py SITE_PACKAGES DPKG_STATUS NAME
"""

import re
import sys
from importlib.metadata import distributions
from pathlib import Path

from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot5
from packageurl import PackageURL


def python_parts(site_packages: str) -> list[Component]:
    return [
        Component(
            name=found.name,
            version=found.version,
            type=ComponentType.LIBRARY,
            bom_ref=f"pypi:{found.name}@{found.version}",
            purl=PackageURL("pypi", name=found.name.lower(), version=found.version),
            properties=[
                Property(name="license", value=found.metadata.get("License-Expression") or "see package")
            ],
        )
        for found in distributions(path=[site_packages])
    ]


def debian_parts(status: str) -> list[Component]:
    entries = re.findall(r"^Package: (\S+)\n.*?^Version: (\S+)$", status, re.MULTILINE | re.DOTALL)
    return [
        Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            bom_ref=f"deb:{name}@{version}",
            purl=PackageURL("deb", "debian", name, version),
        )
        for name, version in entries
    ]


def main(site_packages: str, status: str, name: str) -> None:
    bom = Bom(components=python_parts(site_packages) + debian_parts(Path(status).read_text()))
    bom.metadata.component = Component(name=name, type=ComponentType.CONTAINER, bom_ref=name)
    print(JsonV1Dot5(bom).output_as_string(indent=1))


main(*sys.argv[1:])
