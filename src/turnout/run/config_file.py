"""Reads `turnout.yaml` into a mapping. A name that is given twice is refused: YAML's own way is to lose the first without a word."""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, cast

import yaml
from yaml.reader import ReaderError

from turnout.errors import Misconfigured


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if isinstance(key, yaml.ScalarNode):
                name = (key.tag, str(key.value))
                if name in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value} is given twice", problem_mark=key.start_mark
                    )
                seen.add(name)
        return super().construct_mapping(node, deep)


def read_config_file(path: Path) -> Mapping[str, Any]:
    """Raises Misconfigured."""
    try:
        # Bytes: YAML is UTF-8 or UTF-16 and says which, whatever this machine's locale is.
        content: object = yaml.load(path.read_bytes(), _Loader)
    except OSError as err:
        raise Misconfigured(f"{path}: {err.strerror}") from err
    except yaml.MarkedYAMLError as err:
        line = err.problem_mark.line + 1 if err.problem_mark else 1
        raise Misconfigured(f"{path}:{line}: {err.problem}") from err
    except ReaderError as err:
        raise Misconfigured(f"{path}: this is no text in UTF-8 ({err.reason}): save it as that") from err
    except (yaml.YAMLError, ValueError, RecursionError) as err:
        raise Misconfigured(f"{path}: {err}") from err
    return named_values(content or {}, str(path))


def named_values(value: object, where: str) -> Mapping[str, Any]:
    """A mapping as the file has it. Raises Misconfigured."""
    if not isinstance(value, Mapping):
        raise Misconfigured(f"{where}: expected a mapping of names to values")
    for name in cast("Mapping[object, Any]", value):
        if not isinstance(name, str):
            raise Misconfigured(f"{where}: a name is text; put {name} into quotes")
    return cast("Mapping[str, Any]", value)
