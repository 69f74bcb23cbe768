// A log: a window over the whole log on disk, read by cursor. Following adds what the stream brings; a search is done by the server.

import { ansi } from "./ansi.js";
import { download, get, query } from "./api.js";
import { go, route } from "./filter.js";
import { follow, isLost, live, onStream, serverNow } from "./live.js";
import { formatCursor, keyOf, LogWindow, merged, parseCursor } from "./logwindow.js";
import { Answer, Component, copy, Ghosts, html, Icon, Problem, State, StopButton } from "./parts.js";
import { say } from "./stop.js";
import { bytes, clock, count, nameOf, plural, stateOf, timeOf, when } from "./words.js";

/** Lines that are asked for at once, and that are in the document at most. */
const PAGE = 500;
const SHOWN = 1000;
const HITS = 500;
/** How much of one line is shown. */
const LONGEST = 20000;

/** The text of a line in its colors, with the hits marked. Only text nodes. */
export function Text({ text, hit }) {
  if (text.length > LONGEST) {
    return [html`<${Text} text=${text.slice(0, LONGEST)} hit=${hit} />`, html`<span class="muted"> … ${count(text.length - LONGEST)} more characters, see Raw</span>`];
  }
  const spans = ansi(text);
  if (hit) return mark(spans.map((span) => span.text).join(""), hit);
  return spans.map((span) =>
    span.href ? html`<a class=${span.class} href=${span.href} target="_blank" rel="noopener noreferrer nofollow">${span.text}</a>` : span.class ? html`<span class=${span.class}>${span.text}</span>` : span.text,
  );
}

function mark(text, hit) {
  const out = [];
  let at = 0;
  for (const found of text.matchAll(hit)) {
    if (!found[0]) break;
    out.push(text.slice(at, found.index), html`<mark>${found[0]}</mark>`);
    at = found.index + found[0].length;
  }
  return [...out, text.slice(at)];
}

class Entry extends Component {
  shouldComponentUpdate(next) {
    return next.hit !== this.props.hit || next.on !== this.props.on || next.entry.text !== this.props.entry.text;
  }

  render({ entry, hit, on, pick }) {
    if (entry.kind === "cut") {
      const lines = entry.lines === undefined || entry.lines === null ? "Lines" : plural(entry.lines, "line");
      return html`<div class="cutrow" id=${keyOf(entry)}><${Icon} id="cut" /><span class="grow"><b>${lines} (${bytes(entry.bytes)}) were not kept here</b>, ${entry.stream} before ${clock(entry.time)}. The log is full; its beginning and its end are kept. A search sees nothing of the gap.</span><span class="muted">bytes ${count(entry.from)} to ${count(entry.to)}</span></div>`;
    }
    const letter = entry.stream === "stderr" ? "e" : entry.stream === "stdout" ? "o" : "q";
    return html`<div class=${`ln ${letter === "e" ? "err" : letter === "q" ? "q" : ""} ${on ? "hit" : ""}`} id=${keyOf(entry)} onClick=${pick && (() => pick(entry))}><time datetime=${entry.time} title=${entry.time}>${clock(entry.time, 3)}</time><span class="st" title=${entry.stream}>${letter}</span><span class="tx"><${Text} text=${entry.text} hit=${hit} /></span></div>`;
  }
}

/** The log of one job; `small` is that of the job page. */
export class LogView extends Component {
  state = { following: true, wrap: false, hits: undefined, streams: { stdout: true, stderr: true }, fresh: 0 };
  window = new LogWindow();
  start = 0;

  keys = {
    n: () => this.hop(1), N: () => this.hop(-1), f: () => this.toggle(), w: () => this.setState(({ wrap }) => ({ wrap: !wrap })),
    y: () => this.link(), t: () => document.querySelector(".goto")?.focus(), g: () => this.top(), G: () => this.end(),
    x: () => document.querySelector(".logbar .stop")?.click(), Escape: () => go(`#/job/${this.props.job.id}`),
  };

  get path() {
    return `/v1/jobs/${this.props.job.id}/logs`;
  }

