// The rollout viewer. One state, drawn again when it changes; data comes from the server that served
// this page (tandem view), which reads a run's folder.
"use strict";

const $ = (id) => document.getElementById(id);
const state = {
  run: null,          // GET api/run
  step: null,         // that is shown
  groups: [],         // of the step
  group: 0,           // index into the groups that are listed
  metrics: [],        // lines of metrics.jsonl
  inspected: new Map() // "step/sample" -> GET api/inspect
};

async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}

function complain(error) {
  $("problem").textContent = error ? String(error.message || error) : "";
  $("problem").hidden = !error;
}

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else if (key === "style") node.style.cssText = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

const mean = (values) => values.length ? values.reduce((a, b) => a + b, 0) / values.length : 0;
const show = (value) => value === null || value === undefined ? "-" :
  Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) :
  String(Number(value.toFixed(Math.abs(value) >= 1e3 ? 0 : Math.abs(value) >= 100 ? 2 : 4)));

// ---- colours ---------------------------------------------------------------------------------

const mix = (a, b, t) => a.map((x, i) => Math.round(x + (b[i] - x) * t));
const rgba = (c, alpha) => `rgba(${c.join(",")},${alpha})`;
const kRed = [209, 73, 91], kGreen = [42, 157, 92], kBlue = [47, 111, 222], kAmber = [230, 159, 0];
const kVersions = [[47, 111, 222], [230, 159, 0], [42, 157, 92], [204, 121, 167], [86, 180, 233], [213, 94, 0]];

// How a colouring paints a token's value, and what its legend says.
const kColourings = {
  none: {paint: () => "", legend: ""},
  logprob: {
    // Sure tokens stay plain, surprising ones turn red: -6 is a chance of one in 400.
    paint: (v) => rgba(kRed, Math.min(1, -v / 6) * 0.75),
    legend: ["0 (sure)", "-6 and less", `linear-gradient(90deg, ${rgba(kRed, 0)}, ${rgba(kRed, .75)})`]
  },
  advantage: {
    paint: (v) => rgba(v < 0 ? kRed : kGreen, Math.min(1, Math.abs(v) / 2) * 0.7),
    legend: ["-2", "2", `linear-gradient(90deg, ${rgba(kRed, .7)}, transparent, ${rgba(kGreen, .7)})`]
  },
  entropy: {
    paint: (v) => rgba(mix(kBlue, kAmber, Math.min(1, v / 4)), 0.08 + Math.min(1, v / 4) * 0.6),
    legend: ["0", "4 nats and more", `linear-gradient(90deg, ${rgba(kBlue, .08)}, ${rgba(kAmber, .68)})`]
  },
  version: {
    paint: (v) => rgba(kVersions[v % kVersions.length], 0.35),
    legend: ""
  }
};

function rewardColour(reward, low, high) {
  const t = high > low ? (reward - low) / (high - low) : reward > 0 ? 1 : 0;
  return rgba(mix(kRed, kGreen, t), 1);
}

// ---- rollouts --------------------------------------------------------------------------------

// Samples of a prompt, with what is compared within it. The advantage is that of the step's group:
// reward less the mean, over the standard deviation where the run divides by it.
function toGroups(samples) {
  const byGroup = new Map();
  samples.forEach((sample, index) => {
    sample.position = index;
    sample.length = sample.response_ids.length;
    sample.meanLogprob = mean(sample.logprobs);
    if (!byGroup.has(sample.group)) byGroup.set(sample.group, []);
    byGroup.get(sample.group).push(sample);
  });
  return [...byGroup.values()].map((members, order) => {
    const rewards = members.map((m) => m.rewards);
    const average = mean(rewards);
    const deviation = Math.sqrt(rewards.reduce((a, r) => a + (r - average) ** 2, 0) / Math.max(1, rewards.length - 1));
    for (const member of members) {
      const scale = state.run.advantage_by_std ? deviation + 1e-6 : 1;
      member.advantage = members.length > 1 ? (member.rewards - average) / scale : member.rewards;
    }
    return {order, members, prompt: members[0].prompt, answer: members[0].answer, average, deviation,
            length: mean(members.map((m) => m.length)), logprob: mean(members.map((m) => m.meanLogprob))};
  });
}

