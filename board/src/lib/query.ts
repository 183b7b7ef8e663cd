// Filters and sort as they stand in the address of a view, and as a person types them.

/** A column to sort by, and which way. */
export interface Sort {
  key: string;
  down: boolean;
}

/** `-age` is age, largest first. */
export function parseSort(text: string | null, allowed: readonly string[], otherwise: Sort): Sort {
  if (!text) return otherwise;
  const down = text.startsWith('-');
  const key = down ? text.slice(1) : text;
  return allowed.includes(key) ? { key, down } : otherwise;
}

export function formatSort(sort: Sort): string {
  return (sort.down ? '-' : '') + sort.key;
}

/** A filter: words, and values of named fields. */
export interface Filter {
  text: string;
  fields: Record<string, string>;
}

/** Reads `user=ann film`: fields that are allowed by name, and everything else as text. */
export function parseFilter(typed: string, allowed: readonly string[]): Filter {
  const words: string[] = [];
  const fields: Record<string, string> = {};
  for (const word of typed.trim().split(/\s+/)) {
    const at = word.indexOf('=');
    const key = at > 0 ? word.slice(0, at) : '';
    if (allowed.includes(key) && at < word.length - 1) fields[key] = word.slice(at + 1);
    else if (word !== '') words.push(word);
  }
  return { text: words.join(' '), fields };
}

/** The filter as a person would type it. */
export function formatFilter(filter: Filter): string {
  const fields = Object.entries(filter.fields).filter(([, value]) => value !== '');
  return [...fields.map(([key, value]) => `${key}=${value}`), filter.text].filter((word) => word !== '').join(' ');
}

/** The words of a list in the query string, as far as they are allowed. */
export function parseWords<T extends string>(text: string | null, allowed: readonly T[]): T[] {
  const words = (text ?? '').split(',');
  return allowed.filter((word) => words.includes(word));
}

/** The query string with some values changed; null and empty values are left out. */
export function withQuery(search: string, changes: Record<string, string | number | null | undefined>): string {
  const params = new URLSearchParams(search);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === '') params.delete(key);
    else params.set(key, String(value));
  }
  // Commas and slashes may stand in a query string, and are easier to read than their codes.
  const text = params.toString().replaceAll('%2C', ',').replaceAll('%2F', '/').replaceAll('%3D', '=');
  return text === '' ? '' : `?${text}`;
}

/** Compares two values of a column; unknown comes last, whichever way the list is sorted. */
export function compare(a: unknown, b: unknown, down: boolean): number {
  if (a == null || b == null) return a == null ? (b == null ? 0 : 1) : -1;
  const order =
    typeof a === 'number' && typeof b === 'number'
      ? a - b
      : String(a).localeCompare(String(b), 'en', { numeric: true });
  return down ? -order : order;
}
