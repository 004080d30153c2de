"""Checks deploy/ without a cluster: renders every overlay, and compares the result with the API's schemas
(kubernetes-validate), with kubectl's own rendering if kubectl is installed, and with itself: ranks,
addresses, ports, health names, grace periods.

Custom kinds have no schema. Their pods and jobs are checked as Pod and Job, and all other keys against
custom_kinds.yaml.
"""

import copy
import json
import pathlib
import re
import shutil
import subprocess
import sys

import kubernetes_validate
import yaml

from render import RenderError, render

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
API_VERSION = "1.33"
# Longest drain of a process after SIGTERM.
DRAIN_SECONDS = 20
problems = []


def problem(where, text):
    problems.append(f"{where}: {text}")


def health_names():
    names = {""}
    for proto in (ROOT / "proto").rglob("*.proto"):
        text = proto.read_text()
        package = re.search(r"^package (\S+);", text, re.M).group(1)
        names |= {f"{package}.{name}" for name in re.findall(r"^service (\w+)", text, re.M)}
    return names


def validate(where, item):
    try:
        kubernetes_validate.validate(item, API_VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        problem(where, f"{item['kind']} {item['metadata']['name']}: "
                       f"{'/'.join(map(str, error.path))}: {error.message}")


def pod_templates(item):
    """Yields (name, number of pods, template) for every pod template of the object."""
    kind, spec, name = item["kind"], item.get("spec", {}), item.get("metadata", {}).get("name")
    if kind == "StatefulSet":
        yield name, spec["replicas"], spec["template"]
    elif kind == "Job":
        yield name, spec.get("parallelism", 1), spec["template"]
    elif kind == "LeaderWorkerSet":
        group = spec["leaderWorkerTemplate"]
        yield name, spec["replicas"] * group["size"], group["workerTemplate"]
    elif kind == "JobSet":
        for job in spec["replicatedJobs"]:
            inner = job["template"]["spec"]
            yield f"{name}-{job['name']}", inner.get("parallelism", 1), inner["template"]


def check_custom(where, item, known):
    spec = copy.deepcopy(item.get("spec") or
                         {k: v for k, v in item.items() if k not in ("apiVersion", "kind", "metadata")})
    for name, _, template in pod_templates(item):
        validate(where, {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
                         "metadata": {"name": name, **template.get("metadata", {})}})
    if item["kind"] == "JobSet":
        for job in spec["replicatedJobs"]:
            validate(where, {"apiVersion": "batch/v1", "kind": "Job",
                             "metadata": {"name": job["name"]}, "spec": job["template"].pop("spec")})
    elif item["kind"] == "LeaderWorkerSet":
        spec["leaderWorkerTemplate"]["workerTemplate"] = {}
    key = f"{item['apiVersion']} {item['kind']}"
    for path in sorted(set(_paths(spec)) - set(known[key])):
        problem(where, f"{item['kind']}: {path}: no such field")


def check_object(where, item, known):
    try:
        if f"{item['apiVersion']} {item['kind']}" in known:
            check_custom(where, item, known)
        else:
            validate(where, item)
    except kubernetes_validate.SchemaNotFoundError:
        problem(where, f"{item['apiVersion']} {item['kind']} is in neither the API's schemas nor "
                       "custom_kinds.yaml")


def _paths(value, prefix=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield prefix + key
            yield from _paths(inner, f"{prefix}{key}.")
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner, prefix)


def argument(container, flag):
    args = container.get("args", [])
    return args[args.index(flag) + 1] if flag in args else None


def check_pod(where, template, services):
    spec = template["spec"]
    for container in spec["containers"] + spec.get("initContainers", []):
        mounts = {m["name"] for m in container.get("volumeMounts", [])}
        if missing := mounts - {v["name"] for v in spec.get("volumes", [])}:
            problem(where, f"container {container['name']}: no volume {sorted(missing)}")
        listen = argument(container, "--health-listen")
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe not in container:
                if listen is not None:
                    problem(where, f"container {container['name']} has no {probe}")
                continue
            grpc = container[probe]["grpc"]
            if listen is None or grpc["port"] != int(listen.rsplit(":", 1)[1]):
                problem(where, f"{probe} uses port {grpc['port']}, but --health-listen is {listen}")
            if grpc.get("service", "") not in services:
                problem(where, f"{probe}: no health name {grpc['service']}")
        if listen is None:
            continue
        paths = {m["mountPath"] for m in container["volumeMounts"]}
        if "/dev/shm" not in paths:
            problem(where, f"container {container['name']} has only the default /dev/shm of 64 MiB; mount a larger one")
        if spec.get("terminationGracePeriodSeconds", 30) < 2 * DRAIN_SECONDS:
            problem(where, "terminationGracePeriodSeconds leaves no time after the drain")


def check_group_secret(where, name, container):
    """Ranks in separate pods authenticate with a group secret, which no manifest contains."""
    found = [e for e in container.get("env", []) if e["name"] == "TANDEM_GROUP_SECRET"]
    reference = found[0].get("valueFrom", {}).get("secretKeyRef") if len(found) == 1 else None
    if reference is None or reference.get("optional"):
        problem(where, f"{name}: expected TANDEM_GROUP_SECRET from a required secret")


def check_run(where, objects):
    """Checks that the ranks and addresses in run.yaml match the objects."""
    maps = [o for o in objects if o["kind"] == "ConfigMap" and o["metadata"]["name"] == "tandem-run"]
    run = yaml.safe_load(maps[0]["data"]["run.yaml"])
    pods = {name: (count, template) for item in objects for name, count, template in pod_templates(item)}
    hosts = {}
    for item in objects:
        domain = item["metadata"]["name"] if item["kind"] in ("JobSet", "LeaderWorkerSet") \
            else item.get("spec", {}).get("serviceName")
        for name, count, template in pod_templates(item):
            inner = f"{name}-0" if item["kind"] == "JobSet" else name
            for index in range(count if domain else 0):
                hosts[f"{inner}-{index}.{domain}"] = template["spec"]["containers"][0]

    def check_address(key, address):
        host, port = address.rsplit(":", 1)
        if host not in hosts:
            problem(where, f"{key}: {address}: no such pod; found {sorted(hosts)}")
        elif argument(hosts[host], "--listen").rsplit(":", 1)[1] != port:
            problem(where, f"{key}: {address}: the pod listens on {argument(hosts[host], '--listen')}")

    check_address("trainer.endpoint", run["trainer"]["endpoint"])
    for address in run["rollout"]["endpoints"]:
        check_address("rollout.endpoints", address)
    if run["rollout"].get("replicas") != len(run["rollout"]["endpoints"]):
        problem(where, "rollout.replicas differs from the number of rollout.endpoints")
    ranks = run["trainer"]["ranks"]
    for name, (count, template) in pods.items():
        component = template["metadata"]["labels"]["app.kubernetes.io/component"]
        expected = {"trainer": ranks, "rollout": run["rollout"]["replicas"], "driver": 1}[component]
        if count != expected:
            problem(where, f"{name}: {count} pods, but run.yaml says {expected}")
        environment = {e["name"]: e.get("value") for e in
                       template["spec"]["containers"][0].get("env", [])}
        if "WORLD_SIZE" in environment and environment["WORLD_SIZE"] != str(ranks):
            problem(where, f"{name}: WORLD_SIZE differs from trainer.ranks, {ranks}")
        if component == "trainer" and ranks > 1:
            check_group_secret(where, name, template["spec"]["containers"][0])
        if environment.get("MASTER_ADDR") and environment["MASTER_ADDR"] not in hosts:
            problem(where, f"{name}: MASTER_ADDR: no pod {environment['MASTER_ADDR']}")


def check_kubectl(where, folder, objects):
    if shutil.which("kubectl") is None:
        return "not compared with kubectl, which is not installed"
    answer = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True,
                            timeout=60, check=False)
    if answer.returncode != 0:
        problem(where, answer.stderr.strip())
        return "refused by kubectl"
    theirs = [o for o in yaml.safe_load_all(answer.stdout) if o]

    def in_order(items):
        return sorted(json.dumps(i, sort_keys=True) for i in items)

    for ours, other in zip(in_order(objects), in_order(theirs)):
        if ours != other:
            problem(where, f"kubectl renders it differently:\n  {ours}\n  {other}")
            break
    if len(objects) != len(theirs):
        problem(where, f"kubectl renders {len(theirs)} objects, not {len(objects)}")
    return "rendered like kubectl"


