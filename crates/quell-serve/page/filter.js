// What the filter field means, and how jobs are put into groups.

import { attention, commandOf, nameOf, ownerOf, severity, stateOf } from "./words.js";

const UNITS = { k: 1e3, m: 1e6, g: 1e9, t: 1e12 };
const NUMBERS = {
  cpu: (job) => (job.vitals?.cpu === undefined ? undefined : job.vitals.cpu * 100),
  mem: (job) => job.vitals?.memory,
  procs: (job) => job.vitals?.processes,
};
const FIELDS = {
  state: (job) => [job.state, stateOf(job).word],
  session: (job) => [job.session],
  owner: (job) => [ownerOf(job)],
  held: (job) => [job.held],
  id: (job) => [job.id],
  name: (job) => [job.name],
  cause: (job) => [job.cause],
};

function term(word) {
  const number = /^(cpu|mem|procs)([<>])([\d.]+)([kmgt]?)b?%?$/i.exec(word);
  if (number) {
    const [, field, sign, digits, unit] = number;
    const limit = Number(digits) * (UNITS[unit.toLowerCase()] ?? 1);
    return (job) => {
      const value = NUMBERS[field.toLowerCase()](job);
      return value !== undefined && (sign === "<" ? value < limit : value > limit);
    };
  }
  const low = word.toLowerCase();
  const colon = /^(\w+):(.*)$/.exec(low);
  if (colon?.[1] === "tag") return (job) => Object.entries(job.tags ?? {}).some(([key, value]) => `${key}=${value}`.toLowerCase().startsWith(colon[2]));
  if (colon && FIELDS[colon[1]]) return (job) => FIELDS[colon[1]](job).some((value) => value?.toLowerCase().includes(colon[2]));
  return (job) => haystack(job).includes(low);
}

const haystacks = new WeakMap();

/** What a plain word is looked for in. Rows are replaced when they change, so the text is made once for each. */
function haystack(job) {
  let text = haystacks.get(job);
  if (text === undefined) {
    const tags = Object.entries(job.tags ?? {}).map(([key, value]) => `${key}=${value}`);
    text = [job.id, job.name, job.session, commandOf(job), ...tags].join("\n").toLowerCase();
    haystacks.set(job, text);
  }
  return text;
}

/** A function that says whether a job matches: all words must; a word that begins with `-` must not. */
export function filter(text) {
  const words = text.trim().split(/\s+/).filter(Boolean);
  const terms = words.map((word) => {
    if (word.length < 2 || !word.startsWith("-")) return term(word);
    const not = term(word.slice(1));
    return (job) => !not(job);
  });
  return (job) => terms.every((matches) => matches(job));
}

const SORTS = {
  newest: (a, b) => (a.created < b.created ? 1 : a.created > b.created ? -1 : 0),
  oldest: (a, b) => -SORTS.newest(a, b),
  name: (a, b) => nameOf(a).localeCompare(nameOf(b), "en", { numeric: true }),
  cpu: (a, b) => (b.vitals?.cpu ?? -1) - (a.vitals?.cpu ?? -1),
  memory: (a, b) => (b.vitals?.memory ?? -1) - (a.vitals?.memory ?? -1),
};
export const SORT_NAMES = Object.keys(SORTS);

/** What `job` belongs to when grouped by `by`: "session", "owner", "none" or "tag KEY". */
function groupOf(job, by) {
  if (by === "session") return job.session ?? "";
  if (by === "owner") return ownerOf(job);
  return by.startsWith("tag ") ? job.tags?.[by.slice(4)] ?? "" : "";
}

/**
 * Groups in their order: what needs attention first, then each group by its newest job. A job that needs attention is listed
 * there only; `all` of its group has it too.
 */
export function groups(jobs, { by = "session", sort = "newest" } = {}) {
  const urgent = { key: "!", jobs: [], all: [] };
  const found = new Map();
  for (const job of [...jobs].sort(SORTS[sort] ?? SORTS.newest)) {
    const key = groupOf(job, by);
    if (!found.has(key)) found.set(key, { key: `=${key}`, by, name: key, jobs: [], all: [] });
    const group = found.get(key);
    group.all.push(job);
    if (attention(job)) {
      urgent.jobs.push(job);
      urgent.all.push(job);
    } else group.jobs.push(job);
  }
  urgent.jobs.sort((a, b) => severity(a) - severity(b));
  const rest = [...found.values()].filter((group) => group.jobs.length);
  // Jobs of no group come last.
  rest.sort((a, b) => (a.name === "") - (b.name === ""));
  return [urgent, ...rest];
}

/** The route in the fragment: `#/log/ID?q=x` is `{path: ["log", "ID"], query: {q: "x"}}`. */
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { path: parts, query: Object.fromEntries(new URLSearchParams(query)) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function route(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "" && value !== null);
  const text = new URLSearchParams(given).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export const go = (hash) => {
  location.hash = hash;
};
