// Tables as comma-separated values (RFC 4180).

type Cell = string | number | null | undefined;

/** One line for the titles and one for each row. */
export function toCsv(titles: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return [titles, ...rows].map((row) => row.map(cell).join(',')).join('\r\n') + '\r\n';
}

function cell(value: Cell): string {
  if (value == null) return '';
  if (typeof value === 'number') return String(value);
  // A text that begins like a formula would be run by a spreadsheet: the names of jobs come from users.
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
