// The server's clock. Countdowns run against it, so that a wrong clock on a phone changes nothing.

/** Keeps the difference between the server's clock and a local one that never jumps. */
export class Clock {
  constructor(local = () => performance.now()) {
    this.local = local;
    this.samples = [];
  }

  /** The server said `now` (RFC 3339 or ms). A message can only be late, so the largest of the last differences is the best. */
  heard(now) {
    const time = typeof now === "number" ? now : Date.parse(now);
    if (!Number.isFinite(time)) return;
    this.samples.push(time - this.local());
    if (this.samples.length > 20) this.samples.shift();
  }

  /** The server's time in ms; before the first message the browser's. */
  now() {
    return this.samples.length ? this.local() + Math.max(...this.samples) : Date.now();
  }
}

/** Seconds until `deadline`, never below 0, in steps of `step`; undefined if there is none. */
export function secondsLeft(deadline, now, step = 0.1) {
  const left = (Date.parse(deadline) - now) / 1000;
  if (!Number.isFinite(left)) return undefined;
  return Math.max(0, Math.ceil(left / step - 1e-6) * step);
}

/** When the grace of a stop ends, in ms; undefined if that is not known. */
export function deadline(stopping) {
  if (!stopping) return undefined;
  if (stopping.deadline) return Date.parse(stopping.deadline);
  if (stopping.asked_at && stopping.grace !== undefined) return Date.parse(stopping.asked_at) + stopping.grace * 1000;
  return undefined;
}
