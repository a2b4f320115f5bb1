// From what alerts say, that they begin and that they end, to what a reader looks at: what goes on, and what is over.

import type { Alert } from "./contract";

/** As the agent keeps them. */
export const MOST_ALERTS = 256;

/** An alert from its begin to its end. */
export interface Episode {
  /** What is known of it first: its begin, or its end where the begin is no longer kept. */
  alert: Alert;
  /** `null` while it goes on. */
  end: Alert | null;
  /** The same for the same episode, also after all was read anew. */
  key: string;
}

function seriesKey({ rule, rank, series }: Alert): string {
  const { scope, name, signal, statistic, micro_step, vpp_stage } = series;
  return JSON.stringify([rule, rank, scope, name, signal, statistic, micro_step, vpp_stage]);
}

/** Those that go on, newest first, then those that are over, newest first. */
export function episodesOf(alerts: Alert[]): Episode[] {
  const open = new Map<string, Episode>();
  const all: Episode[] = [];
  for (const alert of alerts) {
    const series = seriesKey(alert);
    const before = open.get(series);
    if (alert.phase === "ends" && before) {
      before.end = alert;
      open.delete(series);
      continue;
    }
    const episode: Episode = { alert, end: alert.phase === "ends" ? alert : null, key: `${alert.step} ${series}` };
    all.push(episode);
    if (alert.phase === "begins") open.set(series, episode);
  }
  all.reverse();
  return [...all.filter(isOngoing), ...all.filter((episode) => !isOngoing(episode))];
}

/** Those of one incident. */
export interface Group {
  key: string;
  /** The headline, or the first of those that are left of it. */
  first: Episode;
  others: Episode[];
}

/** By incident, in the order of the newest of each. */
export function groupsOf(episodes: Episode[]): Group[] {
  const groups = new Map<string, Episode[]>();
  for (const episode of episodes) {
    const { rank, incident } = episode.alert;
    const key = incident ? `incident ${rank} ${incident.step}` : episode.key;
    const group = groups.get(key);
    if (group) group.push(episode);
    else groups.set(key, [episode]);
  }
  return [...groups].flatMap(([key, all]) => {
    const first = all.find(({ alert }) => alert.incident?.headline) ?? all[0];
    return first ? [{ key, first, others: all.filter((one) => one !== first) }] : [];
  });
}

export function isOngoing(episode: Episode): boolean {
  return episode.end === null;
}

/** The alerts with new ones; beyond what is kept the oldest that is over leaves first, as in the agent. */
export function withNew(alerts: Alert[], added: Alert[]): Alert[] {
  const kept = [...alerts];
  for (const alert of added) {
    kept.push(alert);
    if (kept.length > MOST_ALERTS) kept.splice(oldestOver(kept), 1);
  }
  return kept;
}

function oldestOver(alerts: Alert[]): number {
  const ends = new Map<string, number>();
  alerts.forEach((alert, index) => {
    if (alert.phase === "ends") ends.set(seriesKey(alert), index);
  });
  const found = alerts.findIndex(
    (alert, index) => alert.phase === "ends" || (ends.get(seriesKey(alert)) ?? -1) > index,
  );
  // The newest one stays: it is news.
  return found >= 0 && found < alerts.length - 1 ? found : 0;
}
