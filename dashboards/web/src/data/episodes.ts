// Combines the begin and end of alerts into episodes: ongoing ones and ended ones.

import type { Alert } from "./contract";

/** The same limit as the agent's. */
export const MOST_ALERTS = 256;

/** An alert from its begin to its end. */
export interface Episode {
  /** The begin, or the end if the begin is no longer kept. */
  alert: Alert;
  /** `null` while the alert is ongoing. */
  end: Alert | null;
  /** Identifies the episode, also after all data was loaded again. */
  key: string;
}

function seriesKey({ rule, rank, series }: Alert): string {
  const { scope, name, signal, statistic, micro_step, vpp_stage } = series;
  return JSON.stringify([rule, rank, scope, name, signal, statistic, micro_step, vpp_stage]);
}

/** The ongoing episodes, newest first, then the ended ones, newest first. */
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

/** The episodes of one incident. */
export interface Group {
  key: string;
  /** The headline, or the first remaining episode. */
  first: Episode;
  others: Episode[];
}

/** Groups episodes by incident, in the order of the newest of each. */
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

/** Adds alerts; above the limit, the oldest ended one is removed first, as in the agent. */
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
  // The newest alert stays.
  return found >= 0 && found < alerts.length - 1 ? found : 0;
}
