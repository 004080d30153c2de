// The tab of samples: the prompts of a step, of training or of an evaluation, and the completions
// of the chosen one, their tokens coloured.
import {$, complain, getJson, make, mean, show, tip} from "./dom.js";
import {kColourings, rewardColour} from "./colours.js";
import {entropiesOf, inspect, openAttention} from "./attention.js";
import {promptWithPictures, spansWithPictures, withoutPictures} from "./pictures.js";
import {configOf, runs} from "./runs.js";

const state = {
  run: 0,             // index into runs
  set: "rollouts",    // or "evaluations"
  step: null,         // that is shown
  last: null,         // last step of the set when it was last updated: the reader follows it
  generation: null,   // of the run, whose samples these are
  loading: false,     // its later samples are still to come
  groups: [],         // of the step
  placeholder: null,  // what stands for an image in prompts
  group: 0,           // index into the groups that are listed
  byStd: true         // whether the run divides advantages by the standard deviation
};

export const shownStep = () => state;
const isEvaluation = () => state.set === "evaluations";
const stepsShown = () => runs.length ? runs[state.run].steps[state.set] : [];

// Groups of a prompt, with what is compared within them. The advantage is that of the step's group:
// reward less the mean, over the standard deviation where the run divides by it.
function toGroups(samples) {
  const byGroup = new Map();
  samples.forEach((sample, index) => {
    sample.position = index;
    sample.address = `run=${state.run}&set=${state.set}&step=${state.step}&sample=${index}&generation=${state.generation}`;
    sample.length = sample.response_ids.length;
    sample.meanLogprob = mean(sample.logprobs.filter((value) => value !== null));
    if (!byGroup.has(sample.group)) byGroup.set(sample.group, []);
    byGroup.get(sample.group).push(sample);
  });
  return [...byGroup.values()].map((members, order) => {
    const rewards = members.map((m) => m.rewards);
    const average = mean(rewards);
    const deviation = Math.sqrt(rewards.reduce((a, r) => a + (r - average) ** 2, 0) / Math.max(1, rewards.length - 1));
    for (const member of members) {
      const scale = state.byStd ? deviation + 1e-6 : 1;
      member.advantage = isEvaluation() ? null : members.length > 1 ? (member.rewards - average) / scale : member.rewards;
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
  const keys = {row: (g) => g.order, reward: (g) => -g.average, low: (g) => g.average, spread: (g) => -g.deviation,
                length: (g) => -g.length, logprob: (g) => g.logprob};
  const key = keys[$("order").value];
  return state.groups.filter(keeps).sort((a, b) => key(a) - key(b));
}

export function drawGroups() {
  const groups = listed();
  state.group = Math.max(0, Math.min(state.group, groups.length - 1));
  const all = state.groups.flatMap((g) => g.members);
  const rewards = all.map((m) => m.rewards);
  const low = rewards.reduce((a, b) => Math.min(a, b), 0), high = rewards.reduce((a, b) => Math.max(a, b), 1);
  $("summary").textContent = all.length === 0 ? emptyText() :
    `${groups.length} of ${state.groups.length} prompts, ${all.length} samples${state.loading ? " so far" : ""}; reward ${show(mean(rewards))}, ` +
    `length ${show(mean(all.map((m) => m.length)))}` +
    (isEvaluation() ? "" : `, ${state.groups.filter((g) => g.deviation === 0).length} prompts without spread`);
  $("groups").replaceChildren(...groups.map((group, i) => make("li", {
    class: i === state.group ? "on" : "", id: `group-${i}`, role: "option", "aria-selected": i === state.group,
    onclick: () => { state.group = i; drawGroups(); }
  },
    make("div", {class: "text"}, withoutPictures(group.prompt, state.placeholder).trim() || "(empty prompt)"),
    make("div", {class: "dots"}, ...group.members.map((m) => make("span", {
      class: "dot", title: show(m.rewards), style: `background:${rewardColour(m.rewards, low, high)}`})),
      make("span", {class: "muted"}, ` ${show(group.average)}`)))));
  if (groups.length) $("groups").setAttribute("aria-activedescendant", `group-${state.group}`);
  drawGroup(groups[state.group], low, high);
}

function emptyText() {
  if (stepsShown().length) return "";
  return isEvaluation() ? "this run has no evaluation samples (trainer.test_freq, data.test_files)" : "this run has no training samples";
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
  const entropies = colouring === "entropy" ? entropiesOf(sample) : null;
  return entropies ? entropies[sample.prompt_ids.length - 1 + i] : null;
}

// Whether the environment said the token.
const isObserved = (sample, i) => (sample.observed || []).some(([begin, end]) => i >= begin && i < end);

function tokenSpans(sample) {
  const colouring = $("colour").value;
  const special = new Set(sample.special);
  return sample.tokens.map((text, i) => {
    const observed = isObserved(sample, i);
    const value = observed ? null : valueOf(sample, i, colouring);
    return make("span", {
      class: [text === "" || special.has(i) ? "special" : "", observed ? "observed" : ""].join(" ").trim(),
      style: value === null || value === undefined ? "" : `background:${kColourings[colouring].paint(value)}`,
      onmousemove: (event) => tip({x: event.clientX, y: event.clientY}, tokenText(sample, i, colouring, value)),
      onmouseleave: () => tip(null)
    }, text === "" ? "\u00b7" : text);
  });
}

function tokenText(sample, i, colouring, value) {
  if (isObserved(sample, i)) return `token ${i}: id ${sample.response_ids[i]}\nsaid by the environment, not trained on`;
  return [
    `token ${i}: id ${sample.response_ids[i]}`,
    `log-prob ${show(sample.logprobs[i])} (${show(100 * Math.exp(sample.logprobs[i]))} %)`,
    ...(sample.advantage === null ? [] : [`advantage ${show(sample.advantage)}`]),
    ...(sample.token_rewards ? [`reward ${show(sample.token_rewards[i])}`] : []),
    `policy version ${show(versionAt(sample, i))}`,
    ...(colouring === "entropy" && value !== null ? [`entropy ${show(value)} nats`] : [])].join("\n");
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

function card(group, sample, low, high) {
  const parts = Object.entries(sample.scores || {}).map(([name, score]) => make("span", {class: "muted"}, `${name} ${show(score)}`));
  return make("article", {class: "card"},
    make("h3", {},
      make("span", {class: "reward", style: `color:${rewardColour(sample.rewards, low, high)}`}, `reward ${show(sample.rewards)}`),
      ...parts,
      ...(sample.advantage === null ? [] : [make("span", {}, `advantage ${show(sample.advantage)}`)]),
      make("span", {}, `${sample.length} tokens`),
      ...(sample.observed ? [make("span", {class: "muted"}, `${sample.observed.length + 1} turns`)] : []),
      make("span", {class: "muted"}, sample.finish_reason),
      make("span", {class: "muted", title: "mean log-prob of its tokens"}, `log-prob ${show(sample.meanLogprob)}`),
      ...(sample.images ? [] : [make("button", {class: "right", onclick: () => readAttention(sample)}, "attention")])),
    make("div", {class: "tokens"}, ...spansWithPictures(group, sample, tokenSpans(sample))));
}

function drawGroup(group, low, high) {
  if (!group) {
    $("group").replaceChildren(state.groups.length ? "No prompt passes the filters." : "");
    drawLegend([]);
    return;
  }
  const versions = [...new Set(group.members.flatMap((m) => m.policy_versions.map((s) => s[0])))].sort((a, b) => a - b);
  drawLegend(versions);
  if ($("colour").value === "entropy") {
    // The server computes none for samples with images.
    for (const member of group.members) if (!member.images && !entropiesOf(member)) inspect(member).then(drawSoon, complain);
  }
  $("group").replaceChildren(
    make("div", {class: "prompt"}, ...promptWithPictures(group, state.placeholder, highlighted),
      make("div", {class: "muted"}, `expected: ${group.answer ?? "-"}`)),
    make("div", {id: "completions"}, ...group.members.map((m) => card(group, m, low, high))));
}

// A timer and no animation frame: a page that nobody looks at has no frames.
const kDrawDelay = 16;  // ms
let drawing = false;
function drawSoon() {
  if (drawing) return;
  drawing = true;
  setTimeout(() => { drawing = false; drawGroups(); }, kDrawDelay);
}

// Shows the samples of a step, piece by piece: a step may have many.
async function showStep(step) {
  const {run, set} = state;
  const isShown = () => state.run === run && state.set === set && state.step === step;
  Object.assign(state, {step, loading: true, groups: []});
  drawSteps();
  const samples = [];
  let offset = 0;
  while (offset !== null) {
    const reply = await getJson(`api/samples?run=${run}&set=${set}&step=${step}&offset=${offset}`, 60);
    if (!isShown()) return;  // the reader has moved on
    samples.push(...reply.samples);
    offset = reply.next;
    state.placeholder = reply.image_placeholder;
    state.loading = offset !== null;
    state.groups = toGroups(samples);
    drawFinishReasons(samples);
    drawGroups();
  }
  complain(null);
  if (location.hash.startsWith("#samples")) history.replaceState(null, "", `#samples/${run}/${set}/${step}`);
}

function drawFinishReasons(samples) {
  const reasons = [...new Set(samples.map((s) => s.finish_reason))].sort();
  const chosen = $("finish-filter").value;
  $("finish-filter").replaceChildren(make("option", {value: ""}, "any"), ...reasons.map((r) => make("option", {value: r}, r)));
  $("finish-filter").value = reasons.includes(chosen) ? chosen : "";
}

function drawSteps() {
  const steps = stepsShown();
  $("step-slider").max = Math.max(0, steps.length - 1);
  $("step-slider").value = Math.max(0, steps.indexOf(state.step));
  $("step").textContent = state.step ?? "-";
}

function drawChoices() {
  if ($("sample-run").options.length !== runs.length) {
    $("sample-run").replaceChildren(...runs.map((run) => make("option", {value: run.index}, run.name)));
  }
  $("sample-run").value = state.run;
  $("sample-set").value = state.set;
  $("sample-run-label").hidden = runs.length < 2;
}

// Brings the tab up to date: follows the last step, or opens the wanted one. A step that the set
// does not have is the nearest that it has.
export async function updateSamples(wanted = {}) {
  const run = wanted.run ?? state.run, set = wanted.set ?? state.set;
  const moved = run !== state.run || set !== state.set;
  if (run < 0 || run >= runs.length) return;
  const steps = runs[run].steps[set];
  const followed = state.step === null || (state.step === state.last && !$("attention").open);
  Object.assign(state, {run, set, last: steps[steps.length - 1] ?? null});
  drawChoices();
  let step = wanted.step ?? (followed || moved ? state.last : state.step);
  if (steps.length === 0) step = null;
  else if (!steps.includes(step)) step = steps.reduce((a, b) => Math.abs(b - step) < Math.abs(a - step) ? b : a);
  if (moved || state.generation !== runs[run].generation) {
    state.generation = runs[run].generation;
    state.byStd = (await configOf(runs[run])).advantage_by_std;
    state.step = null;  // the same step of a run that started again has other samples
  }
  if (step === null) {
    Object.assign(state, {step, groups: [], loading: false});
    drawSteps();
    drawGroups();
  } else if (step !== state.step) {
    await showStep(step);
  } else {
    drawSteps();
  }
}

// Opens what "#attention/RUN/SET/STEP/SAMPLE" names.
export async function openSample(run, set, step, position) {
  if (!runs[run] || !runs[run].steps[set] || !runs[run].steps[set].includes(step)) return;
  await updateSamples({run, set, step});
  const at = state.groups.findIndex((g) => g.members.some((m) => m.position === position));
  if (at < 0) return;
  state.group = at;
  drawGroups();
  await readAttention(state.groups[at].members.find((m) => m.position === position));
}

function readAttention(sample) {
  history.replaceState(null, "", `#attention/${state.run}/${state.set}/${state.step}/${sample.position}`);
  return openAttention(sample);
}

export function moveStep(by) {
  const steps = stepsShown();
  const at = steps.indexOf(state.step) + by;
  if (at >= 0 && at < steps.length) showStep(steps[at]).catch(complain);
}

export function moveGroup(by) {
  state.group += by;
  drawGroups();
  $(`group-${state.group}`)?.scrollIntoView({block: "nearest"});
}

$("earlier").addEventListener("click", () => moveStep(-1));
$("later").addEventListener("click", () => moveStep(1));
$("step-slider").addEventListener("change", () => showStep(stepsShown()[Number($("step-slider").value)]).catch(complain));
$("sample-run").addEventListener("input", () => updateSamples({run: Number($("sample-run").value)}).catch(complain));
$("sample-set").addEventListener("input", () => updateSamples({set: $("sample-set").value}).catch(complain));
for (const id of ["search", "reward-filter", "finish-filter", "order", "colour"]) $(id).addEventListener("input", drawSoon);
$("attention").addEventListener("close", () => {
  tip(null);
  history.replaceState(null, "", `#samples/${state.run}/${state.set}/${state.step}`);
});
