"""Has OpenEnv grade an endpoint: openenv_llm.py URL MODEL, which answers a line of JSON."""

import dataclasses
import json
import sys

from openenv.core.harness.capture import validate_llm

url, model = sys.argv[1:3]
report = validate_llm(url, model, timeout=60)
print(json.dumps(dataclasses.asdict(report)))
