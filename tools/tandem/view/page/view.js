// The page: its tabs, the runs and their state, the keyboard, and the poll that keeps it live. Data
// comes from the server of this page (tandem view), which reads the folders of runs.
import {$, complain, make, tip} from "./dom.js";
import {configOf, isRunning, poll, runs, shownRuns, stateText} from "./runs.js";
import {drawCurves, onPickStep} from "./curves.js";
import {moveGroup, moveStep, openSample, shownStep, updateSamples} from "./samples.js";

const kTabs = ["curves", "samples", "config"];
const kLivePoll = 2000, kIdlePoll = 10000;  // milliseconds; a stopped run may resume
let tab = "curves";

// The legend's entry of a run; only its state changes, so that the focus stays.
function runNode(run) {
  const box = make("input", {type: "checkbox", "aria-label": `show ${run.name}`});
  box.checked = run.shown;
  box.addEventListener("input", () => {
    run.shown = box.checked;
    update().then(drawTab).catch(complain);
  });
  return make("label", {"data-run": run.index}, box, make("span", {class: "swatch", style: `background:${run.colour}`}),
    make("strong", {}, run.name), " ", make("span", {class: "state"}));
}

function drawRuns() {
  for (const run of runs.slice($("runs").children.length)) $("runs").append(runNode(run));
  for (const run of runs) {
    const node = $("runs").children[run.index];
    node.className = `run ${run.status.state || "error"}`;
    node.querySelector(".state").textContent = stateText(run);
  }
  $("runs").classList.toggle("one", runs.length === 1);
  document.title = `${runs.length === 1 ? runs[0].name : `${runs.length} runs`} - Tandem`;
}

async function drawConfig() {
  $("configs").replaceChildren(...await Promise.all(shownRuns().map(async (run) => make("section", {},
    make("h2", {}, run.name), make("pre", {}, (await configOf(run)).config)))));
}

async function drawTab() {
  if (tab === "curves") drawCurves();
  if (tab === "samples") await updateSamples();
  if (tab === "config") await drawConfig();
}

function showTab(wanted) {
  tab = wanted;
  tip(null);
  complain(null);
  for (const button of document.querySelectorAll("nav button")) {
    button.classList.toggle("on", button.dataset.tab === tab);
    button.setAttribute("aria-pressed", button.dataset.tab === tab);
  }
  for (const main of document.querySelectorAll("main")) main.hidden = main.id !== `${tab}-tab`;
}

// The address names no element's id, so that the browser scrolls nowhere.
async function openTab(wanted) {
  showTab(wanted);
  history.replaceState(null, "", `#${wanted}`);
  await drawTab();
}

// Opens what a link to this page names: a tab, "samples/RUN/SET/STEP" or
// "attention/RUN/SET/STEP/SAMPLE".
async function openLinked() {
  const [name, run, set, step, position] = location.hash.slice(1).split("/");
  if (name === "attention") {
    showTab("samples");
    await openSample(Number(run), set, Number(step), Number(position));
  } else if (name === "samples" && step !== undefined) {
    showTab("samples");
    await updateSamples({run: Number(run), set: set === "evaluations" ? set : "rollouts", step: Number(step)});
  } else {
    await openTab(kTabs.includes(name) ? name : "curves");
  }
}

async function update() {
  const changed = await poll();
  drawRuns();
  if (changed && tab !== "config") await drawTab();
}

let lost = false;  // whether the last poll failed: the next that succeeds takes its message away

async function live() {
  if ($("live").checked && !document.hidden) {
    try {
      await update();
      if (lost) complain(null);
      lost = false;
    } catch (error) {
      complain(error);
      lost = true;
    }
  }
  setTimeout(live, runs.some(isRunning) ? kLivePoll : kIdlePoll);
}

// A step that was chosen in a chart: its samples, of the first shown run that has any.
onPickStep((step) => {
  const {set} = shownStep();
  const run = shownRuns().find((r) => r.steps[set].length > 0);
  if (!run) return;
  showTab("samples");
  history.replaceState(null, "", "#samples");
  updateSamples({run: run.index, step}).catch(complain);
});

for (const button of document.querySelectorAll("nav button")) {
  button.addEventListener("click", () => openTab(button.dataset.tab).catch(complain));
}
addEventListener("hashchange", () => openLinked().catch(complain));
document.addEventListener("keydown", (event) => {
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
  if (typing || $("attention").open || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = tab === "samples" ? $("search") : $("metric-search");
  if (event.key === "/" && tab !== "config") {
    event.preventDefault();
    search.focus();
  }
  if (["1", "2", "3"].includes(event.key)) openTab(kTabs[event.key - 1]).catch(complain);
  if (tab !== "samples") return;
  if (event.key === "ArrowLeft") moveStep(-1);
  if (event.key === "ArrowRight") moveStep(1);
  const down = event.key === "ArrowDown" || event.key === "j", up = event.key === "ArrowUp" || event.key === "k";
  if (!down && !up) return;
  moveGroup(down ? 1 : -1);
  event.preventDefault();
});

update().then(openLinked).catch(complain).finally(() => setTimeout(live, kLivePoll));
