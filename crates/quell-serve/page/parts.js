// Small pieces that the screens share. Everything that a job wrote goes through text nodes: there is no way to make markup of a string.

import { Component, h } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";
import { secondsLeft } from "./clock.js";
import { isLost, may, serverNow } from "./live.js";
import { phase } from "./phase.js";
import { asks, say, stop, stopCommand } from "./stop.js";
import { nameOf, plural } from "./words.js";

export const html = htm.bind(h);

export const Icon = ({ id, class: more = "" }) =>
  html`<svg class=${`i ${more}`} aria-hidden="true"><use href=${`#${id}`} /></svg>`;

/** Draws its child function again each `every` ms. */
export class Tick extends Component {
  componentDidMount() {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.timer = setInterval(() => this.setState({}), Math.max(this.props.every ?? 1000, calm ? 1000 : 100));
  }
  componentWillUnmount() {
    clearInterval(this.timer);
  }
  render({ children }) {
    return [children].flat()[0]();
  }
}

/** Calls `load` at once and each time `of` changes; draws `render(data, error)`. */
export class Load extends Component {
  componentDidMount() {
    this.read();
    if (this.props.every) this.timer = setInterval(() => document.hidden || isLost() || this.read(), this.props.every);
  }
  componentDidUpdate(before) {
    if (before.of !== this.props.of) this.read();
  }
  componentWillUnmount() {
    clearInterval(this.timer);
    this.gone = true;
  }
  read() {
    const { of, load } = this.props;
    const current = () => !this.gone && this.props.of === of;
    load().then((data) => current() && this.setState({ data, error: undefined }), (error) => current() && this.setState({ error }));
  }
  render({ children }, { data, error }) {
    if (error && data === undefined) return html`<${Problem} error=${error} />`;
    return data === undefined ? html`<${Ghosts} />` : [children].flat()[0](data);
  }
}

export const Ghosts = () => html`<div class="ghosts" role="status"><span class="sr">reading</span>${[60, 85, 40].map((w) => html`<span class=${`ghost w${w}`} />`)}</div>`;

export const Problem = ({ error }) =>
  html`<div class="empty" role="alert"><h2>${error.message}</h2><p><code>${error.code}</code>${error.hint ? `: ${error.hint}` : ""}</p></div>`;

export const State = ({ of, chip }) =>
  html`<span class=${`state ${chip ? "chip" : ""} ${of.all ?? ""}`}><${Icon} id=${of.icon} class=${of.tone} />${of.word}</span>`;

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("copied");
  } catch {
    say("this browser does not let pages copy: select the text instead");
  }
}

export const Command = ({ text }) =>
  html`<span class="cmd"><span class="cut">${text}</span><button class="btn btn-q" aria-label=${`Copy ${text}`} onClick=${() => copy(text)}><${Icon} id="copy" /></button></span>`;

/** A row of buttons of which one is pressed: `options` are `[value, label]`. */
export const Choice = ({ options, value, pick, label }) =>
  html`<span class="seg" role="group" aria-label=${label}>${options.map(
    ([key, text]) => html`<button key=${key} aria-pressed=${String(key === value)} onClick=${() => pick(key)}>${text}</button>`,
  )}</span>`;

export const Select = ({ label, options, value, pick }) =>
  html`<label class="sel">${label}<select value=${value} onChange=${(event) => pick(event.target.value)}>${options.map(
    ([key, text]) => html`<option key=${key} value=${key}>${text}</option>`,
  )}</select></label>`;

export const Tags = ({ job }) => Object.entries(job.tags ?? {}).map(([key, value]) => html`<span class="tag">${key}=${value}</span> `);

/** CPU over the last 30 s: full height is the limit, else one core, else the highest seen. */
export function Spark({ values, limit }) {
  const top = Math.max(limit ?? 1, ...values);
  const points = values.slice(-15).map((v, i, all) => `${(15 - all.length + i) * 4},${(18 - (v / top) * 16).toFixed(1)}`);
  return html`<svg class="spark" viewBox="0 0 56 20" aria-hidden="true"><path class="base" d="M0 18.5h56" /><polyline points=${points.join(" ")} /></svg>`;
}

/** The part of the grace that is left, as a ring or a line. */
export const Ring = ({ share }) =>
  html`<svg class="ring" viewBox="0 0 36 36" aria-hidden="true"><circle class="bg" cx="18" cy="18" r="15" /><circle class="fg" cx="18" cy="18" r="15" pathLength="100" stroke-dasharray=${`${share * 100} 100`} transform="rotate(-90 18 18)" /></svg>`;
export const Line = ({ share, class: name = "drain", label }) =>
  html`<svg class=${name} viewBox="0 0 150 3" preserveAspectRatio="none" role=${label ? "img" : undefined} aria-label=${label} aria-hidden=${label ? undefined : "true"}><rect class="bg" width="150" height="3" /><rect class="fg" width=${150 * share} height="3" /></svg>`;

