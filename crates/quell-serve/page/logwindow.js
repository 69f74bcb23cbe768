// A window over a log on disk: at most so many lines in memory, moved by cursor. A cursor, "o1234e56", is how many bytes of each
// stream are before a place, so that pages from the server and lines of the stream can be joined without gap or double.

const LETTER = { stdout: "o", stderr: "e" };

export function parseCursor(text) {
  const found = /^o(\d+)e(\d+)$/.exec(text ?? "");
  return found ? { stdout: Number(found[1]), stderr: Number(found[2]) } : undefined;
}

export const formatCursor = (at) => `o${at.stdout}e${at.stderr}`;

const size = new TextEncoder();
/** Where the next line of this stream begins. Replaced bytes have another length: then the next offset decides. */
const endOf = (entry) => (entry.kind === "cut" ? entry.to : entry.offset + (entry.lossy ? 1 : size.encode(entry.text).length + (entry.ended ? 1 : 0)));
const beginOf = (entry) => (entry.kind === "cut" ? entry.from : entry.offset);

/** Lines and cuts of one answer in one list: each cut stands before the first line of its stream that follows it. */
export function merged(page) {
  const cuts = [...(page.cuts ?? [])].map((cut) => ({ ...cut, kind: "cut" }));
  const out = [];
  for (const line of page.lines ?? []) {
    for (let i = 0; i < cuts.length; i++) {
      if (cuts[i].stream === line.stream && cuts[i].to <= line.offset) out.push(...cuts.splice(i--, 1));
    }
    out.push({ ...line, kind: "line" });
  }
  return [...out, ...cuts];
}

export const keyOf = (entry) => `${LETTER[entry.stream] ?? "q"}${entry.kind === "cut" ? "c" : ""}${beginOf(entry)}`;

export class LogWindow {
  constructor(most = 20000) {
    this.most = most;
    this.clear();
  }

  clear() {
    this.entries = [];
    /** Where the window begins and ends. */
    this.from = this.to = undefined;
    this.atTop = this.atEnd = false;
    this.dropped = 0;
  }

  /** The first page, or a jump: forgets what was there. */
  jump(page, { atTop = false, atEnd = false } = {}) {
    this.clear();
    this.entries = merged(page);
    this.to = parseCursor(page.cursor) ?? { stdout: 0, stderr: 0 };
    this.from = parseCursor(page.from) ?? this.begin(this.to);
    this.atTop = atTop || (this.from.stdout === 0 && this.from.stderr === 0);
    this.atEnd = atEnd;
    this.heal();
  }

  /** Where the first entries begin, if the answer does not say so. A stream without one begins where it ends. */
  begin(end) {
    const at = { ...end };
    for (const entry of this.entries) at[entry.stream] = Math.min(at[entry.stream], beginOf(entry));
    return at;
  }

  /** Lines before the window. */
  prepend(page) {
    const seen = new Set(this.entries.map(keyOf));
    const fresh = merged(page).filter((entry) => !seen.has(keyOf(entry)) && beginOf(entry) < this.from[entry.stream]);
    this.atTop = fresh.length === 0;
    this.entries = [...fresh, ...this.entries];
    this.from = parseCursor(page.from) ?? this.begin(this.from);
    if (this.from.stdout === 0 && this.from.stderr === 0) this.atTop = true;
    if (this.entries.length > this.most) {
      this.entries.length = this.most;
      this.to = undefined;
      this.atEnd = false;
    }
    return fresh.length;
  }

  /** Lines after it, from a page or the stream. What is there already is left out. Returns how many are new. */
  append(entries, cursor) {
    let added = 0;
    const last = this.ends();
    for (const entry of entries) {
      const known = last[entry.stream];
      if (known && !known.ended && entry.kind === "line" && known.kind === "line" && entry.offset === known.offset) {
        // A line that had not ended has gone on.
        Object.assign(known, entry);
        continue;
      }
      if (this.to && beginOf(entry) < this.to[entry.stream]) continue;
      this.entries.push(entry);
      last[entry.stream] = entry;
      added++;
      if (this.to) this.to[entry.stream] = Math.max(this.to[entry.stream], endOf(entry));
    }
    const told = parseCursor(cursor);
    if (told) this.to = this.to ? { stdout: Math.max(told.stdout, this.to.stdout), stderr: Math.max(told.stderr, this.to.stderr) } : told;
    const over = this.entries.length - this.most;
    if (over > 0) {
      this.entries.splice(0, over);
      this.dropped += over;
      this.atTop = false;
      this.from = this.begin(this.to);
    }
    this.heal();
    return added;
  }

  /** The last entry of each stream. */
  ends() {
    const last = {};
    for (let i = this.entries.length - 1; i >= 0 && !(last.stdout && last.stderr); i--) last[this.entries[i].stream] ??= this.entries[i];
    return last;
  }

  /** After lines at the end were dropped, the end is where the rest ends. */
  heal() {
    if (this.to) return;
    const last = this.ends();
    this.to = { stdout: last.stdout ? endOf(last.stdout) : this.from.stdout, stderr: last.stderr ? endOf(last.stderr) : this.from.stderr };
  }
}
