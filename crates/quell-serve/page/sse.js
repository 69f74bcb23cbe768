// The text of a `text/event-stream`, parsed as it arrives. EventSource can't send the Authorization header, so streams come by fetch.

/** Takes chunks of text; each call returns the events that are complete: `{event, data, id}`. Comments return `{event: ""}`. */
export class SseParser {
  constructor() {
    this.rest = "";
    this.reset();
  }

  reset() {
    this.event = "message";
    this.data = [];
  }

  push(chunk) {
    const out = [];
    // A CR at the very end may be the first half of a CRLF.
    const text = this.rest + chunk;
    const ready = text.endsWith("\r") ? text.slice(0, -1) : text;
    const lines = ready.split(/\r\n|\r|\n/);
    this.rest = lines.pop() + text.slice(ready.length);
    for (const line of lines) {
      if (line === "") {
        if (this.data.length) out.push({ event: this.event, data: this.data.join("\n"), id: this.id });
        this.reset();
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) {
        out.push({ event: "", data: line.slice(1).trim() });
        continue;
      }
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") this.event = value;
      else if (field === "data") this.data.push(value);
      else if (field === "id" && !value.includes("\0")) this.id = value;
    }
    return out;
  }
}