  componentDidMount() {
    const { q, at, line } = this.props.query ?? {};
    this.props.bind?.(this.keys);
    this.off = onStream(({ event, data }) => {
      if ((event === "log" || event === "cut") && data.job === this.props.job.id) this.arrived({ kind: event === "cut" ? "cut" : "line", ...data }, data.cursor);
    });
    // A summary for screen readers: not each line.
    this.timer = setInterval(() => {
      if (this.unsaid && !this.props.small) say(`${plural(this.unsaid, "new line")}`);
      this.unsaid = 0;
    }, 5000);
    if (q) this.search(q);
    if (at) this.goTo(at, line);
    else this.end();
  }

  componentWillUnmount() {
    this.off();
    this.unfollow?.();
    clearInterval(this.timer);
    clearTimeout(this.soon);
    clearTimeout(this.drawn);
  }

  /** The first and the last entry that are in sight, by the share of the lines that is above and below. */
  inSight() {
    const list = this.state.hits?.entries ?? this.window.entries.slice(this.start, this.start + SHOWN);
    const { scrollTop = 0, scrollHeight = 0, clientHeight = 0 } = this.box ?? {};
    // Out of sight, nothing has a height.
    const at = (height) => list[Math.max(0, Math.min(list.length - 1, Math.floor((height / (scrollHeight || 1)) * list.length)))];
    return list.length ? [at(scrollTop), at(scrollTop + clientHeight)] : [];
  }

  async page(values) {
    const stream = this.state.streams.stdout === this.state.streams.stderr ? undefined : this.state.streams.stdout ? "stdout" : "stderr";
    return get(`${this.path}?${query({ budget: 1048576, ...values, stream })}`, { timeout: 30000 });
  }

  /** Runs one reading at a time; what failed is shown in the place of the lines. */
  async reading(read) {
    if (this.busy) return;
    this.busy = true;
    try {
      await read();
      this.setState({ error: undefined, read: true });
    } catch (error) {
      this.setState({ error, read: true });
    }
    this.busy = false;
  }

  end() {
    return this.reading(async () => {
      const page = await this.page({ tail: this.props.small ? 200 : PAGE });
      this.window.jump(page, { atEnd: true, atTop: (page.lines?.length ?? 0) < (this.props.small ? 200 : PAGE) });
      this.totals = page.totals;
      this.start = Math.max(0, this.window.entries.length - SHOWN);
      this.unfollow?.();
      this.unfollow = follow(this.props.job.id, () => formatCursor(this.window.atEnd ? this.window.to : this.latest ?? this.window.to));
      this.stick = true;
      this.setState({ following: true, fresh: 0 });
    });
  }

  top() {
    return this.reading(async () => {
      const page = await this.page({ head: PAGE });
      this.window.jump(page, { atTop: true });
      this.start = 0;
      this.stick = false;
      this.setState({ following: false }, () => this.box?.scrollTo(0, 0));
    });
  }

  /** To a time, "14:06:40" of the day of the last lines or RFC 3339, and to the line that a link names. */
  goTo(text, line) {
    const time = timeOf(text, this.window.entries.at(-1)?.time ?? serverNow());
    if (!time) return this.setState({ error: { message: `"${text}" is not a time`, code: "bad_value", hint: "write 14:06:40, or a date and a time" } });
    return this.reading(async () => {
      this.window.jump(await this.near(time.getTime()));
      this.window.prepend(await this.page({ until: formatCursor(this.window.from), tail: 100 }));
      this.start = 0;
      this.stick = false;
      const target = line ?? keyOf(this.window.entries.find((entry) => Date.parse(entry.time) >= time.getTime()) ?? this.window.entries.at(-1) ?? {});
      this.setState({ following: false, on: target }, () => document.getElementById(target)?.scrollIntoView({ block: "center" }));
    });
  }

  /** The lines from about this time on: the place is found by halving the log, with a line or two from each place. */
  async near(time) {
    const { totals } = await this.page({ tail: 1 });
    this.totals = totals;
    const cursor = (share) => formatCursor({ stdout: Math.floor(totals.stdout.bytes * share), stderr: Math.floor(totals.stderr.bytes * share) });
    let [low, high] = [0, 1];
    for (let round = 0; round < 24 && (high - low) * (totals.stdout.bytes + totals.stderr.bytes) > 4096; round++) {
      const middle = (low + high) / 2;
      const { lines } = await this.page({ since: cursor(middle), head: 3 });
      if (lines.length && Date.parse(lines.at(-1).time) < time) low = middle;
      else high = middle;
    }
    const page = await this.page({ since: cursor(low), head: PAGE });
    if (!low) return page;
    // A place within a line: the whole line is read with those before it.
    const first = ["stdout", "stderr"].map((stream) => page.lines.find((line) => line.stream === stream));
    return { ...page, from: undefined, lines: page.lines.filter((line) => !first.includes(line)) };
  }