function listed() {
  const words = $("search").value.toLowerCase();
  const reward = $("reward-filter").value;
  const finish = $("finish-filter").value;
  const keeps = (group) =>
    (!words || group.prompt.toLowerCase().includes(words) || group.members.some((m) => m.completion.toLowerCase().includes(words))) &&
    (!finish || group.members.some((m) => m.finish_reason === finish)) &&
    (!reward || (reward === "mixed" ? group.deviation > 0 :
                 group.members.some((m) => reward === "pos" ? m.rewards > 0 : m.rewards <= 0)));
  const keys = {row: (g) => g.order, reward: (g) => -g.average, spread: (g) => -g.deviation,
                length: (g) => -g.length, logprob: (g) => g.logprob};
  const key = keys[$("order").value];
  return state.groups.filter(keeps).sort((a, b) => key(a) - key(b));
}

function drawGroups() {
  const groups = listed();
  state.group = Math.max(0, Math.min(state.group, groups.length - 1));
  const all = state.groups.flatMap((g) => g.members);
  const rewards = all.map((m) => m.rewards);
  const low = Math.min(...rewards, 0), high = Math.max(...rewards, 1);
  $("summary").textContent = all.length === 0 ? "no samples" :
    `${groups.length} of ${state.groups.length} prompts, ${all.length} samples; reward ${show(mean(rewards))}, ` +
    `length ${show(mean(all.map((m) => m.length)))}, ${state.groups.filter((g) => g.deviation === 0).length} prompts without spread`;
  $("groups").replaceChildren(...groups.map((group, i) => make("li", {
    class: i === state.group ? "on" : "",
    onclick: () => { state.group = i; drawGroups(); }
  },
    make("div", {class: "text"}, group.prompt.trim() || "(empty prompt)"),
    make("div", {class: "dots"}, ...group.members.map((m) => make("span", {
      class: "dot", title: show(m.rewards), style: `background:${rewardColour(m.rewards, low, high)}`})),
      make("span", {class: "muted"}, ` ${show(group.average)}`)))));
  drawGroup(groups[state.group], low, high);
}

function highlighted(text) {
  const words = $("search").value;
  if (!words) return [text];
  const out = [];
  const lower = text.toLowerCase(), wanted = words.toLowerCase();
  let at = 0;
  for (let found; (found = lower.indexOf(wanted, at)) >= 0; at = found + wanted.length) {
    out.push(text.slice(at, found), make("mark", {}, text.slice(found, found + wanted.length)));
  }
  out.push(text.slice(at));
  return out;
}

function versionAt(sample, i) {
  for (const [version, begin, end] of sample.policy_versions) if (i >= begin && i < end) return version;
  return null;
}

function valueOf(sample, i, colouring) {
  if (colouring === "logprob") return sample.logprobs[i];
  if (colouring === "advantage") return sample.advantage;
  if (colouring === "version") return versionAt(sample, i);
  if (colouring === "entropy") {
    const found = state.inspected.get(`${state.step}/${sample.position}`);
    return found ? found.entropies[sample.prompt_ids.length - 1 + i] : null;
  }
  return null;
}

function tokenSpans(sample) {
  const colouring = $("colour").value;
  return sample.tokens.map((text, i) => {
    const value = valueOf(sample, i, colouring);
    const special = text === "" || sample.special.includes(i);
    return make("span", {
      class: special ? "special" : "",
      style: value === null || value === undefined ? "" : `background:${kColourings[colouring].paint(value)}`,
      onmousemove: (event) => tip(event, [
        `token ${i}: id ${sample.response_ids[i]}`,
        `log-prob ${show(sample.logprobs[i])} (${show(100 * Math.exp(sample.logprobs[i]))} %)`,
        `advantage ${show(sample.advantage)}`,
        `policy version ${versionAt(sample, i)}`,
        ...(colouring === "entropy" && value !== null ? [`entropy ${show(value)} nats`] : [])].join("\n")),
      onmouseleave: () => tip(null)
    }, text === "" ? "\u00b7" : text);
  });
}

function drawLegend(versions) {
  const colouring = kColourings[$("colour").value];
  if ($("colour").value === "version") {
    $("legend").replaceChildren(...versions.map((v) => make("span", {style: `background:${colouring.paint(v)};padding:0 .4rem;border-radius:3px`}, `version ${v}`)));
  } else if (colouring.legend) {
    const [from, to, gradient] = colouring.legend;
    $("legend").replaceChildren(from, make("span", {class: "bar", style: `background:${gradient}`}), to);
  } else {
    $("legend").replaceChildren();
  }
}

