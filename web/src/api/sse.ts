/** Frame is a server-sent event. */
export interface Frame {
  id: string;
  event: string;
  data: string;
}

/** Parser splits the text of a stream, which arrives in pieces of any length, into frames. */
export class Parser {
  private rest = "";
  private frame: Frame = { id: "", event: "", data: "" };
  private data: string[] = [];

  /** push adds text and returns the frames that it completes. */
  push(text: string): Frame[] {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?=[^\n])/); // a \r at the end may be followed by \n
    this.rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.line(line) ?? []);
  }

  private line(line: string): Frame | undefined {
    if (line === "") return this.end();
    const [, field = "", value = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (field === "id") this.frame.id = value; // also applies to later frames without an id
    if (field === "event") this.frame.event = value;
    if (field === "data") this.data.push(value);
    return undefined; // a comment
  }

  private end(): Frame | undefined {
    const whole = { ...this.frame, data: this.data.join("\n") };
    const empty = this.data.length === 0;
    this.frame.event = "";
    this.data = [];
    return empty ? undefined : whole;
  }
}

/** Source is a stream that can be resumed. */
export interface Source {
  /** Opens the stream after the frame with that ID; "" starts at the beginning. Rejects if the server does. */
  open(lastEventID: string, signal: AbortSignal): Promise<Response>;
  /** Receives frames in order, each one once. */
  frames(frames: Frame[]): void;
  /** Receives whether the stream is open. */
  opened(open: boolean): void;
  /** Returns whether retrying is useless. */
  final(error: unknown): boolean;
}

/** The timeout of a silent connection, in ms. The server sends something at least every 15 seconds. */
const silence = 40_000;

/**
 * follow reads a stream until signal is aborted or the server rejects it for good. When
 * the stream ends, follow reopens it after the last frame. EventSource does the same, but
 * cannot send an Authorization header.
 */
export async function follow(source: Source, signal: AbortSignal): Promise<void> {
  let last = "";
  for (let failures = 0; !signal.aborted; failures++) {
    try {
      await read(source, last, signal, (frames) => {
        last = frames.at(-1)?.id ?? last;
        failures = 0;
        source.frames(frames);
      });
    } catch (error) {
      if (signal.aborted || source.final(error)) return;
    }
    source.opened(false);
    await pause(backoff(failures), signal);
  }
}

/** read reads the frames of one connection. */
async function read(source: Source, last: string, signal: AbortSignal, take: (frames: Frame[]) => void): Promise<void> {
  const connection = new AbortController();
  const hangUp = () => connection.abort();
  signal.addEventListener("abort", hangUp);
  let watchdog = setTimeout(hangUp, silence);
  try {
    const response = await source.open(last, connection.signal);
    source.opened(true);
    const parser = new Parser();
    const pieces = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    for (let piece = await pieces.read(); !piece.done; piece = await pieces.read()) {
      clearTimeout(watchdog);
      watchdog = setTimeout(hangUp, silence);
      const frames = parser.push(piece.value);
      const events = frames.filter((f) => f.event === ""); // an event of type error ends the stream
      if (events.length > 0) take(events);
    }
  } finally {
    clearTimeout(watchdog);
    signal.removeEventListener("abort", hangUp);
  }
}

/** backoff returns the pause in ms after a number of failures: at most five seconds, with jitter. */
function backoff(failures: number): number {
  return Math.min(5_000, 250 * 2 ** failures) * (0.5 + Math.random() / 2);
}

/** pause waits until the time is over or signal is aborted. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}
