// Colours of tokens and rewards.

const mix = (a, b, t) => a.map((x, i) => Math.round(x + (b[i] - x) * t));
const rgba = (c, alpha) => `rgba(${c.join(",")},${alpha})`;
const kRed = [209, 73, 91], kGreen = [42, 157, 92], kBlue = [47, 111, 222], kAmber = [230, 159, 0];
const kVersions = [[47, 111, 222], [230, 159, 0], [42, 157, 92], [204, 121, 167], [86, 180, 233], [213, 94, 0]];

// How a colouring paints a token's value, and what its legend says: its ends and a gradient.
export const kColourings = {
  none: {paint: () => ""},
  logprob: {
    // Likely tokens stay plain, surprising ones turn red: -6 is a chance of one in 400.
    paint: (v) => rgba(kRed, Math.min(1, -v / 6) * 0.75),
    legend: ["0 (certain)", "-6 and less", `linear-gradient(90deg, ${rgba(kRed, 0)}, ${rgba(kRed, .75)})`]
  },
  advantage: {
    paint: (v) => rgba(v < 0 ? kRed : kGreen, Math.min(1, Math.abs(v) / 2) * 0.7),
    legend: ["-2", "2", `linear-gradient(90deg, ${rgba(kRed, .7)}, transparent, ${rgba(kGreen, .7)})`]
  },
  entropy: {
    paint: (v) => rgba(mix(kBlue, kAmber, Math.min(1, v / 4)), 0.08 + Math.min(1, v / 4) * 0.6),
    legend: ["0", "4 nats and more", `linear-gradient(90deg, ${rgba(kBlue, .08)}, ${rgba(kAmber, .68)})`]
  },
  version: {paint: (v) => rgba(kVersions[v % kVersions.length], 0.35)}
};

export function rewardColour(reward, low, high) {
  const t = high > low ? (reward - low) / (high - low) : reward > 0 ? 1 : 0;
  return rgba(mix(kRed, kGreen, t), 1);
}

// Attention weights from 0 to 1. The root lifts the small ones, which are most of them.
export const attentionPixel = (weight) => mix([255, 255, 255], kBlue, Math.sqrt(weight));
export const attentionShade = (weight) => rgba(kBlue, Math.sqrt(weight));
