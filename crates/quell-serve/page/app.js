// The frame of the page: login, routes, the top bar, keys, the banner.

import { api, getToken, session, setToken } from "./api.js";
import { filter, go, parseRoute, route } from "./filter.js";
import { Fleet } from "./fleet.js";
import { changed, connect, isLost, live, onChange, onStream, retry, serverNow, signOut } from "./live.js";
import { Command, Component, Ghosts, html, Icon, State, Tick } from "./parts.js";
import { heardEnd, spoken, stopCommand } from "./stop.js";
import { clock, duration, nameOf, stateOf } from "./words.js";
import { render } from "./vendor/preact.mjs";

/** The fleet is there at once; the other screens are loaded when they are first opened. */
const SCREENS = { "": Fleet };
const LATER = {
  job: () => import("./job.js").then((file) => file.JobPage),
  log: () => import("./log.js").then((file) => file.LogPage),
  history: () => import("./history.js").then((file) => file.History),
  feed: () => import("./feed.js").then((file) => file.Feed),
  host: () => import("./host.js").then((file) => file.Host),
};

/** What is shown until a screen is there, or if it can't be had: then the server is another one, or gone. */
function Loading({ screen }) {
  if (!LATER[screen].asked) {
    LATER[screen].asked = true;
    LATER[screen]().then((found) => (SCREENS[screen] = found), () => (LATER[screen].failed = true)).then(changed);
  }
  return html`<main class="wrap">${LATER[screen].failed ? html`<div class="empty" role="alert"><h2>This screen could not be loaded</h2><p>Load the page again.</p></div>` : html`<${Ghosts} />`}</main>`;
}

const NAV = [["", "Fleet"], ["history", "History"], ["feed", "Feed"], ["host", "Host"]];
const KEYS = {
  fleet: [["j k", "next, previous job"], ["g G", "first, last"], ["Enter", "open"], ["Space", "mark"], ["Shift+Space", "mark up to here"], ["x", "stop"], ["Shift+X", "kill now, asks once"], ["l t e", "log, tree, events"], ["d", "density"], ["Esc", "clear the marks"]],
  job: [["x", "stop; again while it stops: kill now"], ["Shift+X", "kill now, asks once"], ["r", "restart, asks once"], ["l", "log"], ["c", "copy the command that stops it"], ["Esc", "back"]],
  log: [["/", "search the whole log"], ["n N", "next, previous hit"], ["t", "go to a time"], ["f", "follow"], ["w", "wrap"], ["y", "copy link to line"], ["g G", "top, end"], ["x", "stop the job"], ["Esc", "back"]],
};
const ALL = [["/", "filter"], ["Ctrl+K", "jump to a job"], ["?", "keys of this view"]];

const isField = (node) => node.closest?.("input,select,textarea");

/** A screen that fails is replaced by what failed: the others, and their Stop buttons, work on. */
class Guard extends Component {
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }

  render({ children }, { error }) {
    return error ? html`<main class="wrap"><div class="empty" role="alert"><h2>This screen has failed</h2><p>${String(error)}</p><p>Load the page again, or use <code>quell stop</code>.</p></div></main>` : children;
  }
}

class App extends Component {
  state = { route: parseRoute(location.hash) };
  keys = {};

  componentDidMount() {
    addEventListener("hashchange", () => (location.hash.startsWith("#code=") ? login(this.state.route) : this.setState({ route: parseRoute(location.hash), menu: false })));
    addEventListener("keydown", (event) => this.press(event));
    onChange(() => this.setState({}));
    onStream(({ event, data }) => event === "job" && data.state === "ended" && heardEnd(data));
    // Ages grow also while nothing is heard.
    setInterval(() => this.setState({}), 5000);
  }

  press(event) {
    const { key, ctrlKey, metaKey, altKey, shiftKey, target } = event;
    const search = () => document.querySelector(".logbar [type=search]") ?? document.querySelector(".top input");
    if ((ctrlKey || metaKey) && key === "k") {
      event.preventDefault();
      document.querySelector(".top input")?.focus();
    } else if (ctrlKey || metaKey || altKey) return;
    else if (key === "Escape" && (this.state.help || this.state.menu)) this.setState({ help: false, menu: false });
    else if (isField(target)) key === "Escape" && target.blur();
    else if (key === "/") {
      event.preventDefault();
      search()?.focus();
    } else if (key === "?") this.setState({ help: !this.state.help });
    else if ((key === "Enter" || key === " ") && target.closest("button,a")) return;
    else {
      const act = this.keys[shiftKey && key === " " ? "Shift+ " : key];
      if (!act) return;
      event.preventDefault();
      act();
    }
  }