function drawGroup(group, low, high) {
  if (!group) {
    $("group").replaceChildren(state.groups.length ? "No prompt passes the filters." : "");
    drawLegend([]);
    return;
  }
  const versions = [...new Set(group.members.flatMap((m) => m.policy_versions.map((s) => s[0])))].sort((a, b) => a - b);
  drawLegend(versions);
  if ($("colour").value === "entropy") group.members.forEach((m) => inspect(m).then(drawSoon, complain));
  $("group").replaceChildren(
    make("div", {class: "prompt"}, ...highlighted(group.prompt),
      make("div", {class: "muted"}, `expected: ${group.answer ?? "-"}`)),
    make("div", {id: "completions"}, ...group.members.map((m) => make("article", {class: "card"},
      make("h3", {},
        make("span", {class: "reward", style: `color:${rewardColour(m.rewards, low, high)}`}, `reward ${show(m.rewards)}`),
        make("span", {}, `advantage ${show(m.advantage)}`),
        make("span", {}, `${m.length} tokens`),
        make("span", {class: "muted"}, m.finish_reason),
        make("span", {class: "muted", title: "mean log-prob of its tokens"}, `log-prob ${show(m.meanLogprob)}`),
        make("button", {class: "right", onclick: () => openAttention(m)}, "attention")),
      make("div", {class: "tokens"}, ...tokenSpans(m))))));
}

let drawing = false;
function drawSoon() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; drawGroups(); });
}

async function showStep(step) {
  if (step === undefined || step === null) return;
  try {
    const samples = await get(`api/rollouts?step=${step}`);
    state.step = step;
    state.groups = toGroups(samples.samples);
    $("step").textContent = step;
    $("step-slider").value = state.run.steps.indexOf(step);
    const reasons = [...new Set(samples.samples.map((s) => s.finish_reason))].sort();
    const chosen = $("finish-filter").value;
    $("finish-filter").replaceChildren(make("option", {value: ""}, "any"), ...reasons.map((r) => make("option", {value: r}, r)));
    $("finish-filter").value = reasons.includes(chosen) ? chosen : "";
    drawGroups();
    complain(null);
  } catch (error) {
    complain(error);
  }
}

// ---- what the model says of a sample -----------------------------------------------------------

function inspect(sample) {
  const key = `${state.step}/${sample.position}`;
  if (!state.inspected.has(key)) {
    const pending = get(`api/inspect?step=${state.step}&sample=${sample.position}`).then((found) => {
      state.inspected.set(key, found);
      return found;
    }, (error) => { state.inspected.delete(key); throw error; });
    state.inspected.set(key, Object.assign(pending, {entropies: []}));
  }
  return Promise.resolve(state.inspected.get(key));
}

const shown = {sample: null, found: null, layer: 0, head: 0, token: null};

async function openAttention(sample) {
  location.hash = `attention/${state.step}/${sample.position}`;
  shown.sample = sample;
  shown.found = null;
  shown.token = null;
  $("attention-hint").textContent = "the model reads the sample ...";
  $("heads").replaceChildren();
  $("attention-tokens").replaceChildren();
  $("attention").showModal();
  try {
    shown.found = await inspect(sample);
    $("attention-hint").textContent = shown.found.model;
    const count = (n) => Array.from({length: n}, (_, i) => make("option", {value: i}, i));
    $("layer").replaceChildren(...count(shown.found.num_layers));
    $("head").replaceChildren(...count(shown.found.num_heads));
    shown.layer = Math.min(shown.layer, shown.found.num_layers - 1);
    shown.head = Math.min(shown.head, shown.found.num_heads - 1);
    await drawAttention();
  } catch (error) {
    $("attention-hint").textContent = String(error.message || error);
  }
}

// Weights of one layer: bytes, [heads][rows][columns], 255 for a weight of 1.
async function layerWeights(layer) {
  const found = shown.found;
  found.layers = found.layers || {};
  if (!found.layers[layer]) {
    const answer = await fetch(`api/attention?step=${state.step}&sample=${shown.sample.position}&layer=${layer}`);
    if (!answer.ok) throw new Error(await answer.text());
    found.layers[layer] = new Uint8Array(await answer.arrayBuffer());
  }
  return found.layers[layer];
}

function drawMap(canvas, weights, head, n, row) {
  canvas.width = n;
  canvas.height = n;
  const context = canvas.getContext("2d");
  const image = context.createImageData(n, n);
  for (let i = 0; i < n; ++i) {
    for (let j = 0; j < n; ++j) {
      const at = 4 * (i * n + j);
      const v = weights[head * n * n + i * n + j] / 255;
      const c = mix([255, 255, 255], kBlue, Math.sqrt(v));
      const faded = row !== null && row !== i ? 0.35 : 1;
      image.data.set([...c, j > i ? 0 : 255 * faded], at);
    }
  }
  context.putImageData(image, 0, 0);
}

