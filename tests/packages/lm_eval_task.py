"""lm-eval with tasks of its own rows: lm_eval_task.py URL MODEL FOLDER WORK answers a line of JSON with
the metrics and what each choice scored. WORK gets the task's files."""

import json
import pathlib
import sys

import lm_eval
from lm_eval.tasks import TaskManager

url, model, folder, work = sys.argv[1:5]
work = pathlib.Path(work)
rows = [{"question": "<|told|>", "choices": ["It is sunny in Rome.", "Rome.", "It is Rome."], "gold": 0},
        {"question": "<|told|>It is sunny in Rome", "choices": ["Rome.", "."], "gold": 1}]
(work / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
common = f"""
dataset_path: json
dataset_kwargs: {{data_files: {{test: {work}/rows.jsonl}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
target_delimiter: ""
"""
(work / "choices.yaml").write_text(common + """
task: choices
output_type: multiple_choice
doc_to_choice: choices
doc_to_target: gold
metric_list: [{metric: acc}]
""")
(work / "writes.yaml").write_text(common + """
task: writes
output_type: generate_until
doc_to_target: "{{choices[gold]}}"
generation_kwargs: {until: ["<eos>"], max_gen_toks: 8, do_sample: false}
metric_list: [{metric: exact_match}]
""")
results = lm_eval.simple_evaluate(
    model="local-completions",
    model_args={"model": model, "base_url": url + "/v1/completions", "tokenizer": folder,
                "num_concurrent": 2, "max_retries": 1},
    tasks=["choices", "writes"], task_manager=TaskManager(include_path=str(work)),
    log_samples=True, bootstrap_iters=0)
print(json.dumps({
    "acc": results["results"]["choices"]["acc,none"],
    "exact_match": results["results"]["writes"]["exact_match,none"],
    "scores": [[score for score, _ in sample["filtered_resps"]]
               for sample in results["samples"]["choices"]]}))
