// The source of a page's data: the agent that serves it, or its own file.

import { type HeatMap, type RunDocument, type Status, type TailEvent, VERSION } from "./contract";

/** The state of the connection to the agent. */
export type Connection = "connecting" | "live" | "disconnected" | "file";

export interface Listener {
  /** Replaces all data. */
  begin(document: RunDocument): void;
  tail(event: TailEvent): void;
  status(status: Status): void;
  connection(state: Connection, reason?: string): void;
}

export interface Source {
  start(listener: Listener): void;
  /** Whether there may be such a heat map. */
  has(kind: string, statistic: string): boolean;
  /** `from` is the first requested column. Rejects if there is no such heat map. */
  heatMap(kind: string, statistic: string, from: number): Promise<HeatMap>;
}

const RETRY_MS = 2000;
/** The agent sends an event every five seconds: after a longer silence it is gone, or the machine slept. */
const SILENCE_MS = 20_000;

/** The data embedded in the page, if any. */
export function dataInPage(): RunDocument | null {
  const text = document.getElementById("run-data")?.textContent ?? "null";
  return JSON.parse(text) as RunDocument | null;
}

function understood(run: RunDocument): RunDocument {
  if (run.version !== VERSION) {
    throw new Error(`this page supports version ${VERSION} of the data, but the data has version ${run.version}`);
  }
  return run;
}

export class FileSource implements Source {
  constructor(private readonly run: RunDocument) {}

  start(listener: Listener): void {
    listener.begin(understood(this.run));
    listener.connection("file");
  }

  has(kind: string, statistic: string): boolean {
    return this.find(kind, statistic) !== undefined;
  }

  heatMap(kind: string, statistic: string): Promise<HeatMap> {
    const map = this.find(kind, statistic);
    return map ? Promise.resolve(map) : Promise.reject(new Error(`this file has no ${statistic} of ${kind}`));
  }

  private find(kind: string, statistic: string): HeatMap | undefined {
    return this.run.heat_maps?.find((map) => map.kind === kind && map.statistic === statistic);
  }
}

export class AgentSource implements Source {
  private events: EventSource | null = null;
  private heard = 0;

  start(listener: Listener): void {
    listener.connection("connecting");
    void this.connect(listener);
    window.setInterval(() => {
      if (this.events && Date.now() - this.heard > SILENCE_MS) this.lost(listener, "the agent sends no more data");
    }, RETRY_MS);
  }

  has(): boolean {
    return true;
  }

  async heatMap(kind: string, statistic: string, from: number): Promise<HeatMap> {
    const query = new URLSearchParams({ kind, statistic, from: String(from) });
    return (await ask(`api/heatmap?${query}`)) as HeatMap;
  }

  private async connect(listener: Listener): Promise<void> {
    try {
      const run = understood((await ask("api/overview")) as RunDocument);
      listener.begin(run);
      this.listen(listener, run);
      listener.connection("live");
    } catch (error) {
      this.lost(listener, error instanceof Error ? error.message : String(error));
    }
  }

  private listen(listener: Listener, run: RunDocument): void {
    const { generation, bins, alerts } = run.overview.cursor;
    const query = new URLSearchParams({ generation: String(generation), bins: String(bins), alerts: String(alerts) });
    const events = new EventSource(`api/events?${query}`);
    this.events = events;
    this.heard = Date.now();
    const on = (name: string, take: (data: string) => void) =>
      events.addEventListener(name, (event) => {
        this.heard = Date.now();
        take((event as MessageEvent<string>).data);
      });
    on("tail", (data) => listener.tail(JSON.parse(data) as TailEvent));
    on("status", (data) => listener.status(JSON.parse(data) as Status));
    // Bins were merged, or the run went back: the page's data is out of date.
    on("reset", () => {
      this.close();
      void this.connect(listener);
    });
    events.onerror = () => this.lost(listener, "the agent does not respond");
  }

  private lost(listener: Listener, reason: string): void {
    this.close();
    listener.connection("disconnected", reason);
    window.setTimeout(() => void this.connect(listener), RETRY_MS);
  }

  private close(): void {
    this.events?.close();
    this.events = null;
  }
}

async function ask(path: string): Promise<unknown> {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${(await answer.text()).trim()}`);
  return answer.json();
}