async function drawAttention() {
  const found = shown.found;
  $("layer").value = shown.layer;
  $("head").value = shown.head;
  const weights = await layerWeights(shown.layer);
  const n = found.tokens.length;
  $("heads").replaceChildren(...Array.from({length: found.num_heads}, (_, head) => {
    const canvas = make("canvas", {class: head === shown.head ? "on" : "", title: `head ${head}`,
                                   onclick: () => { shown.head = head; drawAttention(); }});
    drawMap(canvas, weights, head, n, null);
    return canvas;
  }));
  drawMap($("map"), weights, shown.head, n, shown.token);
  const read = shown.token === null ? null : weights.subarray(shown.head * n * n + shown.token * n, shown.head * n * n + shown.token * n + n);
  $("attention-tokens").className = "tokens";
  $("attention-tokens").replaceChildren(...found.tokens.map((text, i) => make("span", {
    class: i === shown.token ? "on" : "",
    style: read ? `background:${rgba(kBlue, Math.sqrt(read[i] / 255))}` : "",
    title: read ? `${show(read[i] / 255)}` : `token ${i}`,
    onclick: () => { shown.token = shown.token === i ? null : i; drawAttention(); }
  }, text === "" ? "\u00b7" : text)));
}

// ---- curves ----------------------------------------------------------------------------------

function smooth(points, weight) {
  let last = null;
  return points.map(([x, y]) => [x, last = last === null ? y : weight * last + (1 - weight) * y]);
}

function drawCurves() {
  let wanted = () => true;
  const text = $("metric-search").value.trim();
  if (text) {
    try {
      const pattern = new RegExp(text.split(/\s+/).join("|"), "i");
      wanted = (name) => pattern.test(name);
    } catch { wanted = (name) => name.includes(text); }
  }
  const names = [...new Set(state.metrics.flatMap((line) => Object.keys(line)))]
    .filter((name) => name !== "training/global_step" && wanted(name)).sort();
  $("metric-count").textContent = `${names.length} metrics, ${state.metrics.length} steps`;
  const logarithmic = $("logarithmic").checked;
  $("charts").replaceChildren(...names.map((name) => {
    const points = state.metrics.filter((l) => typeof l[name] === "number").map((l) => [l["training/global_step"], l[name]]);
    return chart(name, points, Number($("smoothing").value), logarithmic);
  }));
}

function chart(name, points, smoothing, logarithmic) {
  const last = points.length ? points[points.length - 1][1] : null;
  const box = make("article", {class: "chart"}, make("h3", {}, make("span", {}, name), make("span", {class: "muted"}, show(last))));
  const scale = logarithmic && points.every(([, y]) => y > 0) ? Math.log10 : (y) => y;
  const scaled = points.map(([x, y]) => [x, scale(y)]);
  const xs = scaled.map((p) => p[0]), ys = scaled.map((p) => p[1]);
  const x0 = Math.min(...xs), x1 = Math.max(...xs), y0 = Math.min(...ys), y1 = Math.max(...ys);
  const px = (x) => x1 > x0 ? (x - x0) / (x1 - x0) * 300 : 150;
  const py = (y) => y1 > y0 ? 96 - (y - y0) / (y1 - y0) * 92 : 50;
  const path = (list) => list.map(([x, y], i) => `${i ? "L" : "M"}${px(x).toFixed(2)} ${py(y).toFixed(2)}`).join("");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 300 100");
  svg.setAttribute("preserveAspectRatio", "none");
  const line = (list, kind) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", "path");
    // A single value is a short dash, not nothing.
    node.setAttribute("d", list.length === 1 ? `M140 ${py(list[0][1])}L160 ${py(list[0][1])}` : path(list));
    if (kind) node.setAttribute("class", kind);
    svg.append(node);
  };
  if (smoothing > 0) line(scaled, "raw");
  line(smoothing > 0 ? smooth(scaled, smoothing) : scaled, "");
  svg.addEventListener("mousemove", (event) => {
    const frame = svg.getBoundingClientRect();
    const x = x0 + (event.clientX - frame.left) / frame.width * (x1 - x0);
    const near = points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a, points[0]);
    tip(event, `step ${near[0]}\n${show(near[1])}`);
  });
  svg.addEventListener("mouseleave", () => tip(null));
  const least = Math.min(...points.map((p) => p[1])), most = Math.max(...points.map((p) => p[1]));
  // A line that never moves has one label, beside it.
  const labels = y1 > y0 ? [show(most), show(least)] : ["", show(least), ""];
  box.append(make("div", {class: "plot"}, make("div", {class: "scale"}, ...labels.map((text) => make("span", {}, text))), svg,
    make("span", {}), make("div", {class: "axis"}, make("span", {}, `step ${show(x0)}`), make("span", {}, show(x1)))));
  return box;
}

