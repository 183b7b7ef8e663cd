// Where the steps of a job stand in the picture of their dependencies.

export interface Node {
  name: string;
  depends: string[];
}

export interface Placed {
  name: string;
  /** Columns from the left: one more than the step furthest right that it depends on. */
  column: number;
  row: number;
}

/** Steps that are drawn at most. */
export const STEPS_MAX = 400;

/** Puts each step right of all that it depends on. Names that are not there, and circles, are passed over. */
export function place(nodes: readonly Node[]): Placed[] {
  const byName = new Map(nodes.map((node) => [node.name, node]));
  const columns = new Map<string, number>();
  for (const node of nodes) columnOf(node, byName, columns, new Set());
  const rows = new Map<number, string[]>();
  for (const { name } of nodes) {
    const column = columns.get(name) ?? 0;
    rows.set(column, [...(rows.get(column) ?? []), name]);
  }
  const placed = new Map<string, Placed>();
  for (const column of [...rows.keys()].sort((a, b) => a - b)) {
    // Each step near the mean row of what it depends on: lines cross less.
    const wanted = rows.get(column)!.map((name, order) => {
      const above = byName
        .get(name)!
        .depends.map((on) => placed.get(on)?.row)
        .filter((row) => row !== undefined);
      const mean = above.length === 0 ? order : above.reduce((sum, row) => sum + row, 0) / above.length;
      return { name, mean, order };
    });
    wanted.sort((a, b) => a.mean - b.mean || a.order - b.order);
    wanted.forEach(({ name }, row) => placed.set(name, { name, column, row }));
  }
  return nodes.map(({ name }) => placed.get(name)!);
}

function columnOf(node: Node, byName: Map<string, Node>, columns: Map<string, number>, open: Set<string>): number {
  const known = columns.get(node.name);
  if (known !== undefined) return known;
  if (open.has(node.name)) return 0;
  open.add(node.name);
  let column = 0;
  for (const on of node.depends) {
    const before = byName.get(on);
    if (before) column = Math.max(column, columnOf(before, byName, columns, open) + 1);
  }
  open.delete(node.name);
  columns.set(node.name, column);
  return column;
}
