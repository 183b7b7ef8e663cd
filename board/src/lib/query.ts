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

/** A column of a list, as far as sorting needs it. */
export interface SortColumn<T> {
  key: string;
  /** What the list is sorted by in this column. A column without it cannot be sorted by. */
  value?: (entry: T) => unknown;
}

/** The keys of the columns that a list can be sorted by. */
export function sortKeys<T>(columns: readonly SortColumn<T>[]): string[] {
  return columns.filter((column) => column.value !== undefined).map((column) => column.key);
}

/**
 * The list in the order of a column. Entries that are equal there stand by `tie`, smallest first; without it they keep
 * their order.
 */
export function sortList<T>(
  list: readonly T[],
  columns: readonly SortColumn<T>[],
  sort: Sort,
  tie?: (entry: T) => unknown,
): T[] {
  const value = columns.find((column) => column.key === sort.key)?.value;
  return list.toSorted((a, b) => {
    const order = value ? compare(value(a), value(b), sort.down) : 0;
    return order !== 0 || !tie ? order : compare(tie(a), tie(b), false);
  });
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

/** The filter in an address: its text is `name`, and each field has a parameter of its own name. */
export function filterOf(query: URLSearchParams, fields: readonly string[]): Filter {
  return {
    text: query.get('name') ?? '',
    fields: Object.fromEntries(fields.map((field) => [field, query.get(field) ?? ''])),
  };
}

/** The parameters of a filter in an address or in a request; one that the filter does not restrict is empty. */
export function filterParams(filter: Filter, fields: readonly string[]): Record<string, string> {
  return { name: filter.text, ...Object.fromEntries(fields.map((field) => [field, filter.fields[field] ?? ''])) };
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
