// What happened: the events of all jobs as they come, and what the guard decided.

import { get } from "./api.js";
import { eventLine } from "./events.js";
import { live, may, onStream, serverNow } from "./live.js";
import { Choice, Component, Ghosts, html, Icon, Load, Problem } from "./parts.js";
import { actor, count, nameOf, when } from "./words.js";

const MOST = 500;
const list = (answer, key) => (Array.isArray(answer) ? answer : answer[key] ?? []);
const matches = (text, words) => words.every((word) => text.toLowerCase().includes(word));

export class Feed extends Component {
  state = { events: undefined };

  componentDidMount() {
    this.props.bind({});
    this.off = onStream(({ event, data }) => event === "event" && this.setState(({ events = [] }) => ({ events: [...events.slice(-MOST), data] })));
    get("/v1/events?limit=300").then((answer) => this.setState(({ events = [] }) => ({ events: [...list(answer, "events"), ...events] })), (error) => this.setState({ error }));
  }

  componentWillUnmount() {
    this.off();
  }

  render({ query: at, set }, { events, error }) {
    const tab = at.tab ?? "events";
    const words = (at.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    return html`<main class="wrap"><div class="head"><h1>Feed</h1><span class="muted">newest first</span><div class="sums"><${Choice} label="Show" value=${tab} pick=${(value) => set({ tab: value })} options=${[["events", "Events"], ...(may("admin") ? [["audit", "Audit"]] : [])]} /><label class="field"><${Icon} id="eye" /><input type="search" aria-label="Filter" placeholder="Job, event, actor, refused" value=${at.q ?? ""} onInput=${(event) => set({ q: event.target.value })} /></label></div></div>
${tab === "audit" ? html`<${Load} of="audit" every=${10000} load=${() => get("/v1/audit?limit=300")}>${(answer) => this.audit(list(answer, "lines"), words)}<//>` : error ? html`<${Problem} error=${error} />` : !events ? html`<${Ghosts} />` : this.events(events, words)}</main>`;
  }

  events(events, words) {
    const rows = events.map((event) => ({ event, ...eventLine(event), name: event.name ?? nameOf(live.jobs.get(event.job) ?? { id: event.job ?? event.session ?? "" }) }));
    const shown = rows.filter(({ event, text, more, name }) => matches(`${name} ${event.job} ${text} ${more} ${event.session} ${actor(event.actor)} ${event.event}`, words)).reverse();
    return html`<section class="card"><div class="scroll" tabIndex="0" role="region" aria-label="Feed"><table class="tbl feed"><thead><tr><th>Time</th><th>Job</th><th>Event</th><th>More</th></tr></thead><tbody>${shown.map(({ event, icon, tone, text, more, name }) => html`<tr key=${`${event.time}${event.job}${event.event}`}><td><time class="mono muted" datetime=${event.time}>${when(event.time, serverNow())}</time></td><td>${event.job ? html`<a class="strong" href=${`#/job/${event.job}`}>${name}</a>` : name}</td><td><span class="flex"><${Icon} id=${icon} class=${tone} />${text}</span></td><td class="wide muted">${more}</td></tr>`)}</tbody></table></div>${!shown.length && html`<div class="empty">${count(rows.length)} events, none matches.</div>`}</section>`;
  }

  audit(entries, words) {
    const by = (asker = {}) => [asker.name ?? asker.client, asker.surface, asker.token && `token ${asker.token}`, asker.pid && `pid ${asker.pid}`].filter(Boolean).join(", ");
    const shown = entries.filter((one) => matches(`${one.verb} ${one.target} ${by(one.actor)} ${one.decision?.allowed ? "allowed" : "refused"} ${one.decision?.rule} ${one.decision?.reason}`, words)).slice().reverse();
    return html`<section class="card"><div class="scroll" tabIndex="0" role="region" aria-label="Feed"><table class="tbl feed"><thead><tr><th>Time</th><th>Verb</th><th>Target</th><th>By</th><th>Decision</th></tr></thead><tbody>${shown.map((one, i) => html`<tr key=${i}><td><time class="mono muted" datetime=${one.at}>${when(one.at, serverNow())}</time></td><td class="strong">${one.verb}</td><td class="wide">${one.target}</td><td class="wide muted">${by(one.actor)}</td><td class="wide">${one.decision?.allowed ? html`<span class="state"><${Icon} id="check" class="ok" />allowed</span>` : html`<span class="state warn"><${Icon} id="off" />refused</span> <span class="muted">${one.decision?.reason} (${one.decision?.rule})</span>`}</td></tr>`)}</tbody></table></div>${!shown.length && html`<div class="empty">${count(entries.length)} entries, none matches.</div>`}</section>`;
  }
}