  arrived(entry, cursor) {
    this.latest = parseCursor(cursor) ?? this.latest;
    if (!this.state.streams[entry.stream]) return;
    if (!this.window.atEnd) {
      this.setState(({ fresh }) => ({ fresh: fresh + 1 }));
      return;
    }
    const added = this.window.append([entry], cursor);
    this.unsaid = (this.unsaid ?? 0) + added;
    if (!this.stick) this.pending = (this.pending ?? 0) + added;
    // Many lines come at once: one drawing for all of them.
    this.soon ??= setTimeout(() => {
      this.soon = undefined;
      if (this.stick) this.start = Math.max(0, this.window.entries.length - SHOWN);
      const more = this.pending ?? 0;
      this.pending = 0;
      this.setState(({ fresh }) => ({ fresh: this.stick ? 0 : fresh + more }));
    }, 50);
  }

  toggle() {
    if (this.state.following && this.window.atEnd) {
      this.stick = false;
      this.setState({ following: false });
    } else if (this.window.atEnd) {
      this.start = Math.max(0, this.window.entries.length - SHOWN);
      this.stick = true;
      this.setState({ following: true, fresh: 0, hits: undefined });
    } else this.setState({ hits: undefined }, () => this.end());
  }

  onScroll = () => {
    const { box, window: { entries } } = this;
    if (!box) return;
    // The rail shows what is seen.
    this.drawn ??= setTimeout(() => {
      this.drawn = undefined;
      this.setState({});
    }, 150);
    if (this.state.hits) return;
    const bottom = box.scrollHeight - box.scrollTop - box.clientHeight < 24;
    const last = this.start + SHOWN >= entries.length;
    if (bottom && last && this.window.atEnd !== this.state.following) {
      this.stick = this.window.atEnd;
      this.setState({ following: this.stick, fresh: this.stick ? 0 : this.state.fresh });
    } else if (!bottom && this.stick) {
      this.stick = false;
      this.setState({ following: false });
    }
    if (box.scrollTop < 400 && this.start > 0) this.shift(-SHOWN / 2);
    else if (box.scrollTop < 400 && !this.window.atTop) this.older();
    else if (box.scrollHeight - box.scrollTop - box.clientHeight < 400) {
      if (!last) this.shift(SHOWN / 2);
      else if (!this.window.atEnd) this.newer();
    }
  };

  shift(by) {
    this.start = Math.max(0, Math.min(this.window.entries.length - SHOWN, this.start + by));
    this.setState({});
  }

  older() {
    return this.reading(async () => {
      const page = await this.page({ until: formatCursor(this.window.from), tail: PAGE });
      const added = this.window.prepend(page);
      this.start += added;
      this.start = Math.max(0, this.start - SHOWN / 2);
      this.setState({});
    });
  }

  newer() {
    return this.reading(async () => {
      const page = await this.page({ since: formatCursor(this.window.to), head: PAGE });
      const added = this.window.append(merged(page), page.cursor);
      if (!page.omitted && page.lines.length < PAGE) {
        this.window.atEnd = true;
        this.unfollow?.();
        this.unfollow = follow(this.props.job.id, () => formatCursor(this.window.to));
      }
      this.start = Math.max(0, Math.min(this.window.entries.length - SHOWN, this.start + added));
      this.setState({});
    });
  }

  /** The first line that is seen keeps its place when lines are added before it. */
  getSnapshotBeforeUpdate() {
    if (!this.box || this.stick) return null;
    const top = this.box.getBoundingClientRect().top;
    const first = [...this.box.querySelectorAll(".ln")].find((line) => line.getBoundingClientRect().bottom > top);
    return first ? { id: first.id, at: first.getBoundingClientRect().top } : null;
  }

