// The spans of time that charts show.

export type Span = 'hour' | 'day';

export const SPANS: readonly { value: Span; text: string }[] = [
  { value: 'hour', text: 'Last hour' },
  { value: 'day', text: 'Last day' },
];

/** The span that an address asks for. */
export function spanOf(query: URLSearchParams): Span {
  return query.get('span') === 'day' ? 'day' : 'hour';
}
