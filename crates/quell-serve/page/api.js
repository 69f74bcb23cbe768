// Requests to the server. The token is in sessionStorage, which other ports of this host can't read, and in no cookie.

const KEY = "quell-token";
let token = sessionStorage.getItem(KEY);
/** Called when the server does not take the token any more. */
export const session = { over: () => {} };

export const getToken = () => token;

export function setToken(value) {
  token = value;
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

/** What went wrong, with the code and the hint of quell's envelope. `code` is "no_answer" if the server gave none. */
export class Failure extends Error {
  constructor(status, body = {}) {
    super(body.message ?? "quell serve does not answer");
    Object.assign(this, { status, code: body.code ?? "no_answer", hint: body.hint, details: body.details });
  }
}

async function send(method, path, body, { timeout = 15000, signal, range } = {}) {
  const limit = AbortSignal.timeout(timeout);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (range !== undefined) headers.Range = `bytes=${range}-`;
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([limit, signal]) : limit,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure(0);
  }
  if (answer.status === 401 && path !== "/v1/login") session.over();
  return answer;
}

async function failureOf(answer) {
  const body = await answer.json().catch(() => ({}));
  return new Failure(answer.status, body.error ?? { message: `quell serve answered ${answer.status}`, code: "http" });
}

/** The data of the answer. Throws a `Failure`. */
export async function api(method, path, body, options) {
  const answer = await send(method, path, body, options);
  if (!answer.ok) throw await failureOf(answer);
  return (await answer.json()).data;
}

export const get = (path, options) => api("GET", path, undefined, options);
export const post = (path, body = {}, options) => api("POST", path, body, options);
export const query = (values) =>
  new URLSearchParams(Object.entries(values).filter(([, value]) => value !== undefined && value !== "")).toString();

/** An answer of several JSON lines, each as it comes. */
export async function postLines(path, body, each) {
  const answer = await send("POST", path, body, { timeout: 300000 });
  if (!answer.ok) throw await failureOf(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines) if (line.trim()) each(JSON.parse(line));
    if (done) return;
  }
}

/** Saves what only an authorized request gets: a link can't send the token. Large answers come in parts. */
export async function download(path, name) {
  const parts = [];
  for (let from = 0, all = 1; from < all; ) {
    const answer = await send("GET", path, undefined, { timeout: 300000, range: from });
    if (answer.status === 416) break;
    if (!answer.ok) throw await failureOf(answer);
    const part = await answer.blob();
    const range = /bytes (\d+)-(\d+)\/(\d+)/.exec(answer.headers.get("Content-Range") ?? "");
    parts.push(part);
    [from, all] = range ? [Number(range[2]) + 1, Number(range[3])] : [1, 1];
  }
  save(new Blob(parts), name);
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