def check_overlay(folder, known):
    where = str(folder.relative_to(ROOT))
    try:
        objects = render(folder)
    except (RenderError, OSError, yaml.YAMLError, KeyError) as error:
        problem(where, f"{type(error).__name__}: {error}")
        return
    services = health_names()
    names = [(o["kind"], o["metadata"]["name"]) for o in objects]
    for twice in {n for n in names if names.count(n) > 1}:
        problem(where, f"{twice} is defined twice")
    for item in objects:
        check_object(where, item, known)
        for _, _, template in pod_templates(item):
            check_pod(where, template, services)
    check_run(where, objects)
    print(f"{where}: {len(objects)} objects, {check_kubectl(where, folder, objects)}", file=sys.stderr)


def main():
    known = yaml.safe_load((pathlib.Path(__file__).parent / "custom_kinds.yaml").read_text())
    folders = [DEPLOY / "kubernetes/base", *sorted((DEPLOY / "kubernetes/overlays").iterdir())]
    for folder in folders:
        check_overlay(folder, known)
    # Also check every file on its own, including those outside any kustomization.
    for path in sorted([*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.json")]):
        where = path.relative_to(ROOT)
        try:
            items = list(yaml.safe_load_all(path.read_text()))  # JSON is YAML
        except yaml.YAMLError as error:
            problem(where, str(error))
            continue
        for item in items:
            if isinstance(item, dict) and {"apiVersion", "kind"} <= set(item) and \
                    item["kind"] != "Kustomization":
                check_object(where, item, known)
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
