// The tab of curves: an overview, then all metrics in groups by prefix, closed until they are
// wanted.
import {$, make} from "./dom.js";
import {Chart} from "./charts.js";
import {shownRuns} from "./runs.js";

// What to look at first. Of `any`, the first metric that a run has; of `all`, every match.
const kOverview = [
  {title: "reward", any: ["rollout/judged_reward/mean", "critic/score/mean", "critic/rewards/mean"]},
  {title: "evaluation", all: /^val-core\//},
  {title: "loss", any: ["train/loss"]},
  {title: "loss on test rows", any: ["val/loss"]},
  {title: "accuracy on test rows", any: ["val/accuracy"]},
  {title: "response length, tokens", any: ["response_length/mean"], low: "response_length/min", high: "response_length/max"},
  {title: "share cut off at max_tokens", any: ["response_length/clip_ratio"]},
  {title: "KL, old to new policy", any: ["actor/ppo_kl"]},
  {title: "KL to the reference", any: ["actor/kl_loss", "actor/reward_kl_penalty"]},
  {title: "entropy, nats", any: ["actor/entropy"]},
  {title: "throughput, tokens/s", any: ["perf/throughput"]},
  {title: "off-policy difference, mean", any: ["training/rollout_probs_diff_mean"]},
  {title: "off-policy difference, maximum", any: ["training/rollout_probs_diff_max"]}
];
const kMaxCharts = 60;  // of an open group; a search narrows it

const charts = new Map();  // "overview" or "group", then the metric -> Chart
const open = new Set();    // groups that the reader has opened
let pick = () => {};

export function onPickStep(callback) { pick = callback; }

function overviewOf(names) {
  const has = new Set(names);
  return kOverview.flatMap(({title, any, all, low, high}) => {
    const found = all ? names.filter((name) => all.test(name)) : any.filter((name) => has.has(name)).slice(0, 1);
    return found.map((metric) => ({metric, title, low, high}));
  });
}

// "actor", and "timing_s/rank.*" for what each rank has.
function groupOf(name) {
  const [first, second = ""] = name.split("/");
  return second.startsWith("rank.") ? `${first}/rank.*` : first;
}

// Words or a regular expression.
function matcher() {
  const text = $("metric-search").value.trim();
  if (!text) return null;
  try {
    const pattern = new RegExp(text.split(/\s+/).join("|"), "i");
    return (name) => pattern.test(name);
  } catch {
    return (name) => name.includes(text);
  }
}

function chartOf(place, spec) {
  const key = `${place} ${spec.metric}`;
  if (!charts.has(key)) charts.set(key, new Chart(spec, (step) => pick(step)));
  return charts.get(key);
}

// Keeps nodes that stay, so that focus and open groups survive an update.
function fill(parent, children) {
  const same = parent.children.length === children.length && children.every((child, i) => parent.children[i] === child);
  if (!same) parent.replaceChildren(...children);
}

function draw(parent, place, specs, runs, options) {
  const drawn = specs.slice(0, kMaxCharts).map((spec) => chartOf(place, spec));
  for (const chart of drawn) chart.update(runs, options);
  fill(parent, drawn.map((chart) => chart.element));
}

const groups = new Map();  // name -> {details, label, body}

function groupNode(name) {
  if (!groups.has(name)) {
    const label = make("span", {class: "muted"});
    const body = make("div", {class: "charts"});
    const details = make("details", {"data-group": name}, make("summary", {}, make("strong", {}, name), " ", label), body);
    details.addEventListener("toggle", () => {
      // A search opens groups by itself.
      if (!$("metric-search").value.trim()) details.open ? open.add(name) : open.delete(name);
      drawCurves();
    });
    groups.set(name, {details, label, body});
  }
  return groups.get(name);
}

export function drawCurves() {
  const runs = shownRuns();
  const options = {smoothing: Number($("smoothing").value), logarithmic: $("logarithmic").checked};
  const names = [...new Set(runs.flatMap((run) => [...run.series.keys()]))].sort();
  const wanted = matcher();
  const overview = overviewOf(names).filter(({metric, title}) => !wanted || wanted(metric) || wanted(title));
  draw($("overview"), "overview", overview, runs, options);
  $("overview-title").hidden = overview.length === 0;
  const matching = wanted ? names.filter(wanted) : names;
  $("metric-count").textContent = names.length === 0 ? "no step is complete yet" : `${matching.length} of ${names.length} metrics`;
  const byGroup = new Map();
  for (const name of matching) {
    if (!byGroup.has(groupOf(name))) byGroup.set(groupOf(name), []);
    byGroup.get(groupOf(name)).push({metric: name});
  }
  const nodes = [...byGroup].sort(([a], [b]) => a < b ? -1 : 1).map(([name, specs]) => {
    const {details, label, body} = groupNode(name);
    details.open = wanted !== null || open.has(name);
    label.textContent = specs.length > kMaxCharts ? `first ${kMaxCharts} of ${specs.length}; search for others` : String(specs.length);
    if (details.open) draw(body, "group", specs, runs, options);
    else body.replaceChildren();
    return details;
  });
  fill($("groups-of-metrics"), nodes);
}

for (const id of ["metric-search", "smoothing", "logarithmic"]) $(id).addEventListener("input", drawCurves);
