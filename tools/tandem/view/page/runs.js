// The runs that the page shows: their state, their metrics by name, and their steps with samples.
// poll() brings them up to date; each of its requests has a bounded reply.
import {getJson} from "./dom.js";

// Told apart also without red and green; from the ninth run on, lines are dashed.
const kColours = ["#2f6fde", "#e69f00", "#2a9d5c", "#cc79a7", "#d1495b", "#56b4e9", "#8b6f47", "#7a5cc8"];

// {index, name, colour, dash, shown, status, generation, numLines, series, steps}; `series` maps a
// metric's name to {steps, values}, `steps` has a list for rollouts and one for evaluations.
export const runs = [];
export const shownRuns = () => runs.filter((run) => run.shown);

function addRun(name) {
  const index = runs.length;
  runs.push({index, name, colour: kColours[index % kColours.length],
             dash: index >= kColours.length ? "4 3" : "none", shown: true, status: {}, config: null});
  reset(runs[index], -1);
}

function reset(run, generation) {
  Object.assign(run, {generation, numLines: 0, series: new Map(), steps: {rollouts: [], evaluations: []}});
}

// Returns whether any shown run has new lines.
export async function poll() {
  const found = (await getJson("api/runs")).runs;
  while (runs.length < found.length) addRun(found[runs.length].name);
  let changed = false;
  for (const run of runs) {
    run.status = found[run.index];
    if (!run.shown || run.status.error) continue;
    if (run.status.generation === run.generation && run.status.num_lines === run.numLines) continue;
    await readLines(run);
    await readSteps(run, "rollouts");
    await readSteps(run, "evaluations");
    changed = true;
  }
  return changed;
}

async function readLines(run) {
  for (;;) {
    const reply = await getJson(`api/metrics?run=${run.index}&generation=${run.generation}&from=${run.numLines}`);
    // The run started again or resumed from a checkpoint: its earlier lines are gone.
    if (reply.generation !== run.generation) reset(run, reply.generation);
    for (const line of reply.lines) addLine(run, line);
    run.numLines = reply.from + reply.lines.length;
    if (reply.lines.length === 0 || run.numLines >= reply.total) return;
  }
}

function addLine(run, line) {
  const step = line["training/global_step"];
  for (const [name, value] of Object.entries(line)) {
    if (name === "training/global_step" || typeof value !== "number") continue;
    if (!run.series.has(name)) run.series.set(name, {steps: [], values: []});
    run.series.get(name).steps.push(step);
    run.series.get(name).values.push(value);
  }
}

async function readSteps(run, set) {
  const steps = run.steps[set];
  for (;;) {
    const after = steps.length ? steps[steps.length - 1] : -1;
    const reply = await getJson(`api/steps?run=${run.index}&set=${set}&after=${after}`);
    steps.push(...reply.steps);
    if (!reply.more) return;
  }
}

export async function configOf(run) {
  return getJson(`api/config?run=${run.index}`);
}

export const isRunning = (run) => run.status.state === "running";

// "running, step 12 of 60"
export function stateText(run) {
  const {state, error, last_step: step, total_steps: total, changed} = run.status;
  if (error) return `cannot be read: ${error}`;
  if (state === "finished") return `finished, ${step} step${step === 1 ? "" : "s"}`;
  const at = `step ${step} of ${total}`;
  if (state === "running") return `running, ${at}`;
  return `stopped at ${at}` + (changed ? `, ${new Date(1000 * changed).toLocaleString()}` : "");
}
