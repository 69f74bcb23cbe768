// What has ended: sums, charts with a table behind each, and the labels.

import { get, query } from "./api.js";
import { live } from "./live.js";
import { Choice, Component, html, Icon, Line, Load, Select } from "./parts.js";
import { ENOUGH, filled, rates } from "./series.js";
import { count, duration, percent, plural } from "./words.js";

const RANGES = [["1d", "24 h"], ["7d", "7 days"], ["30d", "30 days"]];

/** The begin of a step: in UTC, as the server counts. */
const day = (start, seconds) => {
  const at = new Date(start);
  const date = `${at.toLocaleString("en", { weekday: "short", timeZone: "UTC" })} ${at.getUTCDate()}`;
  return seconds >= 86400 ? date : `${String(at.getUTCHours()).padStart(2, "0")}:00`;
};

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The color that a token has now: canvas knows no `light-dark()`. */
function color(token) {
  const probe = document.createElement("i");
  probe.className = `probe p-${token}`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

let loading;

/** uPlot comes with the first chart. Script addresses must be trusted: this one is ours. */
function uplot() {
  const src = new URL("./vendor/uPlot.iife.min.js", import.meta.url).href;
  return (loading ??= new Promise((resolve, reject) => {
    const policy = globalThis.trustedTypes?.createPolicy("quell-chart", { createScriptURL: () => src });
    const script = document.createElement("script");
    script.onload = () => resolve(globalThis.uPlot);
    script.onerror = () => reject(new Error("the chart program could not be loaded"));
    script.src = policy ? policy.createScriptURL("") : src;
    document.head.append(script);
  }));
}

/** `series`: `[{label, token, values, dash?, bars?}]` over `times` (seconds). */
class Chart extends Component {
  componentDidMount() {
    this.draw();
    this.watch = new ResizeObserver(() => this.plot?.setSize({ width: this.box.clientWidth - 24, height: 180 }));
    this.watch.observe(this.box);
    this.theme = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.draw();
    this.theme.addEventListener("change", this.redraw);
  }

  shouldComponentUpdate(next) {
    return next.of !== this.props.of;
  }

  componentDidUpdate() {
    this.draw();
  }

  componentWillUnmount() {
    this.watch.disconnect();
    this.theme.removeEventListener("change", this.redraw);
    this.plot?.destroy();
    this.gone = true;
  }

  async draw() {
    const UPlot = await uplot();
    if (this.gone) return;
    this.plot?.destroy();
    const { times, series, format, step, limit, top } = this.props;
    const [ink, line] = [color("ink-3"), color("line")];
    const font = `11px ${css("--sans")}`;
    const axis = { stroke: ink, font, grid: { stroke: line, width: 1 }, ticks: { show: false } };
    const bars = (one) => one.bars && UPlot.paths.bars({ size: [0.76, 48] });
    const options = {
      width: this.box.clientWidth - 24,
      height: 180,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false, range: () => [times[0] - step / 2, times.at(-1) + step / 2] }, y: { range: (_, __, max) => [0, Math.max(top ?? 1, max * 1.12, limit ?? 0)] } },
      axes: [{ ...axis, grid: { show: false }, splits: () => times.filter((_, i) => i % Math.ceil((times.length * 90) / (this.box.clientWidth - 100)) === 0), values: (_, splits) => splits.map((at) => day(at * 1000, step)) }, { ...axis, size: 48, values: (_, splits) => splits.map((v) => (format ? format(v) : Number.isInteger(v) ? count(v) : "")) }],
      series: [{}, ...series.map((one) => ({ label: one.label, stroke: color(one.token), fill: one.bars ? color(one.token) : undefined, width: one.bars ? 0 : 1.75, dash: one.dash, paths: bars(one) || undefined, points: { show: !one.bars, size: 5, fill: color(one.token) }, spanGaps: false }))],
      hooks: { draw: [(plot) => this.labels(plot, ink, line, font)] },
    };
    this.plot = new UPlot(options, [times, ...series.map((one) => one.values)], this.box);
  }

  /** The counts above the bars, the names at the ends of the lines and the limit. */
  labels(plot, ink, line, font) {
    const { times, series, marks, limit, format } = this.props;
    const { ctx } = plot;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.font = font.replace("11px", `600 ${11 * ratio}px`);
    ctx.fillStyle = color("ink-2");
    ctx.textAlign = "center";
    marks?.forEach((n, i) => n && ctx.fillText(n, plot.valToPos(times[i], "x", true), plot.valToPos(series[0].values[i], "y", true) - 5 * ratio));
    if (limit) {
      const y = plot.valToPos(limit, "y", true);
      ctx.strokeStyle = ink;
      ctx.setLineDash([4 * ratio, 4 * ratio]);
      ctx.beginPath();
      ctx.moveTo(plot.bbox.left, y);
      ctx.lineTo(plot.bbox.left + plot.bbox.width, y);
      ctx.stroke();
      ctx.textAlign = "right";
      ctx.fillText(`alert ${format(limit)}`, plot.bbox.left + plot.bbox.width, y - 4 * ratio);
    }
    ctx.restore();
  }

  render({ label }) {
    return html`<div class="plot" role="img" aria-label=${label} ref=${(box) => (this.box = box)}></div>`;
  }
}