  componentDidUpdate(_, __, anchor) {
    if (!this.box) return;
    if (this.stick) this.box.scrollTop = this.box.scrollHeight;
    else if (anchor && !this.state.hits) {
      const now = this.box.querySelector(`[id="${anchor.id}"]`)?.getBoundingClientRect().top;
      if (now !== undefined && Math.abs(now - anchor.at) > 1) this.box.scrollTop += now - anchor.at;
    }
  }

  async search(text) {
    this.text = text;
    this.props.set?.({ q: text });
    if (!text) return this.setState({ hits: undefined, hit: undefined });
    let hit;
    try {
      hit = new RegExp(text, "g");
    } catch {
      hit = undefined;
    }
    const began = performance.now();
    try {
      const page = await this.page({ grep: text, tail: HITS, budget: 4194304 });
      if (this.text !== text) return;
      const entries = merged(page);
      const found = entries.filter((entry) => entry.kind === "line" && (entry.hit ?? (hit ? entry.text.search(new RegExp(text)) >= 0 : true)));
      this.stick = false;
      this.setState({ hits: { entries, found, all: `${count(found.length)}${page.omitted ? "+" : ""}`, took: Math.round(performance.now() - began) }, hit, searchError: undefined, on: found.length ? keyOf(found.at(-1)) : undefined }, () => this.show());
    } catch (error) {
      this.setState({ searchError: error, hits: undefined });
    }
  }

  show() {
    document.getElementById(this.state.on)?.scrollIntoView({ block: "center" });
  }

  hop(by) {
    const list = this.state.hits?.found;
    if (!list?.length) return;
    const at = list.findIndex((entry) => keyOf(entry) === this.state.on);
    const next = list[(at + by + list.length) % list.length];
    this.setState({ on: keyOf(next) }, () => this.show());
  }

  pick = (entry) => this.setState({ on: keyOf(entry) });

  entry() {
    const list = this.state.hits?.entries ?? this.window.entries;
    return list.find((entry) => keyOf(entry) === this.state.on) ?? list.at(-1);
  }

  link() {
    const entry = this.entry();
    if (entry) copy(location.origin + location.pathname + route(["log", this.props.job.id], { at: entry.time, line: keyOf(entry) }));
  }

  raw = () => download(`/v1/jobs/${this.props.job.id}/output/stdout`, `${nameOf(this.props.job)}.stdout.log`).catch((error) => say(error.message));

  lines() {
    const { hits, hit, on } = this.state;
    const row = (entry) => html`<${Entry} key=${keyOf(entry)} entry=${entry} hit=${hit} on=${on === keyOf(entry)} pick=${this.props.small ? undefined : this.pick} />`;
    if (!hits) return this.window.entries.slice(this.start, this.start + SHOWN).map(row);
    let end;
    return hits.entries.flatMap((entry) => {
      const gap = end !== undefined && entry.kind === "line" && end[entry.stream] !== undefined && entry.offset > end[entry.stream];
      end = { ...end, [entry.stream]: entry.kind === "cut" ? entry.to : entry.offset + new TextEncoder().encode(entry.text).length + 1 };
      return gap ? [html`<div class="skip" key=${`s${keyOf(entry)}`}>lines without a hit <button class="btn btn-q" onClick=${() => this.setState({ hits: undefined }, () => this.goTo(entry.time, keyOf(entry)))}>show</button></div>`, row(entry)] : [row(entry)];
    });
  }