  /** Changes the query of this screen, without a step in the history of the browser. */
  set = (values) => {
    const { path, query } = this.state.route;
    const next = route(path, { ...query, ...values });
    history.replaceState(null, "", next);
    this.setState({ route: parseRoute(next) });
  };

  bind = (keys) => {
    this.keys = keys;
  };

  render(_, { route: at, help, menu }) {
    if (live.over && !live.keep) return html`<${Signed} />`;
    const screen = LATER[at.path[0]] ? at.path[0] : "";
    const Screen = SCREENS[screen] ?? Loading;
    document.title = `${screen === "job" || screen === "log" ? nameOf(live.jobs.get(at.path[1]) ?? { id: at.path[1] }) : NAV.find(([key]) => key === screen)?.[1]} - quell`;
    const link = ([key, word]) => html`<a key=${key} href=${`#/${key}`} aria-current=${(screen === "job" || screen === "log" ? "" : screen) === key ? "page" : undefined}>${word}</a>`;
    // What was on the screen stays there, out of sight: with a new session it goes on where it was.
    return html`${live.over && html`<${Signed} />`}<div hidden=${!!live.over}><header class="top"><a class="mark" href="#/"><i></i>quell</a><nav class="nav only-l" aria-label="Screens">${NAV.map(link)}</nav>
<${Jump} value=${screen === "" ? at.query.q : undefined} set=${screen === "" ? this.set : undefined} /><${Conn} />
${live.server?.host && html`<span class="muted only-l">${live.server.host}</span>`}<button class="btn btn-q only-l" aria-label="Keys of this view" onClick=${() => this.setState({ help: !help })}><kbd aria-hidden="true">?</kbd> Keys</button>
<button class="btn btn-q only-s" aria-label="Menu" aria-expanded=${String(!!menu)} onClick=${() => this.setState({ menu: !menu })}><${Icon} id="menu" /></button></header>
${menu && html`<nav class="sheetmenu only-s" aria-label="Screens">${NAV.map(link)}<button class="btn btn-q" onClick=${signOutHere}>Sign out</button></nav>`}
<${Banner} job=${live.jobs.get(at.path[1])} /><${Guard} key=${`${screen}/${at.path[1]}`}><${Screen} screen=${screen} id=${at.path[1]} query=${at.query} set=${this.set} bind=${this.bind} /><//>
<div class="sr" role="status" aria-live="polite">${spoken.text}</div>${help && html`<${Keys} view=${screen || "fleet"} close=${() => this.setState({ help: false })} />`}</div>`;
  }
}

/** The field that filters the fleet; on other screens it jumps to a job. */
class Jump extends Component {
  state = { text: "" };

