// Pictures of samples: each at its place among the text, with its size; where the server has none, a
// text says why.
import {get, make} from "./dom.js";

// The path of an image, which a sample's earlier ones of the group may have told.
function nameOf(group, image) {
  if (image.name) return image.name;
  const same = group.members.flatMap((m) => m.images || []).find((i) => i.sha256 === image.sha256 && i.name);
  return same ? same.name : `image ${image.sha256.slice(0, 12)}`;
}

export function picture(group, sample, image) {
  const name = nameOf(group, image);
  const address = `api/image?${sample.address}&sha256=${image.sha256}`;
  const caption = make("figcaption", {class: "muted"}, name.replace(/^.*\//, ""));
  const img = make("img", {alt: name, title: name});
  const figure = make("figure", {class: "picture"}, img, caption);
  img.addEventListener("load", () => {
    img.classList.toggle("tiny", img.naturalWidth < 64);
    caption.textContent += `, ${img.naturalWidth} x ${img.naturalHeight}`;
  });
  img.addEventListener("error", () => {
    const say = (why) => figure.replaceChildren(make("span", {class: "missing"}, `[no picture: ${why}]`));
    get(address).then(() => say(`${name}: the browser cannot show it`), (error) => say(error.message));
  });
  img.src = address;
  return figure;
}

const imagesIn = (sample, part) => (sample.images || []).filter((image) => image.part === part);

// The group's prompt with its pictures in place of `placeholder`; before the text, where it has another
// number of placeholders. `draw` makes nodes of a piece of text.
export function promptWithPictures(group, placeholder, draw) {
  const sample = group.members[0];
  // Without a known place an image is the prompt's.
  const images = (sample.images || []).filter((image) => image.part !== "response");
  const pieces = placeholder ? group.prompt.split(placeholder) : [group.prompt];
  if (pieces.length !== images.length + 1) {
    return [...images.map((image) => picture(group, sample, image)), ...draw(group.prompt)];
  }
  return pieces.flatMap((piece, i) => i === 0 ? draw(piece) : [picture(group, sample, images[i - 1]), ...draw(piece)]);
}

// `spans`, one for each token of the sample's response, with a picture for each run of placeholders.
export function spansWithPictures(group, sample, spans) {
  const images = imagesIn(sample, "response");
  if (images.length === 0) return spans;
  const out = [];
  let at = 0;
  for (const image of images) {
    out.push(...spans.slice(at, image.begin), picture(group, sample, image));
    at = image.end;
  }
  return [...out, ...spans.slice(at)];
}

// The text with a word in place of `placeholder`, for a line of a list.
export const withoutPictures = (text, placeholder) => placeholder ? text.replaceAll(placeholder, "[image]") : text;
