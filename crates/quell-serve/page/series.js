// The steps of time of the history, as charts draw them.

/** A rate of fewer stops than this says nothing. */
export const ENOUGH = 10;

/** Steps in which nothing ended are steps too: the time goes on evenly, for all of the days that were asked for. */
export function filled(buckets, days, now = Date.now()) {
  const last = buckets.at(-1);
  if (!last) return [];
  const found = new Map(buckets.map((bucket) => [Date.parse(bucket.start), bucket]));
  const empty = { seconds: last.seconds, jobs: 0, stopped: 0, killed: 0, leaks: 0, timeouts: 0, not_proven: 0 };
  const size = last.seconds * 1000;
  // Counted from a step that there is: weeks begin on Mondays.
  const end = Date.parse(last.start) + Math.max(0, Math.floor((now - Date.parse(last.start)) / size)) * size;
  const from = Math.min(Date.parse(buckets[0].start), end - (Math.ceil((days * 86400000) / size) - 1) * size);
  const out = [];
  for (let at = from; at <= end; at += size) out.push(found.get(at) ?? { ...empty, start: new Date(at).toISOString() });
  return out;
}

/** The kill rate over the 24 hours before the end of each step; a gap where there were too few stops. */
export function rates(buckets) {
  return buckets.map((bucket, i) => {
    const from = Date.parse(bucket.start) + bucket.seconds * 1000 - 86400000;
    let stopped = 0;
    let killed = 0;
    for (let k = i; k >= 0 && (k === i || Date.parse(buckets[k].start) >= from); k--) {
      stopped += buckets[k].stopped;
      killed += buckets[k].killed;
    }
    return stopped >= ENOUGH ? killed / stopped : null;
  });
}
