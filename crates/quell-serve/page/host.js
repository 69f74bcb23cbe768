// The host: what it can contain jobs with, the server itself, and who may ask it for what.

import { get } from "./api.js";
import { live, serverNow } from "./live.js";
import { Component, html, Icon, Load } from "./parts.js";
import { ago, bytes, count, duration, span, when } from "./words.js";

const Facts = ({ rows }) =>
  html`<table class="tbl"><tbody>${rows.filter(([, value]) => value !== undefined && value !== null).map(([word, value]) => html`<tr><th scope="row">${word}</th><td class="wide">${value}</td></tr>`)}</tbody></table>`;

export class Host extends Component {
  componentDidMount() {
    this.props.bind({});
  }

  render() {
    return html`<main class="wrap"><div class="head"><h1>Host</h1><span class="muted">${live.server?.host}</span></div><div class="grid2 flush"><div class="stack"><${Load} of="doctor" load=${() => get("/v1/doctor", { timeout: 30000 })}>${(doctor) => this.doctor(doctor)}<//></div><div class="stack"><${Load} of="server" every=${5000} load=${() => get("/v1/server")}>${(server) => this.server(server)}<//></div></div></main>`;
  }

  doctor(doctor) {
    return html`<section class="card"><header><h2>What holds a job here <span class="muted">${doctor.system}</span></h2></header><table class="tbl"><tbody>${doctor.abilities.map((one) => html`<tr><td><span class="state"><${Icon} id=${one.ok ? "gone" : "off"} class=${one.ok ? "ok" : "warn"} />${one.name}</span></td><td class="wide soft">${one.ok ? "" : html`<span class="warn">no: </span>`}${one.detail}</td></tr>`)}</tbody></table></section>
<section class="card"><header><h2>Chosen by itself: ${doctor.auto ?? "none"} <span class="muted">of ${doctor.containments.join(", ")}</span></h2></header><ul class="ways"><li class="muted">What could defeat it:</li>${doctor.defeated_by.map((way) => html`<li>${way}</li>`)}</ul></section>`;
  }

  server(server) {
    const { limits = {}, totals = {} } = server;
    const uptime = server.started && span((serverNow() - Date.parse(server.started)) / 1000);
    return html`<section class="card"><header><h2>quell serve</h2><span class="muted">${server.version}</span></header><${Facts} rows=${[["Home", html`<code>${server.home}</code>`], ["Size of the home", server.home_bytes === undefined ? undefined : bytes(server.home_bytes)], ["Runs for", uptime], ["Your role", server.role], ["Streams", server.streams === undefined ? undefined : `${count(server.streams)}${limits.streams ? ` of ${count(limits.streams)}` : ""}`], ["Connections", server.connections === undefined ? undefined : `${count(server.connections)}${limits.connections ? ` of ${count(limits.connections)}` : ""}`], ["Memory", server.memory && bytes(server.memory)], ["Refused sign-ins", totals.auth_failures], ["Epoch", server.epoch && html`<code>${server.epoch}</code>`], ["Clock", `${duration(Math.abs(Date.now() - serverNow()) / 1000)} from this browser's`]]} /></section>
${server.tokens && html`<section class="card"><header><h2>Tokens</h2><span class="muted">in the home, readable by its user only</span></header><div class="scroll" tabIndex="0" role="region" aria-label="Tokens"><table class="tbl"><thead><tr><th>Name</th><th>Role</th><th>Made</th><th>Last used</th></tr></thead><tbody>${server.tokens.map((token) => html`<tr><td class="strong">${token.name}</td><td>${token.role}</td><td class="muted">${token.created ? when(token.created, serverNow()) : "–"}</td><td class="muted">${token.last_used ? ago(token.last_used, serverNow()) : "never"}</td></tr>`)}</tbody></table></div></section>`}
${server.sessions && html`<section class="card"><header><h2>Signed in browsers</h2></header><${Facts} rows=${[["Sessions", Array.isArray(server.sessions) ? server.sessions.length : server.sessions]]} /></section>`}`;
  }
}
