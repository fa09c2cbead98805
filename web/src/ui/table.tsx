// Tables: each column is declared once, with its heading and its cells. On a phone a row is a block, and its cells say their headings.
import type { ComponentChildren } from "preact";

export interface Column<T> {
  readonly head: string;
  /** `act` is for buttons: its heading is only for the ear. */
  readonly kind?: "num" | "long" | "act";
  readonly cell: (row: T) => ComponentChildren;
  /** Whether the row has nothing to say here. */
  readonly none?: (row: T) => boolean;
}

const CLASSES = { num: "num", long: "long", act: "num table-act" } as const;

/** `about` is the id of its title. The first column names the row. */
export function Table<T>({ about, rows, keyOf, columns, inPanel = false }: { about: string; rows: readonly T[]; keyOf: (row: T) => string; columns: readonly Column<T>[]; inPanel?: boolean }) {
  const [name, ...others] = columns;
  return (
    <div class={inPanel ? "table-box" : "panel table-box"} tabIndex={0} role="group" aria-labelledby={about}>
      <table>
        <thead>
          <tr>
            {columns.map(({ head, kind }) => (
              <th key={head} scope="col" class={kind === "num" ? "num" : undefined}>
                {kind === "act" ? <span class="sr-only">{head}</span> : head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              <th scope="row">{name?.cell(row)}</th>
              {others.map(({ head, kind, cell, none }) => (
                <td key={head} class={kind && CLASSES[kind]} data-label={kind === "act" ? undefined : head} data-none={none?.(row) || undefined}>
                  {kind === "act" ? cell(row) : <span>{cell(row)}</span>}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
