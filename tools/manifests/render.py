"""Renders like `kubectl kustomize FOLDER`, for the subset of kustomize that deploy/kubernetes uses.

A kustomization may have: resources, namespace, images (newTag), configMapGenerator (files, options,
behavior replace) without name suffixes, and patches with a target: JSON patches (RFC 6902) or `$patch: delete`.
Anything else is an error, so that the result never silently differs from kustomize.
"""

import copy
import pathlib
import sys

import yaml

KNOWN = {"apiVersion", "kind", "namespace", "resources", "images", "configMapGenerator",
         "generatorOptions", "patches"}
CLUSTER_KINDS = {"Namespace", "PersistentVolume"}


class RenderError(Exception):
    pass


def render(folder):
    """The objects of a folder with a kustomization.yaml, as dicts."""
    folder = pathlib.Path(folder)
    path = folder / "kustomization.yaml"
    spec = yaml.safe_load(path.read_text())
    if unknown := set(spec) - KNOWN:
        raise RenderError(f"{path}: {sorted(unknown)} is not rendered here")
    objects = []
    for resource in spec.get("resources", []):
        found = folder / resource
        objects += render(found) if found.is_dir() else list(yaml.safe_load_all(found.read_text()))
    _generate_config_maps(folder, spec, objects)
    for patch in spec.get("patches", []):
        objects = _patch(folder, patch, objects)
    for item in objects:
        if "namespace" in spec and item["kind"] not in CLUSTER_KINDS:
            item["metadata"]["namespace"] = spec["namespace"]
        for image in spec.get("images", []):
            _set_tag(item, image["name"], image["newTag"])
    return objects


def _generate_config_maps(folder, spec, objects):
    generators = spec.get("configMapGenerator", [])
    if generators and not spec.get("generatorOptions", {}).get("disableNameSuffixHash"):
        raise RenderError(f"{folder}: config maps without disableNameSuffixHash are not rendered here")
    for generator in generators:
        data = {pathlib.Path(name).name: (folder / name).read_text() for name in generator["files"]}
        existing = [o for o in objects if _matches(o, {"kind": "ConfigMap", "name": generator["name"]})]
        if generator.get("behavior") == "replace":
            if len(existing) != 1:
                raise RenderError(f"{folder}: no config map {generator['name']} to replace")
            existing[0]["data"] = data
        else:
            metadata = {"name": generator["name"], **generator.get("options", {})}
            objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                            "data": data})


def _matches(item, target):
    return (item["kind"] == target["kind"] and
            target.get("name", item["metadata"]["name"]) == item["metadata"]["name"])


def _patch(folder, patch, objects):
    text = (folder / patch["path"]).read_text() if "path" in patch else patch["patch"]
    change = yaml.safe_load(text)
    chosen = [o for o in objects if _matches(o, patch["target"])]
    if not chosen:
        raise RenderError(f"{folder}: patch of {patch['target']}: no such object")
    if isinstance(change, list):
        for item in chosen:
            for operation in change:
                _apply(item, operation, folder)
        return objects
    if change.get("$patch") == "delete":
        return [o for o in objects if not any(o is c for c in chosen)]
    raise RenderError(f"{folder}: strategic merge patches are not rendered here")


def _apply(item, operation, folder):
    where = [p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:]]
    try:
        for key in where[:-1]:
            item = item[int(key)] if isinstance(item, list) else item[key]
        last = where[-1]
        if operation["op"] not in ("add", "replace"):
            raise RenderError(f"{folder}: {operation['op']} is not rendered here")
        value = copy.deepcopy(operation["value"])
        if isinstance(item, list):
            if last == "-":
                item.append(value)
            elif operation["op"] == "add":
                item.insert(int(last), value)
            else:
                item[int(last)] = value
        else:
            if operation["op"] == "replace" and last not in item:
                raise KeyError(last)
            item[last] = value
    except (KeyError, IndexError) as error:
        raise RenderError(f"{folder}: {operation['path']}: no {error}") from error


def _set_tag(item, name, tag):
    if isinstance(item, list):
        for entry in item:
            _set_tag(entry, name, tag)
    elif isinstance(item, dict):
        for key, value in item.items():
            if key in ("containers", "initContainers"):
                for container in value:
                    if container["image"].split(":")[0] == name:
                        container["image"] = f"{name}:{tag}"
            else:
                _set_tag(value, name, tag)


if __name__ == "__main__":
    print(yaml.safe_dump_all(render(sys.argv[1]), sort_keys=False), end="")
