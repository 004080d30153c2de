// Builds and fills the page. Text enters it only as text nodes and attributes, so markup in a
// sample is shown, never run.

export const $ = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  set(node, attributes);
  node.append(...children);
  return node;
}

export function makeSvg(tag, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(node, attributes);
  return node;
}

function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") node.style.cssText = value;
    else node.setAttribute(key, value);
  }
}

// A reply of the server. Every request has a deadline, so a lost server is noticed.
export async function get(path, seconds = 20) {
  let reply;
  try {
    reply = await fetch(path, {signal: AbortSignal.timeout(1000 * seconds)});
  } catch {
    throw new Error("the server of this page does not respond (is tandem view still running?)");
  }
  if (!reply.ok) throw new Error((await reply.text()).trim() || reply.statusText);
  return reply;
}

export async function getJson(path, seconds) {
  return (await get(path, seconds)).json();
}

// Shows an error at the top of the page; null removes it.
export function complain(error) {
  $("problem").textContent = error ? String(error.message || error) : "";
  $("problem").hidden = !error;
}

// Shows text beside the point (x, y) of the window; null hides it.
export function tip(point, ...content) {
  $("tip").hidden = !point;
  if (!point) return;
  // An open dialog lies above everything outside it.
  const home = document.querySelector("dialog[open]") || document.body;
  if ($("tip").parentNode !== home) home.append($("tip"));
  $("tip").replaceChildren(...content);
  const box = $("tip").getBoundingClientRect();
  $("tip").style.left = `${Math.max(4, Math.min(point.x + 12, innerWidth - box.width - 4))}px`;
  $("tip").style.top = `${Math.max(4, Math.min(point.y + 14, innerHeight - box.height - 4))}px`;
}

export const mean = (values) => values.length ? values.reduce((a, b) => a + b, 0) / values.length : 0;

export function show(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  if (size >= 1e7 || (value !== 0 && size < 1e-3)) return value.toExponential(2);
  return String(Number(value.toFixed(size >= 1e3 ? 0 : size >= 100 ? 2 : 4)));
}