/** A chart, or the same numbers as a table. */
class Panel extends Component {
  render({ title, note, legend, head, rows, children }, { table }) {
    return html`<section class="card"><header><h2>${title} <span class="muted">${note}</span></h2><span class="grow"></span>${legend && html`<span class="legend">${legend.map(([token, word]) => html`<span><i class=${`k-${token}`}></i>${word}</span>`)}</span>`}<button class="btn btn-q" aria-pressed=${String(!!table)} onClick=${() => this.setState({ table: !table })}>${table ? "Chart" : "Table"}</button></header>
${table ? html`<div class="scroll" tabIndex="0" role="region" aria-label=${title}><table class="tbl"><thead><tr>${head.map((word, i) => html`<th class=${i ? "num" : ""}>${word}</th>`)}</tr></thead><tbody>${rows.map((row) => html`<tr>${row.map((cell, i) => html`<td class=${i ? "num" : ""}>${cell}</td>`)}</tr>`)}</tbody></table></div>` : children}</section>`;
  }
}

export class History extends Component {
  componentDidMount() {
    this.props.bind({});
  }

  render({ query: at, set }) {
    const range = at.range ?? "7d";
    const of = query({ since: range, tag: at.tag, by: range === "1d" ? "hour" : "day" });
    const tags = [...new Set([...live.jobs.values()].flatMap((job) => Object.entries(job.tags ?? {}).map(([key, value]) => `${key}=${value}`)))].slice(0, 50);
    if (at.tag && !tags.includes(at.tag)) tags.push(at.tag);
    return html`<main class="wrap"><div class="head"><h1>History</h1><div class="sums"><${Choice} label="Time" options=${RANGES} value=${range} pick=${(value) => set({ range: value })} /><${Select} label="Tag" value=${at.tag ?? ""} pick=${(tag) => set({ tag })} options=${[["", "all"], ...tags.map((tag) => [tag, tag])]} /></div></div><${Load} of=${of} load=${() => get(`/v1/stats?${of}`, { timeout: 30000 })}>${(stats) => this.stats(stats, of, set, parseInt(range))}<//></main>`;
  }

