"""Writes the reference of configuration keys, RPCs and metrics beside this file, from the comments of
proto/, common/config/defaults.yaml and metrics.yaml.

    tools/python tools/reference/generate.py             writes config.md, rpcs.md, metrics.md
    tools/python tools/reference/generate.py --check [METRICS.jsonl...]
                       fails where they are not what would be written, where the code names a metric that
                       metrics.yaml does not describe, or the reverse, for names of the given runs, and
                       where README.md or services/trainer/README.md leaves out an algorithm
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import grpc_tools
import yaml
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NOTE = "<!-- Written by tools/reference/generate.py. -->\n"
# Prefixes by which a metric's name is recognised among the literals in the code.
GROUPS = ("actor|async|checkpoint|critic|environment|experts|fleet|perf|prompt_length|response_length|reward|"
          "rollout|rollout_corr|timing_s|train|training|update_weights|val|val-core")


class Protos:
    """Descriptors of every file of proto/, with their comments."""

    def __init__(self):
        with tempfile.NamedTemporaryFile() as out:
            protos = [str(p) for p in sorted((ROOT / "proto/tandem").rglob("*.proto"))]
            code = protoc.main(["protoc", f"-I{ROOT / 'proto'}", "--include_source_info",
                                f"-I{pathlib.Path(grpc_tools.__file__).parent / '_proto'}",
                                f"--descriptor_set_out={out.name}", *protos])
            if code != 0:
                raise SystemExit(f"protoc ended with {code}")
            files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())
        self.files = list(files.file)
        self.comments, self.messages, self.enums = {}, {}, {}
        for file in self.files:
            for location in file.source_code_info.location:
                text = " ".join(location.leading_comments.split())
                self.comments[(file.name, tuple(location.path))] = text
            for i, enum in enumerate(file.enum_type):
                self.enums[f".{file.package}.{enum.name}"] = (file, (5, i), enum)
            for i, message in enumerate(file.message_type):
                self._add_message(file, (4, i), message, f".{file.package}")

    def _add_message(self, file, path, message, scope):
        name = f"{scope}.{message.name}"
        self.messages[name] = (file, path, message)
        for i, inner in enumerate(message.nested_type):
            self._add_message(file, path + (3, i), inner, name)

    def comment(self, file, path):
        return self.comments.get((file.name, tuple(path)), "").replace("|", "\\|")

    def fields(self, name):
        """(field, comment) of a message."""
        file, path, message = self.messages[name]
        return [(f, self.comment(file, path + (2, i))) for i, f in enumerate(message.field)]

    def values(self, name):
        """(value, comment) of an enum, but for the one that states nothing."""
        file, path, enum = self.enums[name]
        return [(v, self.comment(file, path + (2, i))) for i, v in enumerate(enum.value) if v.number]


def is_list(field):
    return field.label == field.LABEL_REPEATED


def word(enum_name, value):
    """How YAML writes an enum's value: without its prefix, in lower case."""
    prefix = re.sub(r"(?<!^)([A-Z])", r"_\1", enum_name.rsplit(".", 1)[1]).upper() + "_"
    return value.name.removeprefix(prefix).lower()


def shown_default(field, value):
    """As a configuration file writes it. PyYAML takes 1e-5 for text."""
    is_number = field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT, field.TYPE_INT64, field.TYPE_INT32)
    return value if is_number and isinstance(value, str) else json.dumps(value)


def without_stated_default(comment, value):
    """The comment without "Default X.", as the column shows what applies: a message that several sections
    share states the default of one of them. A default that is computed (run_dir) is empty there, and stays."""
    stated = re.search(r" ?\bDefault (.+?)\.(?= |$)", comment)
    if stated is None or (value == "" and stated[1] != "empty"):
        return comment
    return comment[:stated.start()] + comment[stated.end():]


def config_reference(protos):
    defaults = yaml.safe_load((ROOT / "common/config/defaults.yaml").read_text())
    lines = [NOTE, "# Configuration keys\n",
             "Keys that `--config FILE` and `--set KEY=VALUE` take. Unknown keys are errors.\n"]

    def section(message, prefix, values):
        lines.append(f"\n## {prefix.rstrip('.') or 'Top level'}\n")
        lines.append(protos.comment(*protos.messages[message][:2]) + "\n")
        lines.append("| key | default | meaning |\n|---|---|---|")
        inner = []
        for field, comment in protos.fields(message):
            value = (values or {}).get(field.name)
            if field.type == field.TYPE_MESSAGE:
                inner.append((field.type_name, f"{prefix}{field.name}{'[]' * is_list(field)}.", value))
                if not is_list(field):
                    continue
            if value is not None:
                comment = without_stated_default(comment, value)
            if field.type == field.TYPE_ENUM:
                choices = "; ".join(f"`{word(field.type_name, v)}`: {c.rstrip('.')}"
                                    for v, c in protos.values(field.type_name))
                comment = f"{comment} {choices}.".lstrip()
            shown = "" if value is None else f"`{shown_default(field, value)}`"
            lines.append(f"| `{prefix}{field.name}` | {shown} | {comment} |")
        for name, path, value in inner:
            section(name, path, value)

    section(".tandem.config.v1.RunConfig", "", defaults)
    return "\n".join(lines) + "\n"


