"""ctl_json_fields.py PAGE OBJECT=FILE ...: says which fields the JSON in the files and the section JSON of the page do
not have in common.  OBJECT is a heading's "JSON of OBJECT"; all fields of all objects have to come in some file.
"""

import json
import re
import sys
from typing import Any, Dict, Set, Tuple

Fields = Dict[str, str]  # for each field the name of its object, or ""


def read_page(path: str) -> Dict[str, Fields]:
    page: Dict[str, Fields] = {}
    name = ""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith((".Sh", ".Ss")):
                match = re.fullmatch(r"\.Ss JSON of (.*)\n", line)
                name = match[1] if match else ""
            elif name and (match := re.fullmatch(r"\.It Li (\w+)(?: Em (.*))?\n", line)):
                page.setdefault(name, {})[match[1]] = match[2] or ""
    return page


def main() -> int:
    page = read_page(sys.argv[1])
    seen: Set[Tuple[str, str]] = set()
    problems: Set[str] = set()

    def walk(name: str, value: Any) -> None:
        if isinstance(value, list):
            for one in value:
                walk(name, one)
        if not isinstance(value, dict):
            return
        for key, below in value.items():
            if key not in page.get(name, {}):
                problems.add(f"{name}: {key} is printed, and not in the page")
                continue
            seen.add((name, key))
            walk(page[name][key], below)

    for arg in sys.argv[2:]:
        name, path = arg.split("=", 1)
        with open(path, encoding="utf-8") as file:
            walk(name, json.load(file))
    for name, fields in page.items():
        for key in fields:
            if (name, key) not in seen:
                problems.add(f"{name}: {key} is in the page, and never printed")
    print("\n".join(sorted(problems)))
    return bool(problems)


sys.exit(main())
