// One plot over time. The newest value stands beside the title in words, for those who cannot see the line.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { duration, lang, number, t } from "../../i18n";
import { repaint } from "../../ui/theme";

export interface Line {
  readonly name: string;
  readonly colour: "one" | "two";
  readonly values: readonly (number | null)[];
}

const HEIGHT_PX = 150;

function say(value: number | null | undefined, unit: "count" | "seconds"): string {
  if (value == null) return "–";
  return unit === "seconds" ? duration(value) : number(value, 0);
}

export function Plot({ title, unit, at, lines }: { title: string; unit: "count" | "seconds"; at: readonly number[]; lines: readonly Line[] }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const painted = repaint.value;
  const language = lang.value;
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const colours = getComputedStyle(element);
    const ink = colours.getPropertyValue("color");
    const colour = (name: Line["colour"]) => getComputedStyle(element.querySelector(`[data-colour=${name}]`)!).color;
    const grid = { stroke: getComputedStyle(element.querySelector("[data-colour=grid]")!).color, width: 1 };
    const axis = { stroke: ink, grid, ticks: { show: false }, font: `11px ${colours.fontFamily}` };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT_PX,
        legend: { show: false },
        padding: [8, 20, 0, 0], // half of a time beyond the last tick
        cursor: { y: false, points: { size: 6 } },
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 1, unit === "count" ? 1 : 0.001) * 1.1] } },
        axes: [
          { ...axis, size: 28, values: (_, ticks) => ticks.map((tick) => new Intl.DateTimeFormat(language === "zh" ? "zh-CN" : "en-GB", { timeStyle: "short" }).format(tick * 1000)) },
          { ...axis, size: 48, values: (_, ticks) => ticks.map((tick) => (unit === "seconds" ? (tick === 0 ? "0" : duration(tick)) : Number.isInteger(tick) ? number(tick, 0) : "")) },
        ],
        series: [{}, ...lines.map((line) => ({ label: line.name, stroke: colour(line.colour), width: 2, points: { size: 4 }, spanGaps: false }))],
      },
      dataOf(at, lines),
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [painted, language, lines.length]);
  useEffect(() => plot.current?.setData(dataOf(at, lines)), [at, lines]);
  return (
    <figure class="plot">
      <figcaption>
        <span class="plot-title">{title}</span>
        {lines.map((line) => (
          <span key={line.name} class="plot-now">
            <i data-colour={line.colour} aria-hidden="true" />
            {lines.length > 1 && <span>{line.name}</span>}
            <strong>{say(line.values.findLast((value) => value !== null), unit)}</strong>
          </span>
        ))}
      </figcaption>
      <div ref={box} class="plot-box" role="img" aria-label={t("plot.label", { title, now: lines.map((line) => say(line.values.findLast((value) => value !== null), unit)).join(", ") })}>
        <i data-colour="one" hidden />
        <i data-colour="two" hidden />
        <i data-colour="grid" hidden />
      </div>
    </figure>
  );
}

function dataOf(at: readonly number[], lines: readonly Line[]): uPlot.AlignedData {
  return [at as number[], ...lines.map((line) => line.values as (number | null)[])];
}
