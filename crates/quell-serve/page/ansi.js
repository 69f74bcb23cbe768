// The colors of a line of output, as spans for text nodes. Linear in the length of the line. Everything but SGR is dropped.

const CSI_OR_OSC = /^(?:\[([0-?]*)[ -/]*([@-~]|$)|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|[ -/]*[0-~]|)/;
// Characters that change the order of others, and those that can't be seen.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const LINK = /\bhttps?:\/\/[^\s<>"'`\u0000-\u0020]+[^\s<>"'`.,;:!?)\]}]/g;
const CUBE = [0, 95, 135, 175, 215, 255];

/** What is left of a line that returned to its beginning: terminals show what was written last. */
function overwritten(text) {
  if (!text.includes("\r")) return text;
  const parts = text.replace(/\r+$/, "").split("\r");
  return parts[parts.length - 1];
}

function indexed(n) {
  if (n < 16) return n;
  if (n > 231) return rgb(8 + (n - 232) * 10, 8 + (n - 232) * 10, 8 + (n - 232) * 10);
  n -= 16;
  return rgb(CUBE[Math.floor(n / 36)], CUBE[Math.floor(n / 6) % 6], CUBE[n % 6]);
}

/** The nearest of the 16 colors, because those have 4.5:1 against both grounds of the page. */
function rgb(r, g, b) {
  const max = Math.max(r, g, b);
  if (max - Math.min(r, g, b) < 40) return max < 100 ? 8 : 7;
  const half = max * 0.6;
  return (r > half ? 1 : 0) + (g > half ? 2 : 0) + (b > half ? 4 : 0);
}

function select(style, codes) {
  const list = codes === "" ? [0] : codes.split(/[;:]/).map((code) => Number(code) || 0);
  let next = { ...style };
  for (let i = 0; i < list.length; i++) {
    const n = list[i];
    if (n === 0) next = {};
    else if (n === 1) next.bold = true;
    else if (n === 2) next.dim = true;
    else if (n === 3) next.italic = true;
    else if (n === 4) next.under = true;
    else if (n === 7) next.inverse = true;
    else if (n === 9) next.strike = true;
    else if (n === 22) next.bold = next.dim = undefined;
    else if (n === 23) next.italic = undefined;
    else if (n === 24) next.under = undefined;
    else if (n === 27) next.inverse = undefined;
    else if (n === 29) next.strike = undefined;
    else if (n >= 30 && n <= 37) next.color = n - 30;
    else if (n >= 90 && n <= 97) next.color = n - 82;
    else if (n === 39) next.color = undefined;
    else if (n === 38 || n === 48) {
      const color = list[i + 1] === 5 ? indexed(list[i + 2] & 255) : rgb(list[i + 2] || 0, list[i + 3] || 0, list[i + 4] || 0);
      if (n === 38) next.color = color;
      i += list[i + 1] === 5 ? 2 : 4;
    }
  }
  return next;
}

/** The classes of a style. */
function classes(style) {
  const names = Object.keys(style).filter((key) => key !== "color" && style[key]);
  if (style.color !== undefined) names.push(`c${style.color % 8}`);
  return names.map((name) => `a-${name}`).join(" ");
}

/** `[{text, class, href?}]`: the text as a terminal would show it, without what controls a terminal. */
export function ansi(line) {
  const spans = [];
  let style = {};
  const add = (text) => {
    const clean = text.replace(HIDDEN, "\ufffd");
    if (!clean) return;
    const name = classes(style);
    let at = 0;
    for (const link of clean.matchAll(LINK)) {
      if (link.index > at) spans.push({ text: clean.slice(at, link.index), class: name });
      spans.push({ text: link[0], class: name, href: link[0] });
      at = link.index + link[0].length;
    }
    if (at < clean.length) spans.push({ text: clean.slice(at), class: name });
  };
  const [first, ...rest] = overwritten(line).split("\x1b");
  add(first);
  // OSC ends with ESC \, which was split off: what follows the backslash is text.
  let string = false;
  for (const part of rest) {
    if (string) {
      string = false;
      if (part.startsWith("\\")) {
        add(part.slice(1));
        continue;
      }
    }
    const found = CSI_OR_OSC.exec(part);
    if (found[2] === "m" && !/[<=>?]/.test(found[1])) style = select(style, found[1]);
    string = /^[\]PX^_]/.test(part) && !found[0].endsWith("\x07");
    add(part.slice(found[0].length));
  }
  return spans;
}

/** The text alone. */
export const plain = (line) => ansi(line).map((span) => span.text).join("");