  render({ job, small }, { following, wrap, hits, error, searchError, read, fresh, streams, on }) {
    const ended = job.state === "ended";
    const empty = read && !this.window.entries.length && !hits;
    const body = html`<div class=${`log ${wrap ? "wrapped" : ""}`} role="log" aria-live="off" aria-label=${`Log of ${nameOf(job)}`} tabIndex="0" ref=${(box) => (this.box = box)} onScroll=${this.onScroll}>${error ? html`<${Problem} error=${error} />` : !read ? html`<${Ghosts} />` : ""}
${!error && read && this.window.atTop && !hits && this.window.entries.length > 0 && html`<div class="skip">the beginning of the log</div>`}${this.lines()}
${empty && !error && html`<div class="empty">No output${ended ? "" : " yet"}.</div>`}${hits && !hits.found.length && html`<div class="empty"><h2>No hit</h2><p>${this.totals ? `${count(this.totals.stdout.lines + this.totals.stderr.lines)} lines searched` : "The whole log on disk was searched"}${hits.entries.length ? `, but not ${plural(hits.entries.length, "cut")}` : ""}.</p></div>`}</div>`;
    const status = html`<span class="state"><${Icon} id=${following && !ended && !hits ? "running" : "pause"} class=${following && !ended ? "ok" : "muted"} /><span class="muted">${isLost() ? "no connection" : ended ? "ended" : following && !hits ? "following" : hits ? "hits only" : "follow is off"}</span></span>`;
    if (small) {
      return html`<section class="card logcard"><header><h2>Log</h2>${status}<span class="grow"></span><form class="field" role="search" aria-label="Log" onSubmit=${(event) => (event.preventDefault(), go(route(["log", job.id], { q: event.target.q.value })))}><${Icon} id="eye" /><input class="grow" name="q" aria-label="Search the whole log" placeholder="Search the whole log" /></form><a class="btn" href=${`#/log/${job.id}`}>Full screen <kbd aria-hidden="true">l</kbd></a></header>${body}<div class="logfoot"><span>o stdout</span><span>e stderr</span><span class="grow"></span><button class="btn btn-q" onClick=${() => this.toggle()}>${following ? "Pause" : "Follow"}${fresh ? ` (${count(fresh)} new)` : ""}</button><button class="btn btn-q" aria-pressed=${String(wrap)} onClick=${this.keys.w}>Wrap</button><button class="btn btn-q" onClick=${this.raw}><${Icon} id="load" />Raw</button></div></section>`;
    }
    const at = hits ? hits.found.findIndex((entry) => keyOf(entry) === on) + 1 : 0;
    const total = job.output ?? this.totals;
    const flip = (stream) => this.setState({ streams: { ...streams, [stream]: !streams[stream] } }, () => (hits ? this.search(this.text) : this.end()));
    return html`<main class="logscreen"><div class="logbar"><a class="btn btn-q" href=${`#/job/${job.id}`} aria-label=${`Back to ${nameOf(job)}`}><${Icon} id="left" /></a><h1>${nameOf(job)}</h1><${State} of=${stateOf(job, serverNow())} /><span class="muted only-l">${job.vitals?.processes === undefined ? "" : plural(job.vitals.processes, "process")} ${job.session}</span><span class="grow"></span><span class="muted only-l">${total ? `${plural(total.stdout.lines + total.stderr.lines, "line")} written (${bytes(total.stdout.bytes + total.stderr.bytes)})` : ""}</span><button class="btn" onClick=${this.raw}><${Icon} id="load" />Raw</button><${StopButton} job=${job} tab /></div>
<${Answer} job=${job} /><div class="logbar"><form class="field grow" role="search" aria-label="Log" onSubmit=${(event) => (event.preventDefault(), this.search(event.target.q.value))}><${Icon} id="eye" /><input class="grow mono" name="q" type="search" aria-label="Search the whole log" placeholder="Search the whole log on disk (a regular expression)" defaultValue=${this.props.query?.q} onSearch=${(event) => this.search(event.target.value)} /><span class="muted hits">${searchError ? html`<span class="bad">${searchError.message}</span>` : hits ? `hit ${at} of ${hits.all}, whole log on disk, ${hits.took} ms` : ""}</span><kbd aria-hidden="true">N</kbd><kbd aria-hidden="true">n</kbd></form>
<span class="seg" role="group" aria-label="Lines"><button aria-pressed=${String(!!hits)} disabled=${!this.text} onClick=${() => this.search(this.text)}>Hits</button><button aria-pressed=${String(!hits)} onClick=${() => { const entry = this.entry(); this.setState({ hits: undefined }, () => entry && hits && this.goTo(entry.time, keyOf(entry))); }}>All lines</button></span>
<span class="seg" role="group" aria-label="Streams">${["stdout", "stderr"].map((stream) => html`<button key=${stream} aria-pressed=${String(streams[stream])} onClick=${() => flip(stream)}>${stream}</button>`)}</span>
<form class="field narrow" onSubmit=${(event) => (event.preventDefault(), this.setState({ hits: undefined }), this.goTo(event.target.at.value))}><label for="goto">Go to</label><input id="goto" class="goto" name="at" placeholder="14:06:40" /><kbd aria-hidden="true">t</kbd></form><span class="seg"><button onClick=${this.keys.g}>Top</button><button onClick=${this.keys.G}>End</button></span></div>
<div class="logpage">${body}<${Rail} job=${job} entries=${this.window.entries} sight=${this.inSight()} hits=${hits} pick=${(time) => (this.setState({ hits: undefined }), this.goTo(time))} /></div>
<div class="logfoot"><${Icon} id=${following ? "running" : "pause"} class=${following && !ended ? "ok" : ""} /><span>${ended ? `Ended ${when(job.ended, serverNow())}` : following && !hits ? "Following" : "Follow is off, because you left the end"}</span><span class="grow"></span><button class="btn btn-q only-l" aria-pressed=${String(wrap)} onClick=${this.keys.w}>Wrap <kbd aria-hidden="true">w</kbd></button><button class="btn btn-q only-l" onClick=${this.keys.y}>Copy link to line <kbd aria-hidden="true">y</kbd></button><button class=${`btn ${following && !hits ? "" : "btn-p"}`} onClick=${() => this.toggle()}><${Icon} id=${following && !hits ? "pause" : "down"} />${following && !hits ? "Pause" : fresh ? `${count(fresh)} new lines` : "Follow"} <kbd aria-hidden="true">f</kbd></button></div></main>`;
  }
}

/** The whole time of the log, with what is seen, the hits and the cuts. A press goes to that time. */
function Rail({ job, entries, sight, hits, pick }) {
  const begin = Date.parse(job.started ?? job.created);
  const end = Math.max(begin + 1000, job.state === "ended" ? Date.parse(job.ended) : serverNow());
  const y = (time) => 16 + Math.max(0, Math.min(1, (Date.parse(time) - begin) / (end - begin))) * 568;
  const lines = (hits?.entries ?? entries).filter((entry) => entry.time);
  const [from, to] = sight.length ? sight.map((entry) => y(entry.time)) : [16, 16];
  const cuts = entries.filter((entry) => entry.kind === "cut");
  const press = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    pick(new Date(begin + Math.max(0, Math.min(1, ((event.clientY - box.top) / box.height) * 600 / 568 - 16 / 568)) * (end - begin)).toISOString());
  };
  const bars = Array.from({ length: 71 }, (_, i) => 16 + i * 8);
  const near = (at) => lines.filter((entry) => Math.abs(y(entry.time) - at) < 4).length;
  return html`<svg class="rail" viewBox="0 0 92 600" preserveAspectRatio="none" role="img" aria-label=${`The log from ${clock(begin)} to ${clock(end)}; shown: ${sight.length ? `${clock(sight[0].time)} to ${clock(sight[1].time)}` : "nothing"}`} onClick=${press}>${bars.map((at) => html`<rect class="vol" x="8" y=${at} width=${Math.min(34, 3 + Math.sqrt(near(at)) * 4)} height="4" rx="1" />`)}${cuts.map((cut) => html`<rect class="gap" x="6" y=${Math.max(8, y(cut.time) - 24)} width="42" height="24" /><text x="14" y=${y(cut.time) - 8}>cut</text>`)}<rect class="view" x="4" y=${from - 4} width="48" height=${Math.max(8, to - from + 8)} rx="3" />${(hits?.found ?? []).slice(0, HITS).map((entry) => html`<rect class="m" x="40" y=${y(entry.time)} width="10" height="3" />`)}<text x="56" y="20">${clock(begin).slice(0, 5)}</text><text x="56" y=${16 + 284}>${clock((begin + end) / 2).slice(0, 5)}</text><text x="56" y="584">${clock(end).slice(0, 5)}</text></svg>`;
}

/** The whole screen; the job may be one that is not in the list. */
export class LogPage extends Component {
  componentDidMount() {
    const { id } = this.props;
    if (!live.jobs.has(id)) get(`/v1/jobs/${id}`).then((status) => this.setState({ job: status.job ?? status }), (error) => this.setState({ error }));
  }

  render({ id, query: given, set, bind }, { job, error }) {
    const found = live.jobs.get(id) ?? job;
    if (!found) return html`<main class="wrap">${error ? html`<${Problem} error=${error} />` : html`<${Ghosts} />`}</main>`;
    return html`<${LogView} key=${found.id} job=${found} query=${given} set=${set} bind=${bind} />`;
  }
}