const FACES = {
  ready: ["stop", "Stop", ""],
  sent: ["ask", "Asking", "btn-w"],
  grace: ["x", "Kill now", "btn-k"],
  killing: ["killed", "Killing", "btn-w"],
  gone: ["gone", "0 left", "ok"],
  left: ["alive", "left", "bad"],
  unheard: ["off", "Not heard", "warn"],
  refused: ["off", "Refused", "warn"],
};

/** The Stop button in its states. It stays in its place; `large` is that of the job page. Only one that waits is drawn by the clock. */
export function StopButton(props) {
  if (!may("stop")) return null;
  const { step } = phase(props.job, asks.get(props.job.id), serverNow());
  const waits = step === "sent" || step === "grace" || step === "killing";
  return waits && !isLost() ? html`<${Tick} every=${200}>${() => html`<${StopFace} ...${props} />`}<//>` : html`<${StopFace} ...${props} />`;
}

/** What is on the button: a link to the receipt, the command to copy, or what a press does. */
function StopFace({ job, large, tab }) {
  const to = `#/job/${job.id}`;
  const size = large ? "btn-l" : "";
  const tabIndex = tab ? undefined : -1;
  const name = nameOf(job);
  const command = stopCommand(job);
  if (isLost() && job.state !== "ended") {
    return html`<button class=${`btn stop ${size}`} tabIndex=${tabIndex} title=${command} onClick=${() => copy(command)}><${Icon} id="copy" />Copy stop</button>`;
  }
  const at = phase(job, asks.get(job.id), serverNow());
  if (at.step === "none" || (large && at.step === "gone")) {
    return large ? null : html`<a class="btn stop" href=${to} tabIndex=${tabIndex} aria-label=${`Receipt of ${name}`}>Receipt</a>`;
  }
  const [icon, word, tone] = FACES[at.step];
  const many = at.alive === undefined ? "" : plural(at.alive, "process");
  const long = {
    ready: `Stop ${many}`,
    sent: `Asking, ${((Date.now() - at.since) / 1000).toFixed(1)} s`,
    grace: at.alive ? `Kill ${at.alive} now` : word,
    killing: `Killing ${at.alive ?? ""}`,
    left: "Stop again",
    unheard: `Not heard. Copy: ${command}`,
  };
  const text = ((large && long[at.step]) || (at.step === "left" ? `${at.left || "not proven"} left`.replace("proven left", "proven") : word)).trim();
  if ((at.step === "gone" || at.step === "left") && !large) {
    return html`<a class=${`btn stop ${tone}`} href=${to} tabIndex=${tabIndex} aria-label=${`${text}, receipt of ${name}`}><${Icon} id=${icon} />${text}</a>`;
  }
  const busy = at.step === "sent" || at.step === "killing";
  const press = () => {
    if (at.step === "unheard") copy(command);
    else if (at.step === "grace") at.armed && stop(job, { kill: true });
    else if (!busy) stop(job);
  };
  const main = large && (at.step === "ready" || at.step === "left");
  const why = at.error && [at.error.message, at.error.hint].filter(Boolean).join(": ");
  return html`<button class=${`btn stop ${size} ${tone} ${main ? "btn-p" : ""}`} tabIndex=${tabIndex} aria-busy=${busy} aria-disabled=${busy || undefined} title=${why} aria-label=${`${text} ${text.includes(name) ? "" : name}${many && !text.includes(many) ? `, ${many}` : ""}`.trim()} onClick=${press}><${Icon} id=${icon} />${text}${large && at.step === "ready" && html` <kbd class="key" aria-hidden="true"></kbd>`}</button>`;
}

/** What is said beside the button when a stop was refused or not heard. */
export function Answer({ job }) {
  const at = phase(job, asks.get(job.id), serverNow());
  if (at.step === "unheard") {
    return html`<p class="banner slim" role="alert"><${Icon} id="off" /><span class="grow">The stop was not heard in 3 s. This works without the server: <${Command} text=${stopCommand(job)} /></span></p>`;
  }
  if (at.step !== "refused") return null;
  return html`<p class="banner slim" role="alert"><${Icon} id="off" /><span class="grow"><b>${at.error.message}.</b> ${at.error.hint ?? ""}${at.error.details?.rule ? ` Rule: ${at.error.details.rule}` : ""}</span></p>`;
}

/** The countdown of a job that stops: "6.2 s" and the share that is left. */
export function countdown(job) {
  const at = phase(job, asks.get(job.id), serverNow());
  if (at.step !== "grace" && at.step !== "killing") return undefined;
  const left = at.end === undefined ? undefined : secondsLeft(new Date(at.end).toISOString(), serverNow());
  return { ...at, left, share: left === undefined || !at.given ? 0 : Math.min(1, left / at.given) };
}

export const Crumb = ({ job, last }) =>
  html`<nav class="crumb" aria-label="Path"><a href="#/">Fleet</a>${job?.session && html`<${Icon} id="right" class="i-s" /><a href=${`#/?q=session:${encodeURIComponent(job.session)}`}>${job.session}</a>`}${last && html`<${Icon} id="right" class="i-s" />${last}`}</nav>`;

export { Component };