  stats(stats, of, set, days) {
    const kpi = (word, value, note, tone) => html`<div><dt>${word}</dt><dd>${tone ? html`<span class="state bad"><${Icon} id="alive" />${value}</span>` : value}<small>${note}</small></dd></div>`;
    const rate = stats.stopped >= ENOUGH ? percent(stats.killed / stats.stopped, 1) : "–";
    const buckets = filled(stats.over_time ?? [], days);
    const times = buckets.map((bucket) => Date.parse(bucket.start) / 1000);
    const step = buckets[0]?.seconds ?? 86400;
    const name = (bucket) => day(bucket.start, bucket.seconds);
    const unit = step < 7200 ? "an hour a bar" : step < 90000 ? "a day a bar" : "a week a bar";
    const killRate = rates(buckets);
    const share = (bucket) => bucket.grace_share ?? (bucket.grace_used != null && bucket.grace_given ? bucket.grace_used / bucket.grace_given : null);
    const graces = buckets.map((bucket) => share(bucket) ?? null);
    const p90 = buckets.map((bucket) => bucket.grace_share_p90 ?? null);
    const nine = p90.some((value) => value !== null);
    return html`<dl class="card kpis">${kpi("Jobs ended", count(stats.jobs), `${count(stats.exits.failed)} failed, ${count(stats.timeouts)} timed out`)}${kpi("Had to be stopped", count(stats.stopped), stats.jobs ? `${percent(stats.stopped / stats.jobs)} of all` : "")}${kpi("Kill rate", rate, `${count(stats.killed)} of ${plural(stats.stopped, "stop")} used KILL`)}${kpi("Grace used", stats.grace_used ? duration(stats.grace_used.median) : "–", stats.grace_used ? `median; 9 in 10 under ${duration(stats.grace_used.p90)}` : "no stop waited")}${kpi("Left something running", count(stats.leaks), "all of it was stopped")}${kpi("Not proven dead", count(stats.not_proven), stats.not_proven ? "see Needs attention" : "each end was counted", stats.not_proven > 0)}</dl>
${!buckets.length && html`<div class="card empty"><h2>Nothing has ended in this time</h2></div>`}
${buckets.length > 0 && html`<${Panel} title="Jobs that ended" note=${unit} legend=${[["line-2", "by themselves"], ["act", "stopped politely"], ["bad", "killed (count above)"]]} head=${["Begin", "Jobs", "Stopped", "Killed"]} rows=${buckets.map((b) => [name(b), b.jobs, b.stopped, b.killed])}><${Chart} of=${of + stats.jobs} label=${`Jobs that ended, ${unit}: ${count(stats.jobs)} in all, ${stats.killed} killed`} times=${times} step=${step} marks=${buckets.map((b) => b.killed)} series=${[{ label: "killed", token: "bad", bars: true, values: buckets.map((b) => b.jobs) }, { label: "stopped", token: "act", bars: true, values: buckets.map((b) => b.jobs - b.killed) }, { label: "by themselves", token: "line-2", bars: true, values: buckets.map((b) => b.jobs - b.stopped) }]} /><//>
<div class="grid2"><${Panel} title="Kill rate" note="share of stops that needed KILL, over 24 h each" head=${["Until", "Rate"]} rows=${buckets.map((b, i) => [name(b), percent(killRate[i], 1)])}>${killRate.some((value) => value !== null) ? html`<${Chart} of=${`${of}k${stats.jobs}`} label="Kill rate over time" times=${times} step=${step} limit=${0.1} top=${0.15} format=${(value) => percent(value)} series=${[{ label: "kill rate", token: "bad", values: killRate }]} />` : html`<div class="empty">Fewer than ${ENOUGH} stops in any 24 h: a rate would say nothing.</div>`}<//>
<${Panel} title="Grace used" note="share of what was given" legend=${nine ? [["act", "median"], ["act2", "9 in 10"]] : undefined} head=${["Begin", "Median", ...(nine ? ["9 in 10"] : [])]} rows=${buckets.map((b, i) => [name(b), percent(graces[i]), ...(nine ? [percent(p90[i])] : [])])}>${graces.some((value) => value !== null) ? html`<${Chart} of=${`${of}g${stats.jobs}`} label="Share of the grace that was used, median" times=${times} step=${step} top=${1} format=${(value) => percent(value)} series=${[{ label: "median", token: "act", values: graces }, ...(nine ? [{ label: "9 in 10", token: "act", dash: [5, 3], values: p90 }] : [])]} />` : html`<div class="empty">No stop waited in this time.</div>`}<//></div>`}
${stats.by_tag.length > 0 && html`<section class="card"><div class="scroll" tabIndex="0" role="region" aria-label="By tag"><table class="tbl"><thead><tr><th>By tag</th><th class="num">Jobs</th><th class="num">Stopped</th><th class="num">Killed</th><th>Kill rate</th><th>Grace used, median</th><th class="num">Leaks</th><th class="num">Timeouts</th><th class="num">Not proven</th></tr></thead><tbody>${stats.by_tag.map((tag) => html`<tr><td class="strong"><a href="#" onClick=${(event) => (event.preventDefault(), set({ tag: `${tag.key}=${tag.value}` }))}>${tag.key}=${tag.value}</a></td><td class="num">${count(tag.jobs)}</td><td class="num">${count(tag.stopped)}</td><td class="num">${count(tag.killed)}</td><td><span class="flex"><${Line} class="hb k" share=${tag.stopped >= ENOUGH ? Math.min(1, (tag.killed / tag.stopped) * 4) : 0} /><span>${tag.stopped >= ENOUGH ? percent(tag.killed / tag.stopped, 1) : "–"}</span></span></td><td><span class="flex"><${Line} class="hb" share=${Math.min(1, share(tag) ?? 0)} /><span>${tag.grace_used == null ? "–" : `${duration(tag.grace_used)}${tag.grace_given == null ? "" : ` of ${duration(tag.grace_given)}`}`}</span></span></td><td class="num">${tag.leaks}</td><td class="num">${tag.timeouts}</td><td class="num">${tag.not_proven ? html`<span class="state bad"><${Icon} id="alive" />${tag.not_proven}</span>` : 0}</td></tr>`)}</tbody></table></div></section>`}`;
  }
}
