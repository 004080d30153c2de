// The dialog of a sample's attention: every head of a layer, one head as a map whose rows and
// columns carry their tokens, and the text, coloured by what the chosen token reads.
import {$, get, getJson, make, show, tip} from "./dom.js";
import {attentionPixel, attentionShade} from "./colours.js";

const kPatience = 150;  // seconds; the server gives the model 120
const kMapSize = 560;   // pixels of the map's side, before labels
const kLabelStep = 12;  // pixels that a line of labels takes
const kLabelRoom = 96;  // pixels beside and above the map
const kLabelLength = 12;

const inspected = new Map();  // address -> promise of GET api/inspect
const entropies = new Map();  // address -> entropies, once there

// `sample.address` is the query that names it; its generation keeps the samples of a run that
// started again apart.
export function inspect(sample) {
  const {address} = sample;
  if (!inspected.has(address)) {
    const reply = getJson(`api/inspect?${address}`, kPatience);
    inspected.set(address, reply);
    reply.then((found) => entropies.set(address, found.entropies), () => inspected.delete(address));
  }
  return inspected.get(address);
}

// Null until inspect() has found it.
export const entropiesOf = (sample) => entropies.get(sample.address) || null;

const shown = {sample: null, found: null, layer: 0, head: 0, token: null};

export async function openAttention(sample) {
  Object.assign(shown, {sample, found: null, token: null});
  $("attention-hint").textContent = "the model reads the sample ...";
  for (const id of ["heads", "attention-tokens", "layer", "head"]) $(id).replaceChildren();
  $("map").hidden = true;
  $("attention").showModal();
  try {
    const found = await inspect(sample);
    if (shown.sample !== sample) return;
    shown.found = found;
    $("attention-hint").textContent = found.model;
    const count = (n) => Array.from({length: n}, (_, i) => make("option", {value: i}, i));
    $("layer").replaceChildren(...count(found.num_layers));
    $("head").replaceChildren(...count(found.num_heads));
    shown.layer = Math.min(shown.layer, found.num_layers - 1);
    shown.head = Math.min(shown.head, found.num_heads - 1);
    await draw();
  } catch (error) {
    $("attention-hint").textContent = String(error.message || error);
  }
}

// Weights of one layer: bytes, [heads][rows][columns], 255 for a weight of 1.
async function layerWeights(layer) {
  const {found, sample} = shown;
  found.layers = found.layers || {};
  if (!found.layers[layer]) {
    const reply = await get(`api/attention?${sample.address}&layer=${layer}`, kPatience);
    found.layers[layer] = new Uint8Array(await reply.arrayBuffer());
  }
  return found.layers[layer];
}

