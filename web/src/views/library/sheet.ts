// Where in a spritesheet a moment lies. Pure.

const SHEET_CELLS = 16;

export interface Cells {
  readonly count: number;
  readonly columns: number;
  readonly rows: number;
}

/** The gateway's spritesheets hold up to 16 frames in a grid that is as square as it can be, in reading order. */
export function cellsOf(frames: number): Cells {
  const count = Math.max(1, Math.min(SHEET_CELLS, frames));
  const columns = Math.ceil(Math.sqrt(count));
  return { count, columns, rows: Math.ceil(count / columns) };
}

/** The cell for a place between 0 and 1. */
export function cellOf(place: number, cells: Cells): { index: number; column: number; row: number } {
  const index = Math.max(0, Math.min(cells.count - 1, Math.floor(place * cells.count)));
  return { index, column: index % cells.columns, row: Math.floor(index / cells.columns) };
}