// ---- the page --------------------------------------------------------------------------------

function tip(event, text) {
  $("tip").hidden = !event;
  if (!event) return;
  $("tip").textContent = text;
  const box = $("tip").getBoundingClientRect();
  $("tip").style.left = `${Math.min(event.clientX + 12, innerWidth - box.width - 4)}px`;
  $("tip").style.top = `${Math.min(event.clientY + 14, innerHeight - box.height - 4)}px`;
}

function showTab(tab) {
  for (const button of document.querySelectorAll("nav button")) button.classList.toggle("on", button.dataset.tab === tab);
  for (const main of document.querySelectorAll("main")) main.hidden = main.id !== tab;
  if (tab === "curves") drawCurves();
  location.hash = tab;
}

// Opens what a link to this page names: a tab, or "attention/STEP/SAMPLE".
async function openLinked(name) {
  const [tab, step, position] = name.split("/");
  showTab(["curves", "config"].includes(tab) ? tab : "rollouts");
  if (tab !== "attention" || !state.run.steps.includes(Number(step))) return;
  await showStep(Number(step));
  const group = state.groups.findIndex((g) => g.members.some((m) => m.position === Number(position)));
  if (group < 0) return;
  state.group = group;
  drawGroups();
  await openAttention(state.groups[group].members.find((m) => m.position === Number(position)));
}

async function refresh(first) {
  const before = state.run ? state.run.steps : [];
  const wasLast = state.step === null || state.step === before[before.length - 1];
  state.run = await get("api/run");
  $("run-name").textContent = state.run.name;
  document.title = `${state.run.name} - Tandem`;
  $("config-text").textContent = state.run.config;
  const after = state.metrics.length ? state.metrics[state.metrics.length - 1]["training/global_step"] : -1;
  const lines = (await get(`api/metrics?after=${after}`)).lines;
  // A run that was begun anew has fewer.
  if (state.run.last_step < after) state.metrics = (await get("api/metrics?after=-1")).lines;
  else state.metrics.push(...lines);
  $("progress").textContent = `step ${state.run.last_step} of ${state.run.total_steps}`;
  $("step-slider").max = Math.max(0, state.run.steps.length - 1);
  const steps = state.run.steps;
  if (steps.length && (first || (wasLast && steps.length !== before.length))) await showStep(steps[steps.length - 1]);
  if (lines.length && !$("curves").hidden) drawCurves();
}

async function live() {
  if ($("live").checked) {
    try { await refresh(false); complain(null); } catch (error) { complain(error); }
  }
  setTimeout(live, 2000);
}

function move(by) {
  const at = state.run.steps.indexOf(state.step) + by;
  if (at >= 0 && at < state.run.steps.length) showStep(state.run.steps[at]);
}

for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => showTab(button.dataset.tab));
$("earlier").addEventListener("click", () => move(-1));
$("later").addEventListener("click", () => move(1));
$("step-slider").addEventListener("change", () => showStep(state.run.steps[Number($("step-slider").value)]));
for (const id of ["search", "reward-filter", "finish-filter", "order", "colour"]) $(id).addEventListener("input", drawSoon);
for (const id of ["metric-search", "smoothing", "logarithmic"]) $(id).addEventListener("input", drawCurves);
$("layer").addEventListener("input", () => { shown.layer = Number($("layer").value); drawAttention(); });
$("head").addEventListener("input", () => { shown.head = Number($("head").value); drawAttention(); });
$("close-attention").addEventListener("click", () => $("attention").close());
$("attention").addEventListener("close", () => { location.hash = "rollouts"; });
document.addEventListener("keydown", (event) => {
  if (["INPUT", "SELECT"].includes(event.target.tagName) || $("attention").open) return;
  if (event.key === "ArrowLeft") move(-1);
  if (event.key === "ArrowRight") move(1);
  if (event.key === "ArrowDown" || event.key === "j") { ++state.group; drawGroups(); event.preventDefault(); }
  if (event.key === "ArrowUp" || event.key === "k") { --state.group; drawGroups(); event.preventDefault(); }
});

refresh(true).then(() => {
  $("live").checked = state.run.last_step < state.run.total_steps;
  return openLinked(location.hash.slice(1));
}).catch(complain).finally(live);