// The weights of a head, a pixel each; rows other than `row` are faded.
function headImage(weights, head, n, row) {
  const canvas = make("canvas", {width: n, height: n});
  const context = canvas.getContext("2d");
  const image = context.createImageData(n, n);
  for (let i = 0; i < n; ++i) {
    for (let j = 0; j <= i; ++j) {
      const colour = attentionPixel(weights[head * n * n + i * n + j] / 255);
      image.data.set([...colour, row !== null && row !== i ? 90 : 255], 4 * (i * n + j));
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// A token as one short word: spaces and line ends are visible.
function label(text) {
  const visible = text.replaceAll(" ", "\u00b7").replaceAll("\n", "\u23ce").replaceAll("\t", "\u21e5") || "\u00b7";
  return visible.length > kLabelLength ? visible.slice(0, kLabelLength - 1) + "\u2026" : visible;
}

const cellSize = (n) => Math.max(1, Math.floor(kMapSize / n));

// Labels where they fit: every token of a short sample, every k-th of a long one, always the chosen.
function drawMap(weights) {
  const {tokens} = shown.found;
  const n = tokens.length, cell = cellSize(n), side = cell * n;
  const canvas = $("map");
  canvas.hidden = false;
  canvas.width = canvas.height = kLabelRoom + side;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(headImage(weights, shown.head, n, shown.token), kLabelRoom, kLabelRoom, side, side);
  context.fillStyle = getComputedStyle(canvas).color;
  context.textBaseline = "middle";
  const stride = Math.ceil(kLabelStep / cell);
  for (let i = 0; i < n; ++i) {
    if (i % stride !== 0 && i !== shown.token) continue;
    if (shown.token !== null && i !== shown.token && Math.abs(i - shown.token) < stride) continue;
    context.font = `${i === shown.token ? "bold " : ""}11px ui-monospace, "DejaVu Sans Mono", monospace`;
    const at = kLabelRoom + (i + 0.5) * cell;
    context.textAlign = "right";
    context.fillText(label(tokens[i]), kLabelRoom - 4, at, kLabelRoom - 6);
    context.save();
    context.translate(at, kLabelRoom - 4);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(label(tokens[i]), 0, 0, kLabelRoom - 6);
    context.restore();
  }
  // Where the response begins.
  const begin = kLabelRoom + shown.sample.prompt_ids.length * cell;
  context.globalAlpha = 0.4;
  context.fillRect(kLabelRoom, begin, side, 1);
  context.fillRect(begin, kLabelRoom, 1, side);
  context.globalAlpha = 1;
}

// The row and column under the pointer, or null.
function cellAt(event) {
  const canvas = $("map"), box = canvas.getBoundingClientRect(), n = shown.found.tokens.length;
  const to = (at, begin, length) => Math.floor(((at - begin) / length * canvas.width - kLabelRoom) / cellSize(n));
  const row = to(event.clientY, box.top, box.height), column = to(event.clientX, box.left, box.width);
  return row >= 0 && row < n && column >= 0 && column <= row ? {row, column} : null;
}

function weightAt(weights, row, column) {
  const n = shown.found.tokens.length;
  return weights[shown.head * n * n + row * n + column] / 255;
}

async function draw() {
  const {found} = shown;
  $("layer").value = shown.layer;
  $("head").value = shown.head;
  const weights = await layerWeights(shown.layer);
  if (shown.found !== found) return;
  const n = found.tokens.length;
  $("heads").replaceChildren(...Array.from({length: found.num_heads}, (_, head) => make("button", {
    class: head === shown.head ? "on" : "", title: `head ${head}`, "aria-label": `head ${head}`,
    onclick: () => { shown.head = head; draw(); }
  }, headImage(weights, head, n, null))));
  drawMap(weights);
  const {token} = shown;
  $("attention-tokens").replaceChildren(...found.tokens.map((text, i) => make("span", {
    class: i === token ? "on" : "",
    style: token === null || i > token ? "" : `background:${attentionShade(weightAt(weights, token, i))}`,
    title: token === null || i > token ? `token ${i}` : show(weightAt(weights, token, i)),
    onclick: () => choose(shown.token === i ? null : i)
  }, text === "" ? "\u00b7" : text)));
}

function choose(token) {
  shown.token = token;
  draw();
}

$("map").addEventListener("pointermove", (event) => {
  const cell = shown.found && cellAt(event);
  const weights = shown.found && shown.found.layers && shown.found.layers[shown.layer];
  if (!cell || !weights) return tip(null);
  const name = (i) => `${label(shown.found.tokens[i])} (${i})`;
  tip({x: event.clientX, y: event.clientY}, `${name(cell.row)} reads ${name(cell.column)}: ${show(weightAt(weights, cell.row, cell.column))}`);
});
$("map").addEventListener("pointerleave", () => tip(null));
$("map").addEventListener("click", (event) => {
  const cell = shown.found && cellAt(event);
  if (cell) choose(shown.token === cell.row ? null : cell.row);
});
$("attention-tokens").addEventListener("keydown", (event) => {
  if (!shown.found || (event.key !== "ArrowLeft" && event.key !== "ArrowRight")) return;
  event.preventDefault();
  const last = shown.found.tokens.length - 1;
  const next = shown.token === null ? 0 : shown.token + (event.key === "ArrowLeft" ? -1 : 1);
  choose(Math.max(0, Math.min(next, last)));
});
$("layer").addEventListener("input", () => { shown.layer = Number($("layer").value); draw().catch((error) => { $("attention-hint").textContent = error.message; }); });
$("head").addEventListener("input", () => { shown.head = Number($("head").value); draw(); });
$("close-attention").addEventListener("click", () => $("attention").close());
