/** Frame is a server-sent event. */
export interface Frame {
  id: string;
  event: string;
  data: string;
}

/** Parser makes frames of the text of a stream, which comes in pieces of any length. */
export class Parser {
  private rest = "";
  private frame: Frame = { id: "", event: "", data: "" };
  private data: string[] = [];

  /** push returns the frames that text has completed. */
  push(text: string): Frame[] {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?=[^\n])/); // a last \r may be half of a line's end
    this.rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.line(line) ?? []);
  }

  private line(line: string): Frame | undefined {
    if (line === "") return this.end();
    const [, field = "", value = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (field === "id") this.frame.id = value; // holds for what follows, until there is another
    if (field === "event") this.frame.event = value;
    if (field === "data") this.data.push(value);
    return undefined; // a comment has an empty field
  }

  private end(): Frame | undefined {
    const whole = { ...this.frame, data: this.data.join("\n") };
    const empty = this.data.length === 0;
    this.frame.event = "";
    this.data = [];
    return empty ? undefined : whole;
  }
}

/** Source is a stream to follow. */
export interface Source {
  /** Opens the stream behind the frame of that id; "" begins. Rejects when it is refused. */
  open(lastEventID: string, signal: AbortSignal): Promise<Response>;
  /** Takes frames, in order, each one once. */
  frames(frames: Frame[]): void;
  /** Hears whether the stream is open. */
  opened(open: boolean): void;
  /** Says whether it is no use to try again. */
  final(error: unknown): boolean;
}

/** The server says something at least every 15 seconds. */
const silence = 40_000;

/**
 * follow follows a stream until signal is aborted, or it is refused for good: it opens
 * it again behind the last frame, as often as it ends. EventSource would do that too,
 * but sends no Authorization.
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

/** read takes what one connection brings. */
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
      const events = frames.filter((f) => f.event === ""); // an event of kind error is the last one: the stream ends
      if (events.length > 0) take(events);
    }
  } finally {
    clearTimeout(watchdog);
    signal.removeEventListener("abort", hangUp);
  }
}

/** backoff is how long to wait after so many failures: up to five seconds, not all pages at once. */
function backoff(failures: number): number {
  return Math.min(5_000, 250 * 2 ** failures) * (0.5 + Math.random() / 2);
}

/** pause waits, at most until signal is aborted. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}
