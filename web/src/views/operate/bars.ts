// Amounts by day and series, ready to be drawn as stacked bars. Pure.

export interface Amount {
  readonly day: string;
  readonly series: string;
  readonly amount: number;
}

export interface Bars {
  readonly days: readonly string[];
  /** The largest first; what is beyond the most that are told apart is the last, without a name. */
  readonly series: readonly { readonly name: string | null; readonly total: number; readonly amounts: readonly number[] }[];
  readonly highest: number;
}

/** All days from `start` to `end`, also those without any. */
export function barsOf(amounts: readonly Amount[], start: string, end: string, most: number): Bars {
  const days: string[] = [];
  for (let at = Date.parse(start); at <= Date.parse(end); at += 86_400_000) days.push(new Date(at).toISOString().slice(0, 10));
  const totals = new Map<string, number>();
  for (const { series, amount } of amounts) totals.set(series, (totals.get(series) ?? 0) + amount);
  const named = [...totals].filter(([, total]) => total > 0).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  const kept = named.length > most ? named.slice(0, most - 1) : named;
  const known = new Set(kept.map(([name]) => name));
  const rows = (wanted: (name: string) => boolean) => days.map((day) => amounts.filter((one) => one.day === day && wanted(one.series)).reduce((sum, one) => sum + one.amount, 0));
  const series: Bars["series"][number][] = kept.map(([name, total]) => ({ name, total, amounts: rows((one) => one === name) }));
  if (named.length > kept.length) {
    const rest = rows((one) => !known.has(one));
    series.push({ name: null, total: rest.reduce((sum, one) => sum + one, 0), amounts: rest });
  }
  return { days, series, highest: Math.max(0, ...days.map((_, i) => series.reduce((sum, one) => sum + one.amounts[i]!, 0))) };
}