  render({ value, set }, { text, open, at = 0 }) {
    const shown = value ?? text;
    const found = !set && open && shown ? [...live.jobs.values()].filter(filter(shown)).slice(0, 8) : [];
    const pick = (job) => {
      this.setState({ text: "", open: false });
      go(`#/job/${job.id}`);
    };
    const keydown = (event) => {
      if (event.key === "Enter") event.target.blur();
      if (event.key === "Enter" && set) {
        const only = [...document.querySelectorAll(".job")];
        if (only.length === 1) go(`#/job/${only[0].id.slice(2)}`);
        else only[0]?.focus();
      } else if (event.key === "Enter" && found[at]) pick(found[at]);
      else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        this.setState({ at: Math.max(0, Math.min(found.length - 1, at + (event.key === "ArrowDown" ? 1 : -1))) });
      }
    };
    return html`<div class="field only-l jump" role="search" aria-label="Jobs"><${Icon} id="eye" /><input class="grow" type="search" aria-label="Filter jobs, or jump to one" placeholder="Filter jobs, or jump to one" title="Words, state:running, session:x, team=x, cpu>50, mem>1G, -word" value=${shown ?? ""} onKeyDown=${keydown} onFocus=${() => this.setState({ open: true })} onBlur=${() => setTimeout(() => this.setState({ open: false }), 150)} onInput=${(event) => (set ? set({ q: event.target.value }) : this.setState({ text: event.target.value, at: 0 }))} /><kbd aria-hidden="true">/</kbd>
${found.length > 0 && html`<ul class="found">${found.map((job, i) => html`<li key=${job.id}><a class=${i === at ? "on" : ""} href=${`#/job/${job.id}`} onClick=${() => pick(job)}><${State} of=${stateOf(job)} /> <b>${nameOf(job)}</b> <span class="muted">${job.session}</span></a></li>`)}</ul>`}</div>`;
  }
}

const Conn = () => html`<${Tick} every=${500}>${() => {
  const age = live.heard ? (Date.now() - live.heard) / 1000 : undefined;
  const lost = isLost();
  const word = lost ? "No connection" : live.conn.kind === "connecting" ? "Connecting" : "Live";
  return html`<span class="conn" title="Age of the newest data"><${Icon} id=${lost ? "off" : word === "Live" ? "running" : "starting"} class=${word === "Live" ? "ok" : lost ? "" : "act"} /><span class=${lost ? "strong" : ""}>${word}</span>${age !== undefined && html`<span class="muted">${duration(age)}</span>`}</span>`;
}}<//>`;

function Banner({ job }) {
  if (!isLost()) return null;
  const first = job ?? [...live.jobs.values()].find((one) => one.state !== "ended");
  return html`<div class="banner" role="alert"><${Icon} id="off" /><div class="grow"><${Tick}>${() => html`<span><b>No connection to quell serve for ${duration((Date.now() - live.conn.since) / 1000)}.</b> Your jobs run on without it. What you see is from ${clock(live.heard ?? live.conn.since)}, and Stop here would not be heard.</span>`}<//>
<div class="cmds">${first && html`<span class="soft">Stop one job</span><${Command} text=${stopCommand(first)} />`}${first?.session && html`<span class="soft">Stop a session</span><${Command} text=${`quell stop --session ${first.session}`} />`}<span class="soft">Bring this page back</span><${Command} text="quell serve" /></div></div>
<${Tick}>${() => html`<span class="muted">${live.conn.retry > Date.now() ? `Next try in ${Math.ceil((live.conn.retry - Date.now()) / 1000)} s` : "Trying"}</span>`}<//><button class="btn" onClick=${retry}>Try now</button></div>`;
}

class Keys extends Component {
  componentDidMount() {
    this.box.focus();
  }

  render({ view, close }) {
    const row = ([keys, does]) => html`<div><dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${does}</dd></div>`;
    return html`<section class="card keys" role="dialog" aria-label="Keys of this view" tabIndex="-1" ref=${(box) => (this.box = box)}><header><h2>Keys of this view</h2><span class="grow"></span><button class="btn btn-q" onClick=${close}>Close <kbd aria-hidden="true">Esc</kbd></button></header><dl>${[...(KEYS[view] ?? []), ...ALL].map(row)}</dl></section>`;
  }
}

const Signed = () => html`<main class="wrap center"><section class="card empty"><span class="mark"><i></i>quell</span><h1>${live.over}</h1><p>Your jobs run on. This page needs a new link, which works once:</p><${Command} text="quell serve --url" /><p class="muted">Or open it here: <code>quell serve --open</code></p></section></main>`;

function signOutHere() {
  signOut();
  live.jobs.clear();
  over("Signed out");
}

function over(why, keep = false) {
  setToken(undefined);
  live.over = why;
  live.keep = keep;
  draw();
}

session.over = () => live.over || over("Your session has ended", live.listed);

/** Exchanges the code of the address for a token. The code works once; it leaves the address at once. */
async function login(back = { path: [] }) {
  const code = location.hash.slice("#code=".length);
  history.replaceState(null, "", location.pathname + route(back.path, back.query));
  try {
    const answer = await api("POST", "/v1/login", { code: decodeURIComponent(code) });
    setToken(answer.token);
    live.over = false;
    connect();
    draw();
  } catch (error) {
    over(error.status === 0 ? error.message : "This link was used already, or is too old", live.keep);
  }
}

const place = document.getElementById("app");
place.replaceChildren();
const draw = () => render(html`<${App} />`, place);

async function main() {
  if (location.hash.startsWith("#code=")) return login();
  connect();
  if (getToken()) return draw();
  // Another tab may have a token: it answers at once, if there is one.
  draw();
  setTimeout(() => getToken() || over("Signed out"), 700);
}

main();
