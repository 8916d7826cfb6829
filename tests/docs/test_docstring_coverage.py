"""Every public name has a page in the API reference, and every parameter of it is documented."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

from numpydoc.docscrape import ClassDoc, FunctionDoc

import vrtd

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "algorithms",
    "engine",
    "estimator",
    "features",
    "lab",
    "logs",
    "problems",
    "sources",
    "sweeps",
    "theory",
    "tournament",
)
MODULES = ("errors", "metrics", "plots", "sklearn")
LISTED = re.findall(r"^   (vrtd\.[\w.]+)$", (ROOT / "docs/api/index.md").read_text(), re.MULTILINE)


def find(name: str) -> Any:
    """Return the object with this dotted name."""
    found: Any = vrtd
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield what `vrtd` and its packages export, and what public modules define."""
    for name in vrtd.__all__:
        if not inspect.ismodule(getattr(vrtd, name)):
            yield f"vrtd.{name}", getattr(vrtd, name)
    for package in PACKAGES:
        module = import_module(f"vrtd.{package}")
        for name in re.findall(r" as (\w+)$", Path(str(module.__file__)).read_text(), re.MULTILINE):
            yield f"vrtd.{package}.{name}", getattr(module, name)
    for name in MODULES:
        module = import_module(f"vrtd.{name}")
        for key, value in vars(module).items():
            if not key.startswith("_") and getattr(value, "__module__", None) == module.__name__:
                yield f"vrtd.{name}.{key}", value


def public_callables() -> Iterator[tuple[str, Any]]:
    """Yield each public function, class and method once, with its name."""
    seen: set[int] = set()
    for name in LISTED:
        value = find(name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield name, value
        if inspect.isclass(value):
            for key, member in inspect.getmembers(value, inspect.isroutine):
                function = getattr(member, "__func__", member)
                is_ours = callable(member) and (getattr(function, "__module__", None) or "").startswith("vrtd.")
                is_field = key in getattr(value, "__dataclass_fields__", {})
                if is_ours and not is_field and not key.startswith("_") and id(function) not in seen:
                    seen.add(id(function))
                    yield f"{name}.{key}", member


def named(function: Callable[..., Any]) -> list[str]:
    """Return the parameters of a signature as numpydoc spells them."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = inspect.signature(function).parameters.values()
    return [stars.get(p.kind, "") + p.name for p in parameters if p.name not in ("self", "cls", "_cls")]


def documented(section: Any) -> list[str]:
    """Return the names of a section; related ones share an entry."""
    return [name.strip() for entry in section for name in entry.name.split(",")]


def test_each_public_object_is_in_the_reference_once() -> None:
    listed = [id(find(name)) for name in LISTED]
    assert len(listed) == len(set(listed))
    missing = [name for name, value in public_objects() if id(value) not in listed]
    assert not missing


def find_faults(documentee: Any) -> list[str]:
    """Return what the docstring of a class or function lacks."""
    if inspect.isclass(documentee):
        sections, faults = ClassDoc(documentee, config={"show_class_members": False}), []
        names = documented(sections["Parameters"])
        is_raised = issubclass(documentee, Exception) and not names  # only code that raises it sees its parameters
        expected = [] if is_raised or issubclass(documentee, Enum) else named(documentee)
        attributes = documented(sections["Attributes"])
        names = names or [name for name in attributes if name in expected]
    else:
        sections, expected, faults = FunctionDoc(documentee), named(documentee), []
        names = documented(sections["Parameters"])
        returned = inspect.signature(documentee).return_annotation
        if returned not in (None, "None", "NoReturn") and not (sections["Returns"] or sections["Yields"]):
            faults.append(f"no Returns for {returned}")
    if names != expected:
        faults.append(f"documents {names}, takes {expected}")
    if not sections["Summary"]:
        faults.append("no summary")
    return faults + [f"no text for {entry.name}" for entry in sections["Parameters"] if not "".join(entry.desc).strip()]


def test_parameters_are_documented() -> None:
    faults = {name: find_faults(value) for name, value in public_callables()}
    assert len(faults) > 200
    assert not {name: each for name, each in faults.items() if each}


def test_a_missing_and_an_unknown_parameter_are_noticed() -> None:
    class Planted:
        """Do nothing.

        Parameters
        ----------
        there : int
            A number.
        gone : int
            A number that is no longer a parameter.
        """

        def __init__(self, there: int, new: int) -> None: ...

    assert find_faults(Planted) == ["documents ['there', 'gone'], takes ['there', 'new']"]