def type_word(field):
    scalar = {field.TYPE_DOUBLE: "double", field.TYPE_FLOAT: "float", field.TYPE_INT64: "int64",
              field.TYPE_UINT64: "uint64", field.TYPE_INT32: "int32", field.TYPE_UINT32: "uint32",
              field.TYPE_BOOL: "bool", field.TYPE_STRING: "string", field.TYPE_BYTES: "bytes"}
    name = scalar.get(field.type) or field.type_name.removeprefix(".tandem.").removeprefix(".")
    return f"repeated {name}" if is_list(field) else name


def rpc_reference(protos):
    lines = [NOTE, "# RPCs\n", "Types without a package belong to the service's package.\n"]
    for file in protos.files:
        for s, service in enumerate(file.service):
            lines.append(f"\n## {file.package}.{service.name}\n")
            lines.append(protos.comment(file, (6, s)) + "\n")
            seen = set()
            for m, method in enumerate(service.method):
                sides = [("stream " if streams else "") + name.rsplit(".", 1)[1] for streams, name in
                         ((method.client_streaming, method.input_type),
                          (method.server_streaming, method.output_type))]
                lines.append(f"### {method.name}\n")
                lines.append(f"`{sides[0]}` to `{sides[1]}`. {protos.comment(file, (6, s, 2, m))}\n")
                for message in (method.input_type, method.output_type):
                    _message(protos, message, file.package, lines, seen)
    return "\n".join(lines) + "\n"


def _message(protos, name, package, lines, seen):
    """A message's fields, then those of the messages in it, each once for a service."""
    if name in seen or name not in protos.messages or not name.startswith(".tandem."):
        return
    seen.add(name)
    fields = protos.fields(name)
    if not fields:
        return
    inner = [f.type_name for f, _ in fields if f.type == f.TYPE_MESSAGE]
    lines.append(f"| `{name.rsplit('.', 1)[1]}` | type | meaning |\n|---|---|---|")
    for field, comment in fields:
        kind = type_word(field).replace(package.removeprefix("tandem.") + ".", "")
        lines.append(f"| `{field.name}` | {kind} | {comment} |")
    lines.append("")
    for message in inner:
        if not protos.messages.get(message, (None, None, None))[2] or \
                not protos.messages[message][2].options.map_entry:
            _message(protos, message, package, lines, seen)


def read_metrics():
    return yaml.safe_load((HERE / "metrics.yaml").read_text())


def metrics_reference():
    lines = [NOTE, "# Metrics\n",
             "The keys of `run_dir/metrics.jsonl`, one object per step. `*` stands for the varying part.\n"]
    for group in read_metrics():
        lines.append(f"\n## {group['group']}\n\n| metric | meaning |\n|---|---|")
        lines += [f"| `{name}` | {meaning} |" for name, meaning in group["metrics"].items()]
    return "\n".join(lines) + "\n"


def check_metrics(runs):
    """Errors: names of the code or of runs without a description, descriptions without a name."""
    described = [name for group in read_metrics() for name in group["metrics"]]
    patterns = {n: re.compile(re.escape(n).replace(r"\*", ".+") + "$") for n in described}
    literals = {}
    files = subprocess.run(["git", "ls-files", "services/*.cc", "tools/tandem/*.cc", "common/*.cc"],
                           cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for path in files:
        text = (ROOT / path).read_text()
        for name in re.findall(rf'"((?:{GROUPS})/[\w/@.]*|(?:prompt|response)_length)"', text):
            literals.setdefault(name, path)
    errors = []
    for name, path in sorted(literals.items()):
        # A literal may be the prefix of a name that the code composes.
        if not any(p.match(name) or d.startswith(name) for d, p in patterns.items()):
            errors.append(f"{path}: {name} is not in tools/reference/metrics.yaml")
    for name in described:
        prefix = name.split("*")[0]
        if not any(literal.startswith(prefix) or prefix.startswith(literal) for literal in literals):
            errors.append(f"tools/reference/metrics.yaml: {name}: no code names it")
    for run in runs:
        for line in pathlib.Path(run).read_text().splitlines():
            for name in json.loads(line):
                if not any(p.match(name) for p in patterns.values()):
                    errors.append(f"{run}: {name} is not in tools/reference/metrics.yaml")
    return sorted(set(errors))


def check_algorithms(protos):
    """Errors: algorithms that a configuration may name and a page that lists them does not."""
    errors = []
    for page in ("README.md", "services/trainer/README.md"):
        named = set(re.findall(r"\w+", (ROOT / page).read_text()))
        for enum in ("AdvEstimator", "PolicyLossMode", "DpoLossType", "OptimizerName"):
            type_name = f".tandem.config.v1.{enum}"
            words = [word(type_name, value) for value, _ in protos.values(type_name)]
            errors += [f"{page}: {name} of {enum} is not named" for name in words if name not in named]
    return errors


def main():
    protos = Protos()
    pages = {"config.md": config_reference(protos), "rpcs.md": rpc_reference(protos),
             "metrics.md": metrics_reference()}
    if sys.argv[1:2] != ["--check"]:
        for name, text in pages.items():
            (HERE / name).write_text(text)
        return 0
    errors = check_metrics(sys.argv[2:]) + check_algorithms(protos)
    for name, text in pages.items():
        path = HERE / name
        if not path.exists() or path.read_text() != text:
            errors.append(f"{path.relative_to(ROOT)} is out of date: run tools/python tools/reference/generate.py")
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
